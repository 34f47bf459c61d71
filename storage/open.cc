#include "storage/open.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "base/status_macros.h"
#include "storage/files/file_payload_store.h"
#include "storage/sql/sql_task_store.h"
#include "storage/sqlite/sqlite_connection.h"

namespace sheaf {

absl::StatusOr<std::unique_ptr<DirectoryLock>> DirectoryLock::Take(const std::string& directory) {
  std::string path = directory + "/LOCK";
  int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) return FileError(errno, "open", path);
  std::unique_ptr<DirectoryLock> lock(new DirectoryLock(descriptor));
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return FileError(errno, "lock", path);
  return absl::FailedPreconditionError(
      fmt::format("another server uses the store in {}: stop it, or give this one a directory of its own", directory));
}

DirectoryLock::~DirectoryLock() { ::close(descriptor_); }

absl::StatusOr<Store> OpenStore(const std::string& directory) {
  Store store;
  store.files = std::make_unique<PosixFileSystem>();
  RETURN_IF_ERROR(store.files->CreateDirectory(directory));
  ASSIGN_OR_RETURN(store.lock, DirectoryLock::Take(directory));
  ASSIGN_OR_RETURN(std::unique_ptr<SqlConnection> connection, SqliteConnection::Open(directory + "/tasks.db"));
  ASSIGN_OR_RETURN(store.tasks, SqlTaskStore::Open(std::move(connection)));
  ASSIGN_OR_RETURN(store.payloads, FilePayloadStore::Open(*store.files, directory));
  return store;
}

}  // namespace sheaf
