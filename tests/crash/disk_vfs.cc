#include "tests/crash/disk_vfs.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cerrno>
#include <cstring>
#include <new>

namespace sheaf::crash {
namespace {

// Lies in the memory that SQLite allots for it.
struct VfsFile {
  sqlite3_file base;
  SimulatedDisk* disk;
  SimulatedDisk::NodePtr node;
  std::string path;
  bool must_flush_directory;
  bool is_deleted_on_close;
  int last_error;
};

VfsFile& Self(sqlite3_file* file) { return *reinterpret_cast<VfsFile*>(file); }
SimulatedDisk& DiskOf(sqlite3_vfs* vfs) { return *static_cast<SimulatedDisk*>(vfs->pAppData); }

int Close(sqlite3_file* file) {
  VfsFile& self = Self(file);
  if (self.is_deleted_on_close) self.disk->Unlink(self.path);
  self.~VfsFile();
  return SQLITE_OK;
}

int Read(sqlite3_file* file, void* to, int length, sqlite3_int64 offset) {
  VfsFile& self = Self(file);
  std::string bytes;
  self.last_error = self.disk->Read(*self.node, self.path, offset, length, bytes);
  if (self.last_error != 0) return SQLITE_IOERR_READ;
  std::memcpy(to, bytes.data(), bytes.size());
  if (static_cast<int>(bytes.size()) == length) return SQLITE_OK;
  std::memset(static_cast<char*>(to) + bytes.size(), 0, static_cast<size_t>(length) - bytes.size());
  return SQLITE_IOERR_SHORT_READ;
}

int Write(sqlite3_file* file, const void* from, int length, sqlite3_int64 offset) {
  VfsFile& self = Self(file);
  self.last_error =
      self.disk->Write(*self.node, self.path, offset, {static_cast<const char*>(from), static_cast<size_t>(length)});
  if (self.last_error == 0) return SQLITE_OK;
  return self.last_error == ENOSPC ? SQLITE_FULL : SQLITE_IOERR_WRITE;
}

int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  VfsFile& self = Self(file);
  self.last_error = self.disk->Truncate(*self.node, self.path, size);
  return self.last_error == 0 ? SQLITE_OK : SQLITE_IOERR_TRUNCATE;
}

int Sync(sqlite3_file* file, int) {
  VfsFile& self = Self(file);
  self.last_error = self.disk->Sync(*self.node, self.path);
  if (self.last_error != 0) return SQLITE_IOERR_FSYNC;
  if (!self.must_flush_directory) return SQLITE_OK;
  self.must_flush_directory = false;
  // As SQLite does, without looking at the answer: some directories cannot be flushed.
  self.disk->SyncDirectory(self.path.substr(0, self.path.rfind('/')));
  return SQLITE_OK;
}

int FileSize(sqlite3_file* file, sqlite3_int64* size) {
  *size = static_cast<sqlite3_int64>(Self(file).node->bytes.size());
  return SQLITE_OK;
}

int Lock(sqlite3_file*, int) { return SQLITE_OK; }
int CheckReservedLock(sqlite3_file*, int* is_reserved) {
  *is_reserved = 0;
  return SQLITE_OK;
}

int FileControl(sqlite3_file* file, int operation, void* argument) {
  if (operation != SQLITE_FCNTL_LAST_ERRNO) return SQLITE_NOTFOUND;
  *static_cast<int*>(argument) = Self(file).last_error;
  return SQLITE_OK;
}

int SectorSize(sqlite3_file*) { return 4096; }
int DeviceCharacteristics(sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }

constexpr sqlite3_io_methods kMethods = {
    .iVersion = 1,
    .xClose = Close,
    .xRead = Read,
    .xWrite = Write,
    .xTruncate = Truncate,
    .xSync = Sync,
    .xFileSize = FileSize,
    .xLock = Lock,
    .xUnlock = Lock,
    .xCheckReservedLock = CheckReservedLock,
    .xFileControl = FileControl,
    .xSectorSize = SectorSize,
    .xDeviceCharacteristics = DeviceCharacteristics,
    .xShmMap = nullptr,
    .xShmLock = nullptr,
    .xShmBarrier = nullptr,
    .xShmUnmap = nullptr,
    .xFetch = nullptr,
    .xUnfetch = nullptr,
};

int Open(sqlite3_vfs* vfs, const char* path, sqlite3_file* file, int flags, int* out_flags) {
  SimulatedDisk& disk = DiskOf(vfs);
  file->pMethods = nullptr;
  const std::string name = path != nullptr ? path : "/anonymous";
  const bool is_new = disk.Find(name) == nullptr;
  SimulatedDisk::NodePtr node;
  if (disk.Open(name, (flags & SQLITE_OPEN_CREATE) != 0, node) != 0) return SQLITE_CANTOPEN;
  const bool is_log = (flags & (SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL | SQLITE_OPEN_WAL)) != 0;
  new (file) VfsFile{.base = {.pMethods = &kMethods},
                     .disk = &disk,
                     .node = std::move(node),
                     .path = name,
                     .must_flush_directory = is_new && is_log,
                     .is_deleted_on_close = (flags & SQLITE_OPEN_DELETEONCLOSE) != 0,
                     .last_error = 0};
  if (out_flags != nullptr) *out_flags = flags;
  return SQLITE_OK;
}

int Delete(sqlite3_vfs* vfs, const char* path, int flush_directory) {
  SimulatedDisk& disk = DiskOf(vfs);
  const int error = disk.Unlink(path);
  if (error == ENOENT) return SQLITE_IOERR_DELETE_NOENT;
  if (error != 0) return SQLITE_IOERR_DELETE;
  if (flush_directory == 0) return SQLITE_OK;
  const std::string name = path;
  return disk.SyncDirectory(name.substr(0, name.rfind('/'))) == 0 ? SQLITE_OK : SQLITE_IOERR_DIR_FSYNC;
}

int Access(sqlite3_vfs* vfs, const char* path, int, int* result) {
  *result = DiskOf(vfs).Find(path) != nullptr ? 1 : 0;
  return SQLITE_OK;
}

int FullPathname(sqlite3_vfs*, const char* path, int size, char* full) {
  sqlite3_snprintf(size, full, "%s", path);
  return SQLITE_OK;
}

int Randomness(sqlite3_vfs*, int length, char* bytes) {
  std::memset(bytes, 7, static_cast<size_t>(length));
  return length;
}

int Sleep(sqlite3_vfs*, int) { return 0; }

int CurrentTime(sqlite3_vfs*, double* days) {
  *days = 2451544.5;
  return SQLITE_OK;
}

int GetLastError(sqlite3_vfs*, int, char*) { return 0; }

}  // namespace

DiskVfs::DiskVfs(SimulatedDisk& disk)
    : name_(fmt::format("disk-{}", static_cast<const void*>(this))), vfs_(new sqlite3_vfs{}) {
  vfs_->iVersion = 1;
  vfs_->szOsFile = sizeof(VfsFile);
  vfs_->mxPathname = 512;
  vfs_->zName = name_.c_str();
  vfs_->pAppData = &disk;
  vfs_->xOpen = Open;
  vfs_->xDelete = Delete;
  vfs_->xAccess = Access;
  vfs_->xFullPathname = FullPathname;
  vfs_->xRandomness = Randomness;
  vfs_->xSleep = Sleep;
  vfs_->xCurrentTime = CurrentTime;
  vfs_->xGetLastError = GetLastError;
  sqlite3_vfs_register(vfs_.get(), 0);
}

DiskVfs::~DiskVfs() { sqlite3_vfs_unregister(vfs_.get()); }

}  // namespace sheaf::crash
