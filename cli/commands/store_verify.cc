#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/commands/store_text.h"
#include "cli/terminal/errors.h"
#include "storage/directory/verify.h"

namespace sheaf {
namespace {

constexpr size_t kShownMax = 20;

google::protobuf::Struct ToJson(const StoreReport& report) {
  google::protobuf::Struct json;
  (*json.mutable_fields())["holds"].set_bool_value(report.holds());
  (*json.mutable_fields())["notes"] = JsonTexts(report.notes);
  google::protobuf::ListValue& laws = *(*json.mutable_fields())["laws"].mutable_list_value();
  for (const Law& law : report.laws) {
    auto& fields = *laws.add_values()->mutable_struct_value()->mutable_fields();
    fields["law"] = JsonText(law.name);
    fields["sums"] = JsonText(law.sums);
    fields["checked"] = JsonNumber(law.num_checked);
    fields["violations"] = JsonTexts(law.violations);
  }
  return json;
}

void PrintReport(Session& session, const StoreReport& report) {
  Table table({{"LAW"}, {"CHECKED", Align::kRight}, {"HOLDS"}, {"IN ALL"}});
  for (const Law& law : report.laws) {
    table.AddRow({law.name, HumanCount(law.num_checked),
                  law.violations.empty() ? Cell("yes", Color::kGreen) : Cell("NO", Color::kRed),
                  law.sums.empty() ? "-" : law.sums});
  }
  session.PrintTable(table);
  for (const Law& law : report.laws) {
    for (size_t i = 0; i < std::min(law.violations.size(), kShownMax); ++i) {
      session.out() << Printable(fmt::format("violation: {}", law.violations[i])) << "\n";
    }
    if (law.violations.size() > kShownMax) {
      session.out() << fmt::format("violation: and {} more like these; -o json shows all\n",
                                   law.violations.size() - kShownMax);
    }
  }
  for (const std::string& note : report.notes) session.out() << Printable("note: " + note) << "\n";
}

class StoreVerify final : public Command {
 public:
  void Declare(Arguments& arguments) override { DeclareStore(arguments, &directory_); }

  absl::Status Run(Session& session) override {
    ASSIGN_OR_RETURN(const TemporaryDirectory scratch, ScratchFor(session.host()));
    const absl::StatusOr<StoreReport> report = VerifyStore(directory_, scratch.path());
    if (!report.ok()) return WithStoreHint(report.status());
    if (session.json()) {
      RETURN_IF_ERROR(session.PrintJson(ToJson(*report)));
    } else {
      PrintReport(session, *report);
    }
    if (report->holds()) return absl::OkStatus();
    return WithHint(absl::DataLossError(fmt::format("the store in {} does not hold what it promises", directory_)),
                    "stop its server and restore the store from a backup: 'sheaf store restore'");
  }

 private:
  std::string directory_;
};

}  // namespace

std::unique_ptr<Command> MakeStoreVerify() { return std::make_unique<StoreVerify>(); }

}  // namespace sheaf
