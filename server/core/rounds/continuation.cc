#include "server/core/rounds/continuation.h"

#include <fmt/format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace sheaf {
namespace {

// Enough to see what it is.
constexpr size_t kDifferenceBytesMax = 200;

absl::Status Differs(const RoundId& before, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format(
      "spec.continues names round {}, which cannot be continued by this one: {}; make them the same, or leave "
      "spec.continues out",
      before, what));
}

// "outputs[0].nnz_max: 5 -> 7".
std::string FirstDifference(const v1::AggregateSpec& before, const v1::AggregateSpec& after) {
  google::protobuf::util::MessageDifferencer differencer;
  std::string report;
  differencer.ReportDifferencesToString(&report);
  if (differencer.Compare(before, after)) return "";
  const std::string_view line = std::string_view(report).substr(0, report.find('\n'));
  return CutUtf8(line.substr(std::min(line.size(), line.find(": ") + 2)), kDifferenceBytesMax);
}

}  // namespace

absl::Status CheckContinuation(const RoundId& before_id, const v1::RoundSpec& before, const v1::RoundSpec& spec) {
  if (before.job() != spec.job()) {
    return Differs(before_id, fmt::format("it is of job '{}', this one of '{}'", before.job(), spec.job()));
  }
  // A worker's build and its words are the computation; what a config says may change from round to round.
  const v1::Computation& was = before.computation();
  const v1::Computation& is = spec.computation();
  if (was.name() != is.name() || was.version_min() != is.version_min()) {
    return Differs(before_id,
                   fmt::format("its computation is {} (version_min {}), that of this one {} (version_min {})",
                               was.name(), was.version_min(), is.name(), is.version_min()));
  }
  if (const std::string difference = FirstDifference(before.aggregate(), spec.aggregate()); !difference.empty()) {
    return Differs(before_id, fmt::format("the aggregates differ in {}", difference));
  }
  // What workers were promised: that nothing individual reaches a disk, and how many clients a release combines.
  if (before.durability() != spec.durability()) {
    return Differs(before_id, fmt::format("it is {}, this one {}", v1::Durability_Name(before.durability()),
                                          v1::Durability_Name(spec.durability())));
  }
  if (before.release() != spec.release()) {
    return Differs(before_id, fmt::format("it releases {}, this one {}", v1::ReleaseForm_Name(before.release()),
                                          v1::ReleaseForm_Name(spec.release())));
  }
  if (before.min_clients() > spec.min_clients()) {
    return Differs(before_id, fmt::format("its min_clients is {}, and this one's only {}", before.min_clients(),
                                          spec.min_clients()));
  }
  if (before.contribution_bytes_max() > spec.contribution_bytes_max()) {
    return Differs(before_id, fmt::format("its contribution_bytes_max is {}, and this one's only {}",
                                          before.contribution_bytes_max(), spec.contribution_bytes_max()));
  }
  return absl::OkStatus();
}

}  // namespace sheaf
