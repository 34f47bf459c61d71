#include "worker/blob_cache.h"

#include <utility>

namespace sheaf {

std::shared_ptr<const std::string> BlobCache::Find(const std::string& digest) {
  auto found = by_digest_.find(digest);
  if (found == by_digest_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->bytes;
}

void BlobCache::Insert(const std::string& digest, std::shared_ptr<const std::string> bytes) {
  int64_t size = static_cast<int64_t>(bytes->size());
  if (size > bytes_max_ || by_digest_.contains(digest)) return;
  while (bytes_ + size > bytes_max_) DropOldest();
  bytes_ += size;
  entries_.push_front({digest, std::move(bytes)});
  by_digest_.emplace(digest, entries_.begin());
}

void BlobCache::DropOldest() {
  Entry& oldest = entries_.back();
  bytes_ -= static_cast<int64_t>(oldest.bytes->size());
  by_digest_.erase(oldest.digest);
  entries_.pop_back();
}

}  // namespace sheaf
