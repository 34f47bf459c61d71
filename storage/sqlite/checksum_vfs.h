// ChecksumVfs: an SQLite VFS on top of another that keeps a checksum in every page of a database, and refuses to hand
// out a page whose checksum is wrong: SQLite itself would take a flipped bit for data.
//
//   ChecksumVfs vfs("");                         // Over the default one.
//   sqlite3_open_v2(path.c_str(), &database, flags, vfs.name().c_str());
//   int reserved = ChecksumVfs::kReservedBytes;  // At the end of each page, before the first table is made.
//   sqlite3_file_control(database, "main", SQLITE_FCNTL_RESERVE_BYTES, &reserved);
//
// The last eight bytes of a page, which SQLite leaves to whoever reserves them, hold the page's number and a CRC-32 of
// everything before, little-endian. A page that does not match is SQLITE_IOERR_DATA. The log (WAL) has checksums of
// SQLite's own. A database without reserved bytes is read and written as it is. Registered for as long as it lives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_vfs;

namespace sheaf {

class ChecksumVfs {
 public:
  static constexpr int kReservedBytes = 8;

  // `base` is the name of a registered VFS; empty: the default one.
  explicit ChecksumVfs(const std::string& base);
  ~ChecksumVfs();
  ChecksumVfs(const ChecksumVfs&) = delete;
  ChecksumVfs& operator=(const ChecksumVfs&) = delete;

  const std::string& name() const { return name_; }
  // Whether the pages of the main database of `database`, opened through one of these, have checksums.
  static bool HasChecksums(sqlite3* database);

 private:
  const std::string name_;
  const std::unique_ptr<sqlite3_vfs> vfs_;
};

// Reads every page of a database file, freed ones included, without SQLite. DATA_LOSS names the file and the first page
// that does not match; else how many pages match (0: this database has no checksums).
absl::StatusOr<int64_t> CheckPages(const std::string& path);

}  // namespace sheaf
