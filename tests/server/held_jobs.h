// HeldJobs: a Background whose jobs run when a test says so, in the order in which they were asked for.
//
//   HeldJobs jobs;
//   Core core(store, payloads, executor, random, {.folds = &jobs, .receptions = &jobs});
//   jobs.RunNext();
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "server/core/batches/background.h"

namespace sheaf {

class HeldJobs final : public Background {
 public:
  void Run(const std::string& strand, Job job) override { jobs_.emplace_back(strand, std::move(job)); }
  bool is_stopping() const override { return is_stopping_; }

  bool empty() const { return jobs_.empty(); }
  // The next one, or the next of one strand. False if there is none.
  bool RunNext(const std::string& strand = "") {
    const auto next = std::find_if(jobs_.begin(), jobs_.end(),
                                   [&](const auto& entry) { return strand.empty() || entry.first == strand; });
    if (next == jobs_.end()) return false;
    const Job job = std::move(next->second);
    jobs_.erase(next);
    job();
    return true;
  }
  void Clear() { jobs_.clear(); }
  void set_is_stopping(bool is_stopping) { is_stopping_ = is_stopping; }

 private:
  std::deque<std::pair<std::string, Job>> jobs_;
  bool is_stopping_ = false;
};

}  // namespace sheaf
