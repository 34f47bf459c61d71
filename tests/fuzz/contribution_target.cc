// Contributions from anyone: decoded, checked, folded twice, and compared with the oracle.
#include <algorithm>
#include <vector>

#include "aggregation/reference.h"
#include "aggregation/refusal.h"
#include "base/check.h"
#include "tests/fuzz/laws.h"
#include "tests/fuzz/message_mutator.h"
#include "tests/fuzz/specs.h"
#include "tests/fuzz/targets.h"

namespace sheaf::fuzz {
namespace {

// The oracle is slow.
constexpr size_t kOracleInputMax = 4096;

bool IsPartial(const v1::Contribution& contribution) {
  return std::any_of(contribution.outputs().begin(), contribution.outputs().end(),
                     [](const v1::OutputValue& output) { return output.has_state(); });
}

}  // namespace

void RunContribution(std::string_view input) {
  v1::Contribution contribution;
  if (input.empty() || !contribution.ParseFromArray(input.data() + 1, static_cast<int>(input.size() - 1))) return;
  const v1::AggregateSpec& spec = SpecAt(static_cast<uint8_t>(input[0]));
  absl::StatusOr<RoundAccumulator> accumulator = RoundAccumulator::Create(spec);
  if (!accumulator.ok()) return;
  const absl::StatusOr<ValidContribution> valid = accumulator->Validate(contribution);
  if (!valid.ok()) {
    SHEAF_CHECK(RefusalOf(valid.status()).kind != RefusalKind::kUnspecified, "no kind: {}", valid.status().ToString());
    return CheckRefusal(valid.status());
  }
  accumulator->Accumulate(*valid);
  accumulator->Accumulate(*valid);
  SHEAF_CHECK(accumulator->num_contributions() == 2 && accumulator->num_clients() == 2 * valid->num_clients(),
              "counts");
  CheckState(spec, *accumulator, IsPartial(contribution) ? Provenance::kStates : Provenance::kValues);
  if (IsPartial(contribution) || !IsExact(spec) || input.size() > kOracleInputMax) return;
  const std::vector<v1::Contribution> twice(2, contribution);
  CheckSameReport(accumulator->Report(), ReferenceAggregate(spec, twice));
}

size_t MutateContribution(uint8_t* data, size_t size, size_t size_max, unsigned seed) {
  return MutateSerialised(v1::Contribution::default_instance(), 1, data, size, size_max, seed);
}

}  // namespace sheaf::fuzz
