#include "server/threads/work_meter.h"

#include <fmt/format.h>

#include <algorithm>

namespace sheaf {
namespace {

constexpr size_t kDescribedMax = 4;
// To ask for the processor's time is a system call, dearer than many events' work. What takes less than this by the
// clock, which is not, has had as much of a processor or a little less.
constexpr absl::Duration kReadAfter = absl::Microseconds(100);

}  // namespace

void WorkMeter::Begin() {
  parts_.clear();
  faults_ = ThreadPageFaults();
  begin_ = read_ = ThreadCpuTime();
  since_read_ = absl::ZeroDuration();
  noted_ = MonotonicTime();
  parts_.push_back({.what = "the batch", .cost = absl::ZeroDuration(), .count = 1});
  current_ = 0;
}

WorkMeter::Part& WorkMeter::PartOf(std::string_view what) {
  const auto found = std::find_if(parts_.begin(), parts_.end(), [&](const Part& part) { return part.what == what; });
  if (found != parts_.end()) return *found;
  parts_.push_back({.what = what, .cost = absl::ZeroDuration()});
  return parts_.back();
}

void WorkMeter::Note(std::string_view what) {
  const absl::Duration now = MonotonicTime();
  const absl::Duration took = now - noted_;
  noted_ = now;
  if (took < kReadAfter) {
    parts_[current_].cost += took;
    since_read_ += took;
  } else {
    Read();
  }
  Part& part = PartOf(what);
  ++part.count;
  current_ = static_cast<size_t>(&part - parts_.data());
}

void WorkMeter::Read() {
  const absl::Duration now = ThreadCpuTime();
  parts_[current_].cost += std::max(now - read_ - since_read_, absl::ZeroDuration());
  read_ = now;
  since_read_ = absl::ZeroDuration();
}

absl::Duration WorkMeter::End() {
  Read();
  return read_ - begin_;
}

std::string WorkMeter::Describe() const {
  std::vector<Part> parts = parts_;
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.cost > b.cost; });
  if (parts.size() > kDescribedMax) parts.resize(kDescribedMax);
  std::string text;
  for (const Part& part : parts) {
    text += fmt::format("{}{} {} ms ({})", text.empty() ? "" : ", ", part.what, absl::ToInt64Milliseconds(part.cost),
                        part.count);
  }
  return text;
}

std::string WorkMeter::Warning(absl::Duration cost_max) const {
  return fmt::format("a batch took {} ms of the core's thread, more than {}: {}; page faults: {}",
                     absl::ToInt64Milliseconds(read_ - begin_), absl::ToInt64Milliseconds(cost_max), Describe(),
                     ThreadPageFaults() - faults_);
}

}  // namespace sheaf
