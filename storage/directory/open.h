// OpenStore: a directory as a server's store.
//
//   ASSIGN_OR_RETURN(Store store, OpenStore("/var/lib/sheaf"));
//   ASSIGN_OR_RETURN(const RoundRecord round, store.tasks->GetRound(id));
//   ASSIGN_OR_RETURN(const auto broadcast, store.payloads->OpenBlob(round.broadcast_digest));
//
// The directory is created with mode 0700 if it is missing (its parent must be there) and locked for as long as the
// Store lives; all files in it have mode 0600. Codes: FAILED_PRECONDITION if another server has it, a newer one wrote
// it, or it is a backup; PERMISSION_DENIED if it cannot be written; DATA_LOSS if the database is damaged; NOT_FOUND if
// the parent is missing. Each names the directory.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "storage/files/file_system.h"
#include "storage/files/store_hold.h"
#include "storage/payload_store.h"
#include "storage/sql/sql_connection.h"
#include "storage/task_store.h"

namespace sheaf {

// An advisory lock on "<directory>/LOCK", released when it goes. The file says which process has it.
class DirectoryLock {
 public:
  // Whether a process has the store in `directory`, as "process 1234"; empty if none has. Looks only: a server that
  // starts meanwhile is not kept out.
  static std::string HolderOf(const std::string& directory);
  static absl::StatusOr<std::unique_ptr<DirectoryLock>> Take(const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  explicit DirectoryLock(int descriptor) : descriptor_(descriptor) {}
  const int descriptor_;
};

// A server that works in a backup makes its list untrue, and then nothing restores it: FAILED_PRECONDITION says so.
absl::Status CheckIsNoBackup(const std::string& directory);

// The members are in the order of their making.
struct Store {
  std::unique_ptr<HoldGate> gate;
  std::unique_ptr<FileSystem> files;
  std::unique_ptr<DirectoryLock> lock;
  std::unique_ptr<TaskStore> tasks;
  std::unique_ptr<PayloadStore> payloads;
};

absl::StatusOr<Store> OpenStore(const std::string& directory);

// What a store lies on.
struct StoreMedia {
  std::unique_ptr<FileSystem> files;
  // Opens the database at a path of the same files.
  std::function<absl::StatusOr<std::unique_ptr<SqlConnection>>(const std::string& path)> open_database;
};
// The same on media other than this machine's files. Takes no lock: whoever calls it is alone there.
absl::StatusOr<Store> OpenStore(const std::string& directory, StoreMedia media);

}  // namespace sheaf
