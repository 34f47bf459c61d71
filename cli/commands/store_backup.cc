#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/commands/store_text.h"
#include "storage/directory/backup.h"

namespace sheaf {
namespace {

class StoreBackup final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    DeclareStore(arguments, &directory_);
    arguments.Text("--to", "DIRECTORY", "the backup: a new directory, or an empty one", &to_).is_required = true;
  }

  absl::Status Run(Session& session) override {
    const absl::StatusOr<BackupSummary> made = BackUpStore({.store = directory_, .to = to_, .now = session.now()});
    if (!made.ok()) return WithStoreHint(made.status());
    if (session.json()) {
      google::protobuf::Struct json = ToJson(*made);
      (*json.mutable_fields())["backup"] = JsonText(to_);
      return session.PrintJson(json);
    }
    session.out() << fmt::format(
        "{} is a backup of {} as of {}: {} files, {}, {} live rounds, {} contributions to fold\n", to_, directory_,
        made->time, HumanCount(made->num_files), HumanBytes(made->num_bytes), HumanCount(made->num_live_rounds),
        HumanCount(made->num_pending));
    return absl::OkStatus();
  }

 private:
  std::string directory_;
  std::string to_;
};

}  // namespace

std::unique_ptr<Command> MakeStoreBackup() { return std::make_unique<StoreBackup>(); }

}  // namespace sheaf
