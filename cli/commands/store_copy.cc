#include "storage/postgres/store_copy.h"

#include <fmt/format.h>

#include <utility>

#include "cli/commands.h"
#include "cli/commands/store_text.h"
#include "cli/terminal/errors.h"

namespace sheaf {
namespace {

struct PayloadRow {
  const char* name;
  // In JSON.
  const char* field;
  PayloadCopy::Count PayloadCopy::Counts::*count;
};
constexpr PayloadRow kPayloads[] = {
    {"blobs (payloads)", "blobs", &PayloadCopy::Counts::blobs},
    {"uploads (payloads)", "uploads", &PayloadCopy::Counts::uploads},
    {"contributions to fold (payloads)", "contributions", &PayloadCopy::Counts::contributions},
    {"checkpoints (payloads)", "checkpoints", &PayloadCopy::Counts::checkpoints},
};

google::protobuf::Struct ToJson(const StoreCopySummary& summary) {
  google::protobuf::Struct json;
  auto& fields = *json.mutable_fields();
  fields["database"] = JsonText(summary.to);
  fields["schemaVersion"] = JsonNumber(summary.schema_version);
  fields["liveRounds"] = JsonNumber(summary.num_live_rounds);
  fields["uploadsLeft"] = JsonNumber(summary.payloads.num_uploads_left);
  google::protobuf::ListValue& tables = *fields["tables"].mutable_list_value();
  for (const CopiedTable& table : summary.tables) {
    auto& row = *tables.add_values()->mutable_struct_value()->mutable_fields();
    row["table"] = JsonText(table.name);
    row["rows"] = JsonNumber(table.num_rows);
    row["sha256"] = JsonText(table.digest);
  }
  auto& payloads = *fields["payloads"].mutable_struct_value()->mutable_fields();
  for (const PayloadRow& row : kPayloads) {
    auto& kind = *payloads[row.field].mutable_struct_value()->mutable_fields();
    kind["number"] = JsonNumber((summary.payloads.*row.count).number);
    kind["bytes"] = JsonNumber((summary.payloads.*row.count).num_bytes);
  }
  return json;
}

void PrintSummary(Session& session, const StoreCopySummary& summary, const std::string& directory) {
  Table table({{"WHAT"}, {"NUMBER", Align::kRight}, {"SIZE", Align::kRight}});
  for (const CopiedTable& copied : summary.tables) {
    table.AddRow({copied.name + " (rows)", HumanCount(copied.num_rows), "-"});
  }
  for (const PayloadRow& row : kPayloads) {
    const PayloadCopy::Count& count = summary.payloads.*row.count;
    table.AddRow({row.name, HumanCount(count.number), HumanBytes(count.num_bytes)});
  }
  session.PrintTable(table);
  session.out() << fmt::format("{} has the store of {}, {} live rounds among it; each row and payload was compared\n",
                               summary.to, directory, HumanCount(summary.num_live_rounds));
  if (summary.payloads.num_uploads_left > 0) {
    session.out() << fmt::format("note: {} uploads of version 0.1 were left out: whoever sends them begins again\n",
                                 HumanCount(summary.payloads.num_uploads_left));
  }
  session.out() << fmt::format(
      "note: {} is as it was; start no server on it any more: the two stores would go on apart\n", directory);
}

absl::Status WithCopyHint(absl::Status status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kResourceExhausted:
      return WithHint(std::move(status),
                      "no server takes the database before a copy into it has ended: run the same command again");
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kPermissionDenied:
      return WithHint(std::move(status), "name the database as 'sheafd --store' will, as a role that owns it");
    default:
      return WithStoreHint(std::move(status));
  }
}

class StoreCopy final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    DeclareStore(arguments, &directory_);
    arguments.Positional(
        "DATABASE", "an empty PostgreSQL database, as postgresql://USER@HOST/DATABASE, without a password", &database_);
  }

  absl::Status Run(Session& session) override {
    ASSIGN_OR_RETURN(const TemporaryDirectory scratch, ScratchFor(session.host()));
    const absl::StatusOr<StoreCopySummary> copied =
        CopyStoreToPostgres({.directory = directory_, .conninfo = database_, .scratch = scratch.path()});
    if (!copied.ok()) return WithCopyHint(copied.status());
    if (session.json()) return session.PrintJson(ToJson(*copied));
    PrintSummary(session, *copied, directory_);
    return absl::OkStatus();
  }

 private:
  std::string directory_;
  std::string database_;
};

}  // namespace

std::unique_ptr<Command> MakeStoreCopy() { return std::make_unique<StoreCopy>(); }

}  // namespace sheaf
