// BroadcastReaders: which populations may read a broadcast, because a round of theirs has it. The same bytes are stored
// once, whoever uploaded them, so that the blob itself does not know.
//
//   readers.Add(digest, "default");
//   if (!readers.MayRead(digest, caller)) return absl::PermissionDeniedError("no round of theirs has it");
//
// Thread-safe: blobs are read past the core.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "server/core/access/identity.h"

namespace sheaf {

class BroadcastReaders {
 public:
  void Add(const std::string& digest, const std::string& population) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    readers_[digest].insert(population);
  }
  // Replaces them all; none forgets the broadcast.
  void Set(const std::string& digest, std::set<std::string> populations) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (populations.empty()) {
      readers_.erase(digest);
    } else {
      readers_[digest] = std::move(populations);
    }
  }
  // False while it is still being read, after a start, which broadcasts the rounds' are patches of: who may not read
  // one may have to come again.
  bool is_complete() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return is_complete_;
  }
  void SetComplete(bool is_complete) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    is_complete_ = is_complete;
  }
  bool MayRead(const std::string& digest, const Identity& caller) const EXCLUDES(mutex_) {
    if (caller.is_everywhere()) return true;
    MutexLock lock(mutex_);
    const auto found = readers_.find(digest);
    if (found == readers_.end()) return false;
    for (const std::string& population : found->second) {
      if (caller.Reaches(population)) return true;
    }
    return false;
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::set<std::string>> readers_ GUARDED_BY(mutex_);
  bool is_complete_ GUARDED_BY(mutex_) = true;
};

}  // namespace sheaf
