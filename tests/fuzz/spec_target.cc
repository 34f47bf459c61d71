// Specs from anyone: refused with a reason, or good for a round.
#include <algorithm>
#include <optional>

#include "aggregation/aggregate_spec.h"
#include "aggregation/output/output_layout.h"
#include "aggregation/wire/tensor.h"
#include "base/check.h"
#include "tests/fuzz/laws.h"
#include "tests/fuzz/message_mutator.h"
#include "tests/fuzz/specs.h"
#include "tests/fuzz/targets.h"

namespace sheaf::fuzz {
namespace {

// A round of all zeros of this size is still quick to report.
constexpr int64_t kElementsMax = 1 << 14;

bool IsSmall(const v1::AggregateSpec& spec) {
  return std::all_of(spec.outputs().begin(), spec.outputs().end(), [](const v1::OutputSpec& output) {
    const std::optional<int64_t> size =
        Product({output.dense_shape().data(), static_cast<size_t>(output.dense_shape_size())});
    return size && *size <= kElementsMax;
  });
}

}  // namespace

void RunSpec(std::string_view input) {
  v1::AggregateSpec spec;
  if (!spec.ParseFromArray(input.data(), static_cast<int>(input.size()))) return;
  const absl::Status status = ValidateAggregateSpec(spec);
  if (!status.ok()) {
    CheckRefusal(status);
    SHEAF_CHECK(RoundAccumulator::Create(spec).status() == status, "Create answers otherwise");
    return;
  }
  if (!IsSmall(spec) || spec.outputs_size() > 16) return;
  const absl::StatusOr<RoundAccumulator> accumulator = RoundAccumulator::Create(spec);
  SHEAF_CHECK(accumulator.ok(), "{}", accumulator.status().ToString());
  CheckState(spec, *accumulator, Provenance::kValues);
}

size_t MutateSpec(uint8_t* data, size_t size, size_t size_max, unsigned seed) {
  return MutateSerialised(v1::AggregateSpec::default_instance(), 0, data, size, size_max, seed);
}

}  // namespace sheaf::fuzz
