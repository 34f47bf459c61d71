// DiskVfs: an SQLite VFS on a SimulatedDisk, registered for as long as it lives.
//
//   DiskVfs vfs(disk);
//   ASSIGN_OR_RETURN(auto connection, SqliteConnection::Open("/store/tasks.db", {.vfs = vfs.name()}));
//
// It flushes what SQLite's own VFS for Unix flushes: with the first flush of a journal or WAL that it created, also the
// directory. There is no shared memory: the connection must be in exclusive mode, as ours are. Not thread-safe.
#pragma once

#include <memory>
#include <string>

#include "tests/crash/simulated_disk.h"

struct sqlite3_vfs;

namespace sheaf::crash {

class DiskVfs {
 public:
  explicit DiskVfs(SimulatedDisk& disk);
  ~DiskVfs();
  DiskVfs(const DiskVfs&) = delete;
  DiskVfs& operator=(const DiskVfs&) = delete;

  const std::string& name() const { return name_; }

 private:
  const std::string name_;
  const std::unique_ptr<sqlite3_vfs> vfs_;
};

}  // namespace sheaf::crash
