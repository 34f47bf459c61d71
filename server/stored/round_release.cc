#include "server/stored/round_release.h"

#include <fmt/format.h>

#include "base/check.h"
#include "server/stored/round.pb.h"
#include "server/stored/unreadable.h"

namespace sheaf {
namespace {

// Each Copy serves both directions, as long as the API's message and the stored one have the same fields.

template <typename From, typename To>
void CopyPhases(const From& from, To& to) {
  if (from.has_wait()) *to.mutable_wait() = from.wait();
  if (from.has_download()) *to.mutable_download() = from.download();
  if (from.has_prepare()) *to.mutable_prepare() = from.prepare();
  if (from.has_compute()) *to.mutable_compute() = from.compute();
  if (from.has_upload()) *to.mutable_upload() = from.upload();
  if (from.has_fold()) *to.mutable_fold() = from.fold();
  if (from.has_commit()) *to.mutable_commit() = from.commit();
}

template <typename From, typename To>
void CopyOutput(const From& from, To& to) {
  to.set_name(from.name());
  to.set_operator_(from.operator_());
  to.set_divisor(from.divisor());
  to.set_divisor_value(from.divisor_value());
  to.set_touched(from.touched());
  to.set_released(from.released());
}

template <typename From, typename To>
void CopyFold(const From& from, To& to) {
  to.set_output(from.output());
  to.set_dense_blocks(from.dense_blocks());
  to.set_thin_blocks(from.thin_blocks());
  to.set_buffered_entries(from.buffered_entries());
  to.set_bucket_folds(from.bucket_folds());
  to.set_contributions(from.contributions());
  to.set_rows(from.rows());
  for (const auto& size : from.growth()) {
    auto& copy = *to.add_growth();
    copy.set_contributions(size.contributions());
    copy.set_touched(size.touched());
  }
}

template <typename From, typename To>
void CopyAggregate(const From& from, To& to) {
  to.set_digest(from.digest());
  to.set_size_bytes(from.size_bytes());
  to.set_num_contributions(from.num_contributions());
  to.set_num_clients(from.num_clients());
  for (const auto& output : from.outputs()) CopyOutput(output, *to.add_outputs());
  for (const auto& fold : from.folds()) CopyFold(fold, *to.add_folds());
}

// From the creation on: each begins where the last one ended.
void EncodePath(const std::vector<Interval>& path, stored::v1::RoundRelease& stored) {
  absl::Duration at;
  for (const Interval& interval : path) {
    SHEAF_CHECK(interval.begin == at, "a critical path has a gap before {}", interval.phase);
    stored::v1::PathInterval& added = *stored.add_critical_path();
    added.set_phase(interval.phase);
    added.set_nanos(absl::ToInt64Nanoseconds(interval.end - interval.begin));
    added.set_task_index(interval.task_index);
    added.set_attempt(interval.attempt);
    added.set_worker(interval.worker);
    at = interval.end;
  }
}

std::vector<Interval> DecodePath(const stored::v1::RoundRelease& stored) {
  std::vector<Interval> path;
  absl::Duration at;
  for (const stored::v1::PathInterval& read : stored.critical_path()) {
    const absl::Duration begin = at;
    at += absl::Nanoseconds(read.nanos());
    path.push_back({.phase = read.phase(),
                    .begin = begin,
                    .end = at,
                    .task_index = read.task_index(),
                    .attempt = read.attempt(),
                    .worker = read.worker()});
  }
  return path;
}

}  // namespace

std::string EncodeRelease(const RoundRelease& release) {
  stored::v1::RoundRelease stored;
  CopyAggregate(release.aggregate, *stored.mutable_aggregate());
  CopyPhases(release.phases, *stored.mutable_phases());
  stored.mutable_metrics()->insert(release.metrics.begin(), release.metrics.end());
  EncodePath(release.critical_path, stored);
  return stored.SerializeAsString();
}

absl::StatusOr<RoundRelease> DecodeRelease(const RoundRecord& record) {
  stored::v1::RoundRelease stored;
  if (!stored.ParseFromString(record.aggregate)) {
    return Unreadable(fmt::format("what round {} released", record.id), "it is no RoundRelease");
  }
  RoundRelease release;
  CopyAggregate(stored.aggregate(), release.aggregate);
  CopyPhases(stored.phases(), release.phases);
  release.metrics = Metrics(stored.metrics().begin(), stored.metrics().end());
  release.critical_path = DecodePath(stored);
  return release;
}

}  // namespace sheaf
