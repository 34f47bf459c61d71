#include "server/threads/aggregation_pool.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "aggregation/round_accumulator.h"
#include "base/random.h"

namespace sheaf {
namespace {

TEST_CASE("Every part of a loop runs exactly once, however many helpers there are") {
  for (const int num_helpers : {0, 1, 3}) {
    AggregationPool pool(num_helpers);
    for (int n = 0; n < 200; ++n) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(n));
      pool.Run(n, [&](int part) { ++runs[static_cast<size_t>(part)]; });
      for (const std::atomic<int>& count : runs) REQUIRE(count == 1);
    }
  }
}

TEST_CASE("A tensor folded in parts has the bits of one folded at once") {
  constexpr int64_t kElements = 700'000;  // Three stripes.
  v1::AggregateSpec spec;
  v1::OutputSpec& output = *spec.add_outputs();
  output.set_name("w");
  output.set_operator_("weighted_mean");
  output.set_dtype(v1::FLOAT32);
  output.add_dense_shape(kElements);
  AggregationPool pool(3);
  SeededRandom random(1);
  RoundAccumulator in_parts = RoundAccumulator::Create(spec).value(), at_once = RoundAccumulator::Create(spec).value();
  for (int i = 0; i < 4; ++i) {
    std::vector<float> values(kElements);
    for (float& value : values) value = static_cast<float>(random.Fraction() - 0.5);
    v1::Contribution contribution;
    contribution.set_weight(static_cast<float>(i + 1) / 3);
    contribution.add_outputs()->set_name("w");
    v1::Tensor& tensor = *contribution.mutable_outputs(0)->mutable_dense();
    tensor.set_dtype(v1::FLOAT32);
    tensor.add_shape(kElements);
    tensor.set_data(values.data(), values.size() * sizeof(float));
    const ValidContribution valid = in_parts.Validate(contribution).value();
    in_parts.Accumulate(valid, pool);
    at_once.Accumulate(valid);
  }
  REQUIRE(in_parts.Serialize() == at_once.Serialize());
  REQUIRE(in_parts.Report().value().tensors.at(0).data == at_once.Report().value().tensors.at(0).data);
}

}  // namespace
}  // namespace sheaf
