// History: which contributions were handed in, and which of them the server said it had counted, to hold the aggregate
// of a round to: acknowledged ⊆ counted ⊆ attempted, each exactly once.
//
//   History history;
//   RecordingTransport transport(wire, history);             // Below the workers: it hears every Sync.
//   // Here: a round of one-hot contributions (one_hot.h), its workers behind whatever goes wrong.
//   HistoryReport report = history.Check(round, counts);     // counts[i]: what the aggregate holds of task i.
//   for (const std::string& violation : report.violations) LogError("{}", violation);
//
// Every contribution adds 1 at the coordinate of its own task, so that one counted twice, one that was promised and
// forgotten, and one that nobody made all show in the sum itself, whatever the server says of its own state.
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"

namespace sheaf {

// Numbers of tasks, over one round or more.
struct HistoryReport {
  // A result of it was handed in.
  int64_t attempted = 0;
  // The server said ACCEPTED or DUPLICATE.
  int64_t acknowledged = 0;
  // Contributions in the aggregate.
  int64_t counted = 0;
  // Counted beyond once, or acknowledged under two leases.
  int64_t duplicated = 0;
  // Acknowledged, but not counted.
  int64_t lost = 0;
  // Counted, although nobody handed anything in.
  int64_t foreign = 0;
  // A sentence for each task that is wrong; the first twenty.
  std::vector<std::string> violations;

  bool ok() const { return duplicated == 0 && lost == 0 && foreign == 0; }
  void Add(const HistoryReport& other);
};

class History {
 public:
  // A result for `task` ("<round>/<index>") is about to be sent, under this lease.
  void Attempted(std::string_view task, std::string_view lease_token) EXCLUDES(mutex_);
  // The server said that it is counted.
  void Acknowledged(std::string_view task, std::string_view lease_token) EXCLUDES(mutex_);

  // What the aggregate of `round` says, against what was noted.
  HistoryReport Check(std::string_view round, const std::vector<int64_t>& counts) const EXCLUDES(mutex_);
  // For a round that released nothing: only what contradicts itself can be found.
  HistoryReport CheckWithoutAggregate(std::string_view round) const EXCLUDES(mutex_);

 private:
  // Lease tokens.
  struct Task {
    std::set<std::string, std::less<>> attempted;
    std::set<std::string, std::less<>> acknowledged;
  };
  using Round = std::map<int64_t, Task>;

  Task& Find(std::string_view task) REQUIRES(mutex_);
  Round RoundOf(std::string_view round) const EXCLUDES(mutex_);

  mutable Mutex mutex_;
  std::map<std::string, Round, std::less<>> rounds_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
