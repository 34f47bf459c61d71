// WorkerOutlook: what the workers that are there mean for tasks that wait with one requirement: how many could run
// them, whether any of those is connected, and what the nearest of the others lacks.
//
//   WorkerOutlook outlook(round.spec.computation(), "zone=eu", now);
//   for (const WorkerProfile& profile : profiles) outlook.Look(profile, is_connected);
//   LogInfo("{}", outlook.Nearest());   // "worker edge-3 has region=eu and no label zone"
//
// Each Look costs the labels of the worker times those required. Not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "server/core/workers/worker_registry.h"

namespace sheaf {

class WorkerOutlook {
 public:
  // `requirement` is a CanonicalLabels text.
  WorkerOutlook(v1::Computation computation, std::string_view requirement, absl::Time now);

  // `is_connected`: it waits in a call, or holds leases.
  void Look(const WorkerProfile& worker, bool is_connected);

  // Of the workers that were looked at and are in service, those that could run the tasks.
  int64_t num_able() const { return num_able_; }
  int64_t num_connected() const { return num_connected_; }
  int64_t num_drained() const { return num_drained_; }
  // When one of these called last.
  absl::Duration since_last_call() const { return now_ - last_call_; }

  // What the worker lacks that offers the computation and has most of the labels. Empty if none offers it.
  const std::string& Nearest() const { return nearest_; }
  // Computations that were offered, the first of them.
  const std::set<std::string>& offered() const { return offered_; }

 private:
  struct Label {
    std::string key;
    std::string value;
  };

  const v1::Computation computation_;
  std::vector<Label> required_;
  const absl::Time now_;
  int64_t num_able_ = 0;
  int64_t num_connected_ = 0;
  int64_t num_drained_ = 0;
  absl::Time last_call_ = absl::InfinitePast();
  // Labels that `nearest_` lacks; a label with another value, or a value under another key, is half a lack.
  double lack_ = 0;
  std::string nearest_;
  std::set<std::string> offered_;
};

}  // namespace sheaf
