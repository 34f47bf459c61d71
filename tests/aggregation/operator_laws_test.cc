// Every row of the operator table against the laws and the oracle, over random trials: every dtype it takes, every
// numerics, every modifier.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/aggregation/float_bounds.h"
#include "tests/aggregation/values.h"
#include "tests/conformance/operator_suite.h"

namespace sheaf {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(SHEAF_SANITIZE_THREAD)
constexpr int kTrials = 50;
#else
constexpr int kTrials = 2000;
#endif

bool IsFloat(v1::DType dtype) { return dtype == v1::FLOAT32 || dtype == v1::FLOAT64; }

// Sums of floats in plain floating point; all else is exact.
bool NeedsBounds(const Operator& op, v1::DType dtype, v1::Numerics numerics) {
  return numerics != v1::EXACT && op.reduction == Reduction::kSum && IsFloat(dtype);
}

OperatorTrial RandomTrial(const Operator& op, v1::DType dtype, v1::Numerics numerics, Random& random) {
  OperatorTrial trial;
  trial.spec = RandomSpec(op, dtype, numerics, random);
  for (uint64_t n = random.Below(7); n > 0; --n) trial.contributions.push_back(RandomContribution(trial.spec, random));
  if (NeedsBounds(op, dtype, numerics) && MayOverflow(trial)) {
    trial.spec.mutable_outputs(0)->set_non_finite(v1::PROPAGATE_NON_FINITE);
  }
  return trial;
}

// The number of trials.
int CheckOperator(const Operator& op, v1::DType dtype, v1::Numerics numerics) {
  OperatorSuite suite;
  if (NeedsBounds(op, dtype, numerics)) suite = {.compare = WithinFloatBounds, .order_may_show = true};
  const absl::Status status =
      suite.CheckMany(kTrials, [&](Random& random) { return RandomTrial(op, dtype, numerics, random); });
  INFO(op.symbol << " " << v1::DType_Name(dtype) << " " << v1::Numerics_Name(numerics));
  CHECK(status.ToString() == "OK");
  return kTrials;
}

int CheckAllOperators(v1::Numerics numerics) {
  int trials = 0;
  for (const Operator& op : Operators()) {
    for (const v1::DType dtype : {v1::FLOAT32, v1::FLOAT64, v1::INT32, v1::INT64, v1::UINT64}) {
      if (!IsFloat(dtype) && !op.takes_integers()) continue;
      if (numerics == v1::F32 && dtype == v1::FLOAT64 && op.reduction == Reduction::kSum) continue;
      trials += CheckOperator(op, dtype, numerics);
    }
  }
  fmt::print("{}: {} trials, {} for each operator and dtype\n", v1::Numerics_Name(numerics), trials, kTrials);
  return trials;
}

TEST_CASE("EXACT: every operator and dtype obeys its laws and equals the oracle to the bit, in 2,000 trials each") {
  CHECK(CheckAllOperators(v1::EXACT) == 62 * kTrials);
}

TEST_CASE("F64: sums of floats are within their bound, all else to the bit, in 2,000 trials each") {
  CHECK(CheckAllOperators(v1::F64) == 62 * kTrials);
}

TEST_CASE("F32: sums of floats are within their bound, all else to the bit, in 2,000 trials each") {
  CHECK(CheckAllOperators(v1::F32) == 51 * kTrials);
}

TEST_CASE("Outputs of one round do not mix") {
  v1::AggregateSpec spec;
  *spec.add_outputs() = AnOutput("weighted_coordinate_mean", v1::FLOAT32, {100, 3}, "rows");
  spec.mutable_outputs(0)->set_index_dims(1);
  *spec.add_outputs() = AnOutput("weighted_mean", v1::FLOAT32, {3}, "bias");
  const v1::AggregateSpec rows = ASpec(spec.outputs(0)), bias = ASpec(spec.outputs(1));
  const absl::Status status = OperatorSuite().CheckMany(100, [&](Random& random) {
    OperatorTrial trial{.spec = spec};
    for (int i = 0; i < 5; ++i) {
      v1::Contribution contribution = RandomContribution(rows, random);
      contribution.mutable_outputs(0)->set_name("rows");
      *contribution.add_outputs() = RandomContribution(bias, random).outputs(0);
      contribution.mutable_outputs(1)->set_name("bias");
      trial.contributions.push_back(contribution);
    }
    return trial;
  });
  REQUIRE(status.ToString() == "OK");
}

TEST_CASE("Blocks and rows of any width are summed alike") {
  for (const int64_t width : {1, 7, 8, 500, 1023, 1024, 1025, 3000}) {
    for (const v1::DType dtype : {v1::FLOAT32, v1::FLOAT64, v1::INT64}) {
      for (const v1::AggregateSpec& spec : {ASpec("slices_sum", dtype, {5, width}), ASpec("sum", dtype, {width})}) {
        INFO(spec.ShortDebugString());
        const absl::Status status = OperatorSuite().CheckMany(1, [&](Random& random) {
          OperatorTrial trial{.spec = spec};
          for (int i = 0; i < 4; ++i) trial.contributions.push_back(RandomContribution(spec, random));
          return trial;
        });
        REQUIRE(status.ToString() == "OK");
      }
    }
  }
}

}  // namespace
}  // namespace sheaf
