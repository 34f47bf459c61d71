#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/commands/store_text.h"
#include "storage/directory/migrate.h"

namespace sheaf {
namespace {

class StoreMigrate final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    DeclareStore(arguments, &directory_);
    arguments.Flag("--dry-run", "only say what would be done; a server may run", &is_dry_run_);
  }

  absl::Status Run(Session& session) override {
    ASSIGN_OR_RETURN(const TemporaryDirectory scratch, ScratchFor(session.host()));
    const absl::StatusOr<StoreMigration> migration =
        MigrateStore({.directory = directory_, .scratch = scratch.path(), .is_dry_run = is_dry_run_});
    if (!migration.ok()) return WithStoreHint(migration.status());
    if (session.json()) {
      google::protobuf::Struct json;
      auto& fields = *json.mutable_fields();
      fields["fromVersion"] = JsonNumber(migration->from);
      fields["toVersion"] = JsonNumber(migration->to);
      fields["steps"] = JsonTexts(migration->steps);
      fields["dryRun"].set_bool_value(is_dry_run_);
      return session.PrintJson(json);
    }
    if (migration->steps.empty()) {
      session.out() << fmt::format("{} has schema version {}: there is nothing to do\n", directory_, migration->from);
      return absl::OkStatus();
    }
    session.out() << fmt::format("{} {} from schema version {} to {}:\n", directory_,
                                 is_dry_run_ ? "would be brought" : "was brought", migration->from, migration->to);
    for (const std::string& step : migration->steps) session.out() << "  " << step << "\n";
    return absl::OkStatus();
  }

 private:
  std::string directory_;
  bool is_dry_run_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeStoreMigrate() { return std::make_unique<StoreMigrate>(); }

}  // namespace sheaf
