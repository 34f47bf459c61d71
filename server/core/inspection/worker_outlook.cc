#include "server/core/inspection/worker_outlook.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/core/leases/scheduler.h"

namespace sheaf {
namespace {

constexpr size_t kOfferedShown = 5;
// Of a label that is quoted.
constexpr size_t kLabelBytesMax = 64;

std::string Cut(std::string_view text) {
  return text.size() <= kLabelBytesMax ? std::string(text) : std::string(text.substr(0, kLabelBytesMax)) + "...";
}

}  // namespace

WorkerOutlook::WorkerOutlook(v1::Computation computation, std::string_view requirement, absl::Time now)
    : computation_(std::move(computation)), now_(now) {
  while (!requirement.empty()) {
    const std::string_view pair = requirement.substr(0, requirement.find(','));
    requirement.remove_prefix(std::min(requirement.size(), pair.size() + 1));
    const size_t equals = std::min(pair.find('='), pair.size());
    required_.push_back({.key = std::string(pair.substr(0, equals)),
                         .value = std::string(pair.substr(std::min(equals + 1, pair.size())))});
  }
}

void WorkerOutlook::Look(const WorkerProfile& worker, bool is_connected) {
  for (const v1::OfferedComputation& offer : worker.computations) {
    if (offered_.size() < kOfferedShown) offered_.insert(Cut(offer.name()));
  }
  if (!Offers(worker, computation_)) return;
  double lack = 0;
  std::string what;
  for (const Label& label : required_) {
    const auto found = worker.labels.find(label.key);
    if (found != worker.labels.end() && found->second == label.value) continue;
    std::string sentence;
    if (found != worker.labels.end()) {
      lack += 0.5;
      sentence = fmt::format("has {}={} where {}={} is required", Cut(label.key), Cut(found->second), Cut(label.key),
                             Cut(label.value));
    } else {
      const auto other = std::find_if(worker.labels.begin(), worker.labels.end(),
                                      [&](const auto& entry) { return entry.second == label.value; });
      lack += other == worker.labels.end() ? 1 : 0.5;
      sentence = fmt::format(
          "has {}no label {}",
          other == worker.labels.end() ? "" : fmt::format("{}={} and ", Cut(other->first), Cut(other->second)),
          Cut(label.key));
    }
    // The first that is missing stands for all.
    if (what.empty()) what = std::move(sentence);
  }
  if (what.empty()) {
    if (worker.is_draining) {
      ++num_drained_;
      return;
    }
    ++num_able_;
    if (is_connected) ++num_connected_;
    last_call_ = std::max(last_call_, worker.last_seen_time);
  } else if (nearest_.empty() || lack < lack_) {
    lack_ = lack;
    nearest_ = fmt::format("worker {} {}", worker.name, what);
  }
}

}  // namespace sheaf
