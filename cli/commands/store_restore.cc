#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/commands/store_text.h"
#include "storage/directory/backup.h"

namespace sheaf {
namespace {

class StoreRestore final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Positional("BACKUP", "a directory that 'sheaf store backup' made", &backup_);
    arguments.Text("--to", "DIRECTORY", "the store: a new directory, or an empty one", &to_).is_required = true;
  }

  absl::Status Run(Session& session) override {
    const absl::StatusOr<BackupSummary> restored = RestoreStore({.backup = backup_, .to = to_});
    if (!restored.ok()) return WithStoreHint(restored.status());
    if (session.json()) {
      google::protobuf::Struct json = ToJson(*restored);
      (*json.mutable_fields())["store"] = JsonText(to_);
      return session.PrintJson(json);
    }
    session.out() << fmt::format("{} is the store of {}: {} files, {}; start it with 'sheafd --data-dir {}'\n", to_,
                                 restored->time, HumanCount(restored->num_files), HumanBytes(restored->num_bytes), to_)
                  << "note: tokens that were revoked since then are valid again: see 'sheaf token list'\n";
    return absl::OkStatus();
  }

 private:
  std::string backup_;
  std::string to_;
};

}  // namespace

std::unique_ptr<Command> MakeStoreRestore() { return std::make_unique<StoreRestore>(); }

}  // namespace sheaf
