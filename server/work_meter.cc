#include "server/work_meter.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cpu_time.h"

namespace sheaf {
namespace {

constexpr size_t kDescribedMax = 4;

}  // namespace

void WorkMeter::Begin() {
  parts_.clear();
  begin_ = last_ = ThreadCpuTime();
  Note("the batch");
}

WorkMeter::Part& WorkMeter::PartOf(std::string_view what) {
  const auto found = std::find_if(parts_.begin(), parts_.end(), [&](const Part& part) { return part.what == what; });
  if (found != parts_.end()) return *found;
  parts_.push_back({.what = what, .cost = absl::ZeroDuration()});
  return parts_.back();
}

void WorkMeter::Note(std::string_view what) {
  const absl::Duration now = ThreadCpuTime();
  if (!parts_.empty()) parts_[current_].cost += now - last_;
  last_ = now;
  Part& part = PartOf(what);
  ++part.count;
  current_ = static_cast<size_t>(&part - parts_.data());
}

absl::Duration WorkMeter::End() {
  const absl::Duration now = ThreadCpuTime();
  parts_[current_].cost += now - last_;
  last_ = now;
  return now - begin_;
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

}  // namespace sheaf
