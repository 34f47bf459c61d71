// Retention: deletes rounds that ended long ago, with their aggregates, and workers not seen for as long. A little in
// each batch, so that nobody waits for it.
//
//   retention.Tick(now);
//
// Runs in the core's thread, inside a batch.
#pragma once

#include "absl/time/time.h"
#include "server/core/core_context.h"

namespace sheaf {

class Retention {
 public:
  explicit Retention(CoreContext& context) : context_(context) {}

  void Tick(absl::Time now);
  absl::Time NextTick() const { return due_time_; }

 private:
  void DeleteRounds(absl::Time now);
  void DeleteWorkers(absl::Time now);

  CoreContext& context_;
  absl::Time due_time_ = absl::InfinitePast();
  absl::Time workers_due_time_ = absl::InfinitePast();
};

}  // namespace sheaf
