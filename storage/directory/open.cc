#include "storage/directory/open.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <tuple>

#include "base/log.h"
#include "base/status_macros.h"
#include "storage/directory/manifest.h"
#include "storage/files/file_payload_store.h"
#include "storage/files/holding_files.h"
#include "storage/sql/sql_task_store.h"
#include "storage/sqlite/sqlite_connection.h"
#include "storage/sqlite/sqlite_engine.h"

namespace sheaf {
namespace {

constexpr char kLockName[] = "LOCK";

// The directory's own name is as easily lost as what is in it.
absl::Status SyncParent(FileSystem& files, const std::string& directory) {
  const std::filesystem::path parent = std::filesystem::path(directory + "/.").parent_path().parent_path();
  const absl::Status status = files.SyncDirectory(parent.empty() ? "." : parent.string());
  // Nobody who may not read it has just made something in it.
  return absl::IsPermissionDenied(status) ? absl::OkStatus() : status;
}

}  // namespace

absl::Status CheckIsNoBackup(const std::string& directory) {
  const std::filesystem::path path(directory);
  std::error_code error;
  if (!std::filesystem::exists(path / kBackupManifestName, error)) return absl::OkStatus();
  if (std::filesystem::exists(path / kLockName, error)) {
    LogWarning("{} was a backup until a server opened it; delete {} there, which is no longer true", directory,
               kBackupManifestName);
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      fmt::format("{} is a backup, which a server would make useless; make a store of it with `sheaf store restore {} "
                  "--to DIR`, and open that",
                  directory, directory));
}

namespace {

// SQLite makes its files readable by everybody, as 0.1 left them; the log takes the mode of the database.
absl::Status MakePrivate(const std::string& database) {
  const int descriptor = ::open(database.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) return FileError(errno, "open", database);
  ::close(descriptor);
  for (const std::string& path : {database, database + "-wal"}) {
    if (::chmod(path.c_str(), 0600) == 0 || errno == ENOENT) continue;
    LogWarning("others may read {}: {}", path, FileError(errno, "change the mode of", path).ToString());
  }
  return absl::OkStatus();
}

// A lock on the whole of an open file: of the open file and not of the process, so that it also keeps out whoever opens
// the file once more in here. Unlike one of flock() it can be asked for without being taken.
struct flock WholeFile(short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DirectoryLock>> DirectoryLock::Take(const std::string& directory) {
  std::string path = directory + "/" + kLockName;
  int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) return FileError(errno, "open", path);
  std::unique_ptr<DirectoryLock> lock(new DirectoryLock(descriptor));
  struct flock whole = WholeFile(F_WRLCK);
  if (::fcntl(descriptor, F_OFD_SETLK, &whole) == 0) {
    const std::string process = fmt::format("{}\n", ::getpid());
    // Only messages need it.
    if (::ftruncate(descriptor, 0) == 0) std::ignore = ::pwrite(descriptor, process.data(), process.size(), 0);
    return lock;
  }
  if (errno != EAGAIN && errno != EACCES) return FileError(errno, "lock", path);
  return absl::FailedPreconditionError(
      fmt::format("another server uses the store in {}: stop it, or give this one a directory of its own", directory));
}

std::string DirectoryLock::HolderOf(const std::string& directory) {
  const std::string path = directory + "/" + kLockName;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return "";
  const DirectoryLock looked_at(descriptor);
  struct flock held = WholeFile(F_RDLCK);
  if (::fcntl(descriptor, F_OFD_GETLK, &held) != 0 || held.l_type == F_UNLCK) return "";
  char process[16];
  const ssize_t length = ::pread(descriptor, process, sizeof process, 0);
  if (length <= 1) return "another process";
  return fmt::format("process {}", std::string_view(process, static_cast<size_t>(length - 1)));
}

DirectoryLock::~DirectoryLock() { ::close(descriptor_); }

absl::StatusOr<Store> OpenStore(const std::string& directory) {
  auto files = std::make_unique<PosixFileSystem>();
  RETURN_IF_ERROR(CheckIsNoBackup(directory));
  RETURN_IF_ERROR(files->CreateDirectory(directory));
  ASSIGN_OR_RETURN(std::unique_ptr<DirectoryLock> lock, DirectoryLock::Take(directory));
  RETURN_IF_ERROR(MakePrivate(directory + "/tasks.db"));
  ASSIGN_OR_RETURN(std::unique_ptr<HoldGate> gate, HoldGate::Open(directory));
  ASSIGN_OR_RETURN(Store store, OpenStore(directory, {.files = std::make_unique<HoldingFiles>(std::move(files), *gate),
                                                      .open_database = [&gate](const std::string& path) {
                                                        return SqliteConnection::Open(path, {.gate = gate.get()});
                                                      }}));
  store.gate = std::move(gate);
  store.lock = std::move(lock);
  return store;
}

absl::StatusOr<Store> OpenStore(const std::string& directory, StoreMedia media) {
  Store store;
  store.files = std::move(media.files);
  RETURN_IF_ERROR(store.files->CreateDirectory(directory));
  RETURN_IF_ERROR(SyncParent(*store.files, directory));
  ASSIGN_OR_RETURN(std::unique_ptr<SqlConnection> connection, media.open_database(directory + "/tasks.db"));
  ASSIGN_OR_RETURN(store.tasks, SqlTaskStore::Open(std::make_unique<SqliteEngine>(std::move(connection))));
  ASSIGN_OR_RETURN(store.payloads, FilePayloadStore::Open(*store.files, directory));
  return store;
}

}  // namespace sheaf
