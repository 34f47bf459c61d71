#include "aggregation/output/output_accumulator.h"

#include "aggregation/output/operator.h"
#include "aggregation/wire/state_envelope.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr uint32_t kMagic = 0x4f414853;  // "SHAO"

}  // namespace

void OutputAccumulator::Accumulate(CheckedValues values, ParallelFor& parallel) {
  num_clients_ += static_cast<int64_t>(values.size());
  DoAccumulate(values, parallel);
}

void OutputAccumulator::Merge(const OutputAccumulator& other) {
  num_clients_ += other.num_clients_;
  DoMerge(other);
}

std::string OutputAccumulator::Serialize() const {
  // One pass: whoever wants it whole has room for it.
  StateWriter body;
  WriteBody(body);
  return WrapState(kMagic, layout_.Signature(), body.bytes());
}

int64_t OutputAccumulator::MeasureBody() const {
  return MeasureState([this](StateWriter& out) { WriteBody(out); });
}

int64_t OutputAccumulator::SerializedBytes(int64_t body_bytes) const {
  const std::string signature = layout_.Signature();
  return WrappedBytes({.magic = kMagic, .signature = signature, .body_bytes = body_bytes});
}

void OutputAccumulator::Write(int64_t body_bytes, StateWriter& out) const {
  const std::string signature = layout_.Signature();
  WriteWrapped(
      {.magic = kMagic, .signature = signature, .body_bytes = body_bytes}, [this](StateWriter& to) { WriteBody(to); },
      out);
}

absl::Status OutputAccumulator::Restore(std::string_view state, StateSource source) {
  ASSIGN_OR_RETURN(const std::string_view body, UnwrapState(kMagic, layout_.Signature(), state));
  StateReader in(body);
  ASSIGN_OR_RETURN(num_clients_, in.Get<int64_t>());
  const int64_t clients_max = source == StateSource::kCheckpoint ? kClientsOfRoundMax : kClientsMax;
  if (num_clients_ < 0 || num_clients_ > clients_max)
    return absl::DataLossError("the state's number of clients is malformed");
  RETURN_IF_ERROR(DoRead(in, {source, num_clients_}));
  return in.End();
}

absl::Status OutputAccumulator::AppendTo(AggregateRelease& release, ParallelFor& parallel) const {
  v1::OutputSummary summary;
  summary.set_name(layout_.name);
  summary.set_operator_(std::string(layout_.op->symbol));
  summary.set_divisor(std::string(DivisorText(layout_.op->divisor)));
  RETURN_IF_ERROR(DoRelease(release, summary, parallel));
  release.outputs.push_back(std::move(summary));
  return absl::OkStatus();
}

absl::Status OutputAccumulator::OutOfRange(int64_t coordinate, int64_t offset) const {
  return layout_.Misfit(layout_.ElementName(coordinate, offset));
}

}  // namespace sheaf
