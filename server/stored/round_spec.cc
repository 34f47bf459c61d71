#include "server/stored/round_spec.h"

#include <fmt/format.h>

#include "server/stored/round.pb.h"
#include "server/stored/unreadable.h"

namespace sheaf {
namespace {

// Each Copy serves both directions, as long as the API's message and the stored one have the same fields.

// Enums have the same numbers on both sides; who adds a value adds it on both.
static_assert(int{v1::Durability_MAX} == int{stored::v1::Durability_MAX});
static_assert(int{v1::Numerics_MAX} == int{stored::v1::Numerics_MAX});
static_assert(int{v1::NonFinitePolicy_MAX} == int{stored::v1::NonFinitePolicy_MAX});
static_assert(int{v1::KeyType_MAX} == int{stored::v1::KeyType_MAX});
static_assert(int{v1::OutputForm_MAX} == int{stored::v1::OutputForm_MAX});
static_assert(int{v1::DType_MAX} == int{stored::v1::DType_MAX});
static_assert(int{v1::ReleaseForm_MAX} == int{stored::v1::ReleaseForm_MAX});
static_assert(int{v1::StalenessFunction_MAX} == int{stored::v1::StalenessFunction_MAX});

template <typename From, typename To>
void CopyComputation(const From& from, To& to) {
  to.set_name(from.name());
  to.set_version_min(from.version_min());
  to.set_config(from.config());
}

template <typename From, typename To>
void CopyOutput(const From& from, To& to) {
  to.set_name(from.name());
  to.set_operator_(from.operator_());
  to.set_dtype(static_cast<decltype(to.dtype())>(from.dtype()));
  *to.mutable_dense_shape() = from.dense_shape();
  to.set_index_dims(from.index_dims());
  to.set_min_contributors(from.min_contributors());
  to.set_drop_zeros(from.drop_zeros());
  to.set_non_finite(static_cast<decltype(to.non_finite())>(from.non_finite()));
  to.set_nnz_max(from.nnz_max());
  to.set_key_type(static_cast<decltype(to.key_type())>(from.key_type()));
  to.set_form(static_cast<decltype(to.form())>(from.form()));
}

template <typename From, typename To>
void CopyAggregate(const From& from, To& to) {
  for (const auto& output : from.outputs()) CopyOutput(output, *to.add_outputs());
  to.set_numerics(static_cast<decltype(to.numerics())>(from.numerics()));
}

template <typename From, typename To>
void CopyTask(const From& from, To& to) {
  to.set_payload(from.payload());
  to.set_data_selector(from.data_selector());
  *to.mutable_requirements() = from.requirements();
}

template <typename From, typename To>
void CopyWork(const From& from, To& to) {
  switch (from.work_case()) {
    case From::kListed:
      to.mutable_listed();
      return;
    case From::kOpenSlots: {
      auto& slots = *to.mutable_open_slots();
      slots.set_count(from.open_slots().count());
      slots.set_per_worker_max(from.open_slots().per_worker_max());
      if (from.open_slots().has_task()) CopyTask(from.open_slots().task(), *slots.mutable_task());
      return;
    }
    case From::WORK_NOT_SET:
      return;
  }
}

template <typename From, typename To>
void CopySpec(const From& from, To& to) {
  to.set_population(from.population());
  to.set_job(from.job());
  if (from.has_computation()) CopyComputation(from.computation(), *to.mutable_computation());
  if (from.has_aggregate()) CopyAggregate(from.aggregate(), *to.mutable_aggregate());
  CopyWork(from, to);
  to.set_goal(from.goal());
  to.set_min_goal(from.min_goal());
  to.set_over_selection(from.over_selection());
  if (from.has_deadline()) *to.mutable_deadline() = from.deadline();
  if (from.has_attempt_deadline()) *to.mutable_attempt_deadline() = from.attempt_deadline();
  if (from.has_lease_duration()) *to.mutable_lease_duration() = from.lease_duration();
  to.set_min_clients(from.min_clients());
  to.set_priority(from.priority());
  if (from.has_retry()) {
    to.mutable_retry()->set_failed_max(from.retry().failed_max());
    to.mutable_retry()->set_lost_max(from.retry().lost_max());
  }
  to.set_durability(static_cast<decltype(to.durability())>(from.durability()));
  to.set_broadcast_digest(from.broadcast_digest());
  to.set_contribution_bytes_max(from.contribution_bytes_max());
  to.set_release(static_cast<decltype(to.release())>(from.release()));
  to.set_announced(from.announced());
  if (from.has_announce_deadline()) *to.mutable_announce_deadline() = from.announce_deadline();
  to.set_continues(from.continues());
  if (from.has_staleness()) {
    auto& staleness = *to.mutable_staleness();
    staleness.set_function(static_cast<decltype(staleness.function())>(from.staleness().function()));
    staleness.set_exponent(from.staleness().exponent());
    staleness.set_max(from.staleness().max());
  }
  if (!from.has_straggler()) return;
  auto& straggler = *to.mutable_straggler();
  straggler.set_speculate(from.straggler().speculate());
  straggler.set_remaining_share_max(from.straggler().remaining_share_max());
  straggler.set_quantile(from.straggler().quantile());
  straggler.set_factor(from.straggler().factor());
  if (from.straggler().has_age_min()) *straggler.mutable_age_min() = from.straggler().age_min();
  straggler.set_finished_min(from.straggler().finished_min());
  straggler.set_deadline_factor(from.straggler().deadline_factor());
}

// The first value that this version does not know, in a few words; empty if it knows all.
std::string UnknownValue(const stored::v1::RoundSpec& spec) {
  if (!stored::v1::Durability_IsValid(spec.durability())) return fmt::format("durability {}", int{spec.durability()});
  if (!stored::v1::ReleaseForm_IsValid(spec.release())) return fmt::format("release {}", int{spec.release()});
  if (!stored::v1::StalenessFunction_IsValid(spec.staleness().function())) {
    return fmt::format("staleness function {}", int{spec.staleness().function()});
  }
  const stored::v1::AggregateSpec& aggregate = spec.aggregate();
  if (!stored::v1::Numerics_IsValid(aggregate.numerics())) return fmt::format("numerics {}", int{aggregate.numerics()});
  for (const stored::v1::OutputSpec& output : aggregate.outputs()) {
    if (!stored::v1::DType_IsValid(output.dtype())) return fmt::format("dtype {}", int{output.dtype()});
    if (!stored::v1::NonFinitePolicy_IsValid(output.non_finite())) {
      return fmt::format("non_finite {}", int{output.non_finite()});
    }
    if (!stored::v1::KeyType_IsValid(output.key_type())) return fmt::format("key_type {}", int{output.key_type()});
    if (!stored::v1::OutputForm_IsValid(output.form())) return fmt::format("form {}", int{output.form()});
  }
  return "";
}

}  // namespace

std::string EncodeSpec(const v1::RoundSpec& spec) {
  stored::v1::RoundSpec bytes;
  CopySpec(spec, bytes);
  return bytes.SerializeAsString();
}

absl::StatusOr<v1::RoundSpec> DecodeSpec(const RoundRecord& record) {
  const auto unreadable = [&](std::string_view why) {
    return Unreadable(fmt::format("the spec of round {}", record.id), why);
  };
  stored::v1::RoundSpec bytes;
  if (!bytes.ParseFromString(record.spec)) return unreadable("it is no RoundSpec");
  if (const std::string unknown = UnknownValue(bytes); !unknown.empty()) return unreadable("it has " + unknown);
  v1::RoundSpec spec;
  CopySpec(bytes, spec);
  // It came after the spec was written.
  if (spec.announced() && spec.broadcast_digest().empty()) spec.set_broadcast_digest(record.broadcast_digest);
  return spec;
}

}  // namespace sheaf
