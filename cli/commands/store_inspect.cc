#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/commands/store_text.h"
#include "storage/directory/inspect.h"

namespace sheaf {
namespace {

google::protobuf::Value ToJson(const std::vector<StoreSummary::Count>& counts) {
  google::protobuf::Value value;
  auto& fields = *value.mutable_struct_value()->mutable_fields();
  for (const StoreSummary::Count& count : counts) fields[count.state] = JsonNumber(count.number);
  return value;
}

google::protobuf::Struct ToJson(const StoreSummary& summary) {
  google::protobuf::Struct json;
  auto& fields = *json.mutable_fields();
  fields["holder"] = JsonText(summary.holder);
  fields["schemaVersion"] = JsonNumber(summary.schema_version);
  fields["newestSchemaVersion"] = JsonNumber(summary.newest_version);
  fields["databaseBytes"] = JsonNumber(summary.database_bytes);
  fields["logBytes"] = JsonNumber(summary.log_bytes);
  fields["freePages"] = JsonNumber(summary.num_free_pages);
  fields["pageBytes"] = JsonNumber(summary.page_bytes);
  fields["rounds"] = ToJson(summary.rounds);
  fields["tasks"] = ToJson(summary.tasks);
  if (summary.oldest_round_time != absl::InfiniteFuture()) {
    fields["oldestRoundTime"] = JsonText(IsoTime(summary.oldest_round_time));
    fields["newestRoundTime"] = JsonText(IsoTime(summary.newest_round_time));
  }
  google::protobuf::ListValue& tables = *fields["tables"].mutable_list_value();
  for (const StoreSummary::Table& table : summary.tables) {
    auto& row = *tables.add_values()->mutable_struct_value()->mutable_fields();
    row["table"] = JsonText(table.name);
    row["rows"] = JsonNumber(table.num_rows);
    row["bytes"] = JsonNumber(table.num_bytes);
  }
  google::protobuf::ListValue& files = *fields["files"].mutable_list_value();
  for (const StoreSummary::Files& kind : summary.files) {
    auto& row = *files.add_values()->mutable_struct_value()->mutable_fields();
    row["kind"] = JsonText(kind.kind);
    row["files"] = JsonNumber(kind.num_files);
    row["bytes"] = JsonNumber(kind.num_bytes);
  }
  return json;
}

std::string StatesText(const std::vector<StoreSummary::Count>& counts) {
  std::string text;
  for (const StoreSummary::Count& count : counts) {
    if (count.number > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", HumanCount(count.number), count.state);
  }
  return text.empty() ? "none" : text;
}

// What somebody who looks after it should do next; empty: nothing.
std::string Advice(const StoreSummary& summary, const std::string& directory) {
  if (summary.schema_version < summary.newest_version) {
    return fmt::format(
        "this program would bring its schema from version {} to {}: back it up, then 'sheaf store migrate {}'",
        summary.schema_version, summary.newest_version, directory);
  }
  if (summary.holder.empty() && summary.log_bytes > 0) {
    return "its server did not end in order; the next start recovers it, and a backup can be made before";
  }
  return "";
}

void PrintSummary(Session& session, const StoreSummary& summary, const std::string& directory) {
  Table facts({{"STORE"}, {directory}});
  facts.AddRow({"used by", summary.holder.empty() ? "nobody" : summary.holder});
  facts.AddRow(
      {"schema version", fmt::format("{} (this program: {})", summary.schema_version, summary.newest_version)});
  facts.AddRow({"database", fmt::format("{}, {} of it free", HumanBytes(summary.database_bytes),
                                        HumanBytes(summary.num_free_pages * summary.page_bytes))});
  facts.AddRow({"log", HumanBytes(summary.log_bytes)});
  facts.AddRow({"rounds", StatesText(summary.rounds)});
  facts.AddRow({"tasks", StatesText(summary.tasks)});
  if (summary.oldest_round_time != absl::InfiniteFuture()) {
    facts.AddRow(
        {"created", fmt::format("{} to {}", IsoTime(summary.oldest_round_time), IsoTime(summary.newest_round_time))});
  }
  session.PrintTable(facts);
  session.out() << "\n";
  Table sizes({{"WHAT"}, {"NUMBER", Align::kRight}, {"SIZE", Align::kRight}});
  for (const StoreSummary::Files& kind : summary.files) {
    sizes.AddRow({kind.kind + " (files)", HumanCount(kind.num_files), HumanBytes(kind.num_bytes)});
  }
  for (const StoreSummary::Table& table : summary.tables) {
    sizes.AddRow({table.name + " (rows)", HumanCount(table.num_rows), HumanBytes(table.num_bytes)});
  }
  session.PrintTable(sizes);
  const std::string advice = Advice(summary, directory);
  if (!advice.empty()) session.out() << "\nnote: " << advice << "\n";
}

class StoreInspect final : public Command {
 public:
  void Declare(Arguments& arguments) override { DeclareStore(arguments, &directory_); }

  absl::Status Run(Session& session) override {
    ASSIGN_OR_RETURN(const TemporaryDirectory scratch, ScratchFor(session.host()));
    const absl::StatusOr<StoreSummary> summary = InspectStore(directory_, scratch.path());
    if (!summary.ok()) return WithStoreHint(summary.status());
    if (session.json()) return session.PrintJson(ToJson(*summary));
    PrintSummary(session, *summary, directory_);
    return absl::OkStatus();
  }

 private:
  std::string directory_;
};

}  // namespace

std::unique_ptr<Command> MakeStoreInspect() { return std::make_unique<StoreInspect>(); }

}  // namespace sheaf
