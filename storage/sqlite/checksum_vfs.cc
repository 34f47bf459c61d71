#include "storage/sqlite/checksum_vfs.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/checksum.h"

namespace sheaf {
namespace {

// Of the header in page 1: the first bytes, and where it says how many bytes at the end of each page are reserved.
constexpr std::string_view kMagic("SQLite format 3\0", 16);
constexpr int kHeaderBytes = 100;
constexpr int kReservedAt = 20;
constexpr int kPageBytesMin = 512;
constexpr int kPageBytesMax = 65536;

// Lies in the memory that SQLite allots for it; the file below follows it.
struct ChecksumFile {
  sqlite3_file base;
  bool has_checksums;
  unsigned char page[kPageBytesMax];
};

ChecksumFile& Self(sqlite3_file* file) { return *reinterpret_cast<ChecksumFile*>(file); }
sqlite3_file* Below(sqlite3_file* file) { return reinterpret_cast<sqlite3_file*>(&Self(file) + 1); }
sqlite3_vfs* Below(sqlite3_vfs* vfs) { return static_cast<sqlite3_vfs*>(vfs->pAppData); }

bool IsPage(int length, sqlite3_int64 offset) {
  return length >= kPageBytesMin && length <= kPageBytesMax && std::has_single_bit(static_cast<unsigned>(length)) &&
         offset % length == 0;
}

void PutNumber(uint32_t number, unsigned char* to) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<unsigned char>(number >> (8 * i));
}

// Writes the page's number and checksum into its last bytes.
void Seal(unsigned char* page, int length, sqlite3_int64 offset) {
  PutNumber(static_cast<uint32_t>(offset / length + 1), page + length - 8);
  PutNumber(Crc32({reinterpret_cast<const char*>(page), static_cast<size_t>(length - 4)}), page + length - 4);
}

bool IsSealed(const unsigned char* page, int length, sqlite3_int64 offset) {
  unsigned char expected[8];
  PutNumber(static_cast<uint32_t>(offset / length + 1), expected);
  PutNumber(Crc32({reinterpret_cast<const char*>(page), static_cast<size_t>(length - 4)}), expected + 4);
  return std::memcmp(page + length - 8, expected, 8) == 0;
}

int Close(sqlite3_file* file) { return Below(file)->pMethods->xClose(Below(file)); }

int Read(sqlite3_file* file, void* to, int length, sqlite3_int64 offset) {
  ChecksumFile& self = Self(file);
  auto* bytes = static_cast<unsigned char*>(to);
  const int code = Below(file)->pMethods->xRead(Below(file), to, length, offset);
  if (code == SQLITE_IOERR_SHORT_READ && self.has_checksums && IsPage(length, offset)) {
    sqlite3_int64 size = 0;
    const int sized = Below(file)->pMethods->xFileSize(Below(file), &size);
    // Nothing at all is no page yet; a part of one is damage.
    return sized != SQLITE_OK ? sized : offset < size ? SQLITE_IOERR_DATA : code;
  }
  if (code != SQLITE_OK) return code;
  if (offset == 0 && length >= kHeaderBytes) self.has_checksums = bytes[kReservedAt] == ChecksumVfs::kReservedBytes;
  if (!IsPage(length, offset)) return SQLITE_OK;
  if (self.has_checksums) return IsSealed(bytes, length, offset) ? SQLITE_OK : SQLITE_IOERR_DATA;
  if (offset > 0) return SQLITE_OK;
  // That there are no checksums may itself be the damage.
  std::memcpy(self.page, bytes, static_cast<size_t>(length));
  self.page[kReservedAt] = ChecksumVfs::kReservedBytes;
  return IsSealed(self.page, length, offset) ? SQLITE_IOERR_DATA : SQLITE_OK;
}

int Write(sqlite3_file* file, const void* from, int length, sqlite3_int64 offset) {
  ChecksumFile& self = Self(file);
  const auto* bytes = static_cast<const unsigned char*>(from);
  if (offset == 0 && length >= kHeaderBytes && std::memcmp(from, kMagic.data(), kMagic.size()) == 0) {
    self.has_checksums = bytes[kReservedAt] == ChecksumVfs::kReservedBytes;
  }
  if (self.has_checksums && IsPage(length, offset)) {
    std::memcpy(self.page, from, static_cast<size_t>(length));
    Seal(self.page, length, offset);
    from = self.page;
  }
  return Below(file)->pMethods->xWrite(Below(file), from, length, offset);
}

int Truncate(sqlite3_file* file, sqlite3_int64 size) { return Below(file)->pMethods->xTruncate(Below(file), size); }
int Sync(sqlite3_file* file, int flags) { return Below(file)->pMethods->xSync(Below(file), flags); }
int FileSize(sqlite3_file* file, sqlite3_int64* size) { return Below(file)->pMethods->xFileSize(Below(file), size); }
int Lock(sqlite3_file* file, int level) { return Below(file)->pMethods->xLock(Below(file), level); }
int Unlock(sqlite3_file* file, int level) { return Below(file)->pMethods->xUnlock(Below(file), level); }
int CheckReservedLock(sqlite3_file* file, int* result) {
  return Below(file)->pMethods->xCheckReservedLock(Below(file), result);
}
int FileControl(sqlite3_file* file, int operation, void* argument) {
  return Below(file)->pMethods->xFileControl(Below(file), operation, argument);
}
int SectorSize(sqlite3_file* file) { return Below(file)->pMethods->xSectorSize(Below(file)); }
int DeviceCharacteristics(sqlite3_file* file) { return Below(file)->pMethods->xDeviceCharacteristics(Below(file)); }

// Version 1 has no shared memory, which exclusive mode does without, and no mapping, which would pass by Read.
constexpr sqlite3_io_methods kMethods = {
    .iVersion = 1,
    .xClose = Close,
    .xRead = Read,
    .xWrite = Write,
    .xTruncate = Truncate,
    .xSync = Sync,
    .xFileSize = FileSize,
    .xLock = Lock,
    .xUnlock = Unlock,
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
  sqlite3_vfs* below = Below(vfs);
  // Journals and logs have checksums of their own.
  if ((flags & SQLITE_OPEN_MAIN_DB) == 0) return below->xOpen(below, path, file, flags, out_flags);
  file->pMethods = nullptr;
  Self(file).has_checksums = false;
  const int code = below->xOpen(below, path, Below(file), flags, out_flags);
  if (Below(file)->pMethods != nullptr) file->pMethods = &kMethods;
  return code;
}

// What else a VFS does goes to the one below, which must be told that it is itself.
int Delete(sqlite3_vfs* vfs, const char* path, int sync) { return Below(vfs)->xDelete(Below(vfs), path, sync); }
int Access(sqlite3_vfs* vfs, const char* path, int flags, int* result) {
  return Below(vfs)->xAccess(Below(vfs), path, flags, result);
}
int FullPathname(sqlite3_vfs* vfs, const char* path, int size, char* full) {
  return Below(vfs)->xFullPathname(Below(vfs), path, size, full);
}
int Randomness(sqlite3_vfs* vfs, int size, char* bytes) { return Below(vfs)->xRandomness(Below(vfs), size, bytes); }
int Pause(sqlite3_vfs* vfs, int microseconds) { return Below(vfs)->xSleep(Below(vfs), microseconds); }
int CurrentTime(sqlite3_vfs* vfs, double* days) { return Below(vfs)->xCurrentTime(Below(vfs), days); }
int GetLastError(sqlite3_vfs* vfs, int size, char* text) { return Below(vfs)->xGetLastError(Below(vfs), size, text); }

}  // namespace

