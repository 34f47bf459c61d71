// SimulatedDisk: a disk in memory that knows what was flushed and what was not. SQLite (disk_vfs.h) and the payload
// store (disk_file_system.h) write to one and the same.
//
//   SimulatedDisk disk;
//   disk.set_fault([](const DiskCall& call) { return DiskFault{.error = call.path == "/store/lock" ? EIO : 0}; });
//   disk.set_on_change([&] { images.push_back(disk.Crash(random)); });
//   const int error = disk.Rename("/store/new.db", "/store/tasks.db");   // As the system call: 0, or an errno.
//   std::unique_ptr<SimulatedDisk> left = disk.Crash(random);
//
// What is flushed survives a crash. Of the rest a random part does: each sector (512 B or 4 KiB) of a file has one of
// the contents it had since the last flush, each name in a directory stands for one of the files it stood for; all
// independently, so writes are lost, reordered and torn, within a file and between files. A sector is never a mixture
// that nobody ever read from it: that is what SQLite calls powersafe overwrite, and what a page cache gives.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/random.h"

namespace sheaf::crash {

enum class DiskOperation {
  kOpen,
  kCreate,
  kRead,
  kWrite,
  kTruncate,
  kSync,
  kRename,
  kLink,
  kUnlink,
  kCreateDirectory,
  kRemoveDirectory,
  kSyncDirectory,
  kList,
};
const char* Name(DiskOperation operation);

struct DiskCall {
  DiskOperation operation;
  std::string_view path;
};

struct DiskFault {
  // An errno; 0: none.
  int error = 0;
  // A write that fails leaves this part of its bytes.
  double written = 0;
};

class SimulatedDisk {
 public:
  SimulatedDisk();

  struct Node {
    // --- A file: what a reader sees, what is flushed, and the way from there to here.
    std::string bytes;
    // Kept from the first change on; before, it is the same as `bytes`.
    std::string flushed_bytes;
    bool has_flushed_bytes = false;
    struct Change {
      int64_t offset = 0;
      std::string bytes;
      // Cuts or extends the file to `offset`; there are no bytes.
      bool is_truncation = false;
    };
    std::vector<Change> changes;
    // A flush failed: what was to be flushed is read back as it was written, and will never be written to the disk, as
    // by a page cache that marks it clean.
    bool has_lost_changes = false;
    // --- A directory, likewise. A change to null removes the name.
    bool is_directory = false;
    using Entries = std::map<std::string, std::shared_ptr<Node>>;
    Entries entries;
    Entries flushed_entries;
    std::vector<std::pair<std::string, std::shared_ptr<Node>>> entry_changes;
  };
  using NodePtr = std::shared_ptr<Node>;

  // Each returns an errno, 0 for success, as the system call of its name would.
  int Open(const std::string& path, bool create, NodePtr& node);
  int Read(const Node& node, const std::string& path, int64_t offset, int64_t length, std::string& bytes);
  int Write(Node& node, const std::string& path, int64_t offset, std::string_view bytes);
  int Truncate(Node& node, const std::string& path, int64_t size);
  int Sync(Node& node, const std::string& path);
  int Rename(const std::string& from, const std::string& to);
  int Link(const std::string& path, const std::string& name);
  int Unlink(const std::string& path);
  int CreateDirectory(const std::string& path);
  int RemoveDirectory(const std::string& path);
  int SyncDirectory(const std::string& path);
  int List(const std::string& path, std::vector<std::string>& names);

  // Null if there is none.
  NodePtr Find(const std::string& path) const;

  // Asked before every call; what it names happens instead.
  void set_fault(std::function<DiskFault(const DiskCall&)> fault) { fault_ = std::move(fault); }
  // Called at each moment at which a crash may find another disk: after a change, and before a flush.
  void set_on_change(std::function<void()> on_change) { on_change_ = std::move(on_change); }

  // What a crash now leaves, as a disk of its own on which everything is flushed.
  std::unique_ptr<SimulatedDisk> Crash(Random& random) const;
  // A disk on which everything is as it is here, and flushed.
  std::unique_ptr<SimulatedDisk> Copy() const;
  // All files, by path.
  std::map<std::string, NodePtr> Files() const;

 private:
  int Fault(DiskOperation operation, std::string_view path, double* written = nullptr);
  void Changed() const;
  // The directory that holds the last component of `path`, which goes to `name`. Null if there is none.
  NodePtr FindParent(const std::string& path, std::string& name) const;
  static void SetEntry(Node& directory, const std::string& name, NodePtr node);

  NodePtr root_;
  std::function<DiskFault(const DiskCall&)> fault_;
  std::function<void()> on_change_;
};

}  // namespace sheaf::crash
