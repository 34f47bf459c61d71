// Retention: deletes rounds that ended long ago, with their aggregates, and blobs that no round names. A little in each
// batch, so that nobody waits for it.
//
//   retention.Tick(now);
//
// Runs in the core's thread, inside a batch.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/broadcasts/broadcasts.h"

namespace sheaf {

class Retention {
 public:
  // Both outlive this.
  Retention(CoreContext& context, Broadcasts& broadcasts) : context_(context), broadcasts_(broadcasts) {}

  void Tick(absl::Time now);
  // Many rounds that end in a short time are not waited for.
  void OnRoundClosed() { ++num_closed_; }
  absl::Time NextTick() const { return due_time_; }

 private:
  void DeleteRounds(absl::Time now);
  // Broadcasts that were uploaded for nothing, and what a crash kept from being deleted.
  void FindOldBlobs(absl::Time now);
  void FindOld(const std::vector<PayloadStore::BlobInfo>& blobs, absl::Time now);
  void DeleteOldBlobs(absl::Time now);
  // After a commit.
  void DeleteIfUnused(const std::string& digest, absl::Time now);

  CoreContext& context_;
  Broadcasts& broadcasts_;
  absl::Time due_time_ = absl::InfinitePast();
  // Since rounds were last deleted.
  int num_closed_ = 0;
  absl::Time blobs_due_time_ = absl::InfinitePast();
  // When a look at all blobs first found each of them.
  std::map<std::string, absl::Time> found_times_;
  // Blobs found long ago that are still to be looked at.
  std::vector<std::string> old_blobs_;
};

}  // namespace sheaf