ChecksumVfs::ChecksumVfs(const std::string& base)
    : name_(fmt::format("checksum-{}", static_cast<const void*>(this))), vfs_(new sqlite3_vfs{}) {
  sqlite3_vfs* below = sqlite3_vfs_find(base.empty() ? nullptr : base.c_str());
  SHEAF_CHECK(below != nullptr, "there is no SQLite VFS '{}'", base);
  vfs_->iVersion = 1;
  vfs_->szOsFile = static_cast<int>(sizeof(ChecksumFile)) + below->szOsFile;
  vfs_->mxPathname = below->mxPathname;
  vfs_->zName = name_.c_str();
  vfs_->pAppData = below;
  vfs_->xOpen = Open;
  vfs_->xDelete = Delete;
  vfs_->xAccess = Access;
  vfs_->xFullPathname = FullPathname;
  vfs_->xRandomness = Randomness;
  vfs_->xSleep = Pause;
  vfs_->xCurrentTime = CurrentTime;
  vfs_->xGetLastError = GetLastError;
  sqlite3_vfs_register(vfs_.get(), 0);
}

ChecksumVfs::~ChecksumVfs() { sqlite3_vfs_unregister(vfs_.get()); }

bool ChecksumVfs::HasChecksums(sqlite3* database) {
  sqlite3_file* file = nullptr;
  const int code = sqlite3_file_control(database, "main", SQLITE_FCNTL_FILE_POINTER, &file);
  return code == SQLITE_OK && file != nullptr && file->pMethods == &kMethods && Self(file).has_checksums;
}

absl::StatusOr<int64_t> CheckPages(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> page(kHeaderBytes);
  if (!file.read(page.data(), kHeaderBytes)) return int64_t{0};
  const auto byte = [&page](int at) { return static_cast<unsigned char>(page[static_cast<size_t>(at)]); };
  const int stored = byte(16) << 8 | byte(17);
  const int length = stored == 1 ? kPageBytesMax : stored;
  if (byte(kReservedAt) != ChecksumVfs::kReservedBytes || !IsPage(length, 0)) return int64_t{0};
  page.resize(static_cast<size_t>(length));
  file.seekg(0);
  int64_t num_pages = 0;
  while (file.read(page.data(), length)) {
    if (!IsSealed(reinterpret_cast<const unsigned char*>(page.data()), length, num_pages * length)) {
      return absl::DataLossError(fmt::format(
          "page {} of {} does not match its checksum; restore the store from a backup", num_pages + 1, path));
    }
    ++num_pages;
  }
  if (file.gcount() == 0) return num_pages;
  return absl::DataLossError(
      fmt::format("{} ends in the middle of page {}; restore the store from a backup", path, num_pages + 1));
}

}  // namespace sheaf
