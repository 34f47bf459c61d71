// BlobCache: the broadcasts a worker saw lately, by digest, so that the tasks of one round fetch them once.
//
//   std::shared_ptr<const std::string> bytes = cache.Find(digest);
//   if (bytes == nullptr) cache.Insert(digest, bytes = Fetch(digest));
//
// Holds at most `bytes_max`; the one not used for longest goes first. What is in use outside stays alive, it only
// leaves the cache. Content is what its digest stands for, of a patch the whole file. Not thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>

namespace sheaf {

class BlobCache {
 public:
  explicit BlobCache(int64_t bytes_max) : bytes_max_(bytes_max) {}

  // Null if it is not there.
  std::shared_ptr<const std::string> Find(const std::string& digest);
  // A blob larger than the whole cache is not kept.
  void Insert(const std::string& digest, std::shared_ptr<const std::string> bytes);

  int64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    std::string digest;
    std::shared_ptr<const std::string> bytes;
  };
  void DropOldest();

  const int64_t bytes_max_;
  int64_t bytes_ = 0;
  // Most recently used first.
  std::list<Entry> entries_;
  std::map<std::string, std::list<Entry>::iterator> by_digest_;
};

}  // namespace sheaf
