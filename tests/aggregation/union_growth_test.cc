// What is told of how sparse a round is.
#include "aggregation/sparse/union_growth.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "tests/aggregation/values.h"

namespace sheaf {
namespace {

// Contributions that each bring ten rows, of which the last nine are the next one's, too.
v1::FoldCounters Folded(const v1::AggregateSpec& spec, int contributions, int restart_after = -1) {
  RoundAccumulator sum = Accumulator(spec);
  const std::vector<int64_t> shape(spec.outputs(0).dense_shape().begin(), spec.outputs(0).dense_shape().end());
  for (int first = 0; first < contributions; ++first) {
    if (first == restart_after) {
      absl::StatusOr<RoundAccumulator> restored = RoundAccumulator::Restore(spec, sum.Serialize());
      REQUIRE(restored.ok());
      sum = *std::move(restored);
    }
    std::vector<int64_t> rows;
    for (int64_t row = first; row < first + 10; ++row) rows.push_back(row);
    const int64_t width = shape.size() > 1 ? shape[1] : 1;
    std::vector<int64_t> values_shape = {10};
    if (shape.size() > 1) values_shape.push_back(width);
    const std::vector<float> ones(static_cast<size_t>(10 * width), 1.0F);
    const auto valid = sum.Validate(Contribute(
        Sparse(shape, ATensor(v1::INT64, {10, 1}, BytesOf(rows)), ATensor(v1::FLOAT32, values_shape, BytesOf(ones)))));
    INFO(valid.status().ToString());
    REQUIRE(valid.ok());
    sum.Accumulate(*valid);
  }
  absl::StatusOr<AggregateRelease> release = std::move(sum).Release();
  REQUIRE(release.ok());
  REQUIRE(release->folds.size() == 1);
  return release->folds[0];
}

TEST_CASE("A round of row slices says how many rows came, and how their union grew") {
  const v1::FoldCounters counters = Folded(ASpec("slices_sum", v1::FLOAT32, {1000, 3}), 6);
  CHECK(counters.contributions() == 6);
  CHECK(counters.rows() == 60);
  REQUIRE(counters.growth_size() == 6);
  for (int i = 0; i < 6; ++i) {
    CHECK(counters.growth(i).contributions() == i + 1);
    CHECK(counters.growth(i).touched() == 10 + i);
  }
}

TEST_CASE("Of single values, which wait in buckets, only their number is known before the end") {
  const v1::FoldCounters counters = Folded(ASpec("sparse_sum", v1::FLOAT32, {1000}), 6);
  CHECK(counters.contributions() == 6);
  CHECK(counters.rows() == 60);
  CHECK(counters.growth().empty());
}

TEST_CASE("After a restart what came before is not known, and no growth is told") {
  const v1::FoldCounters counters = Folded(ASpec("slices_sum", v1::FLOAT32, {1000, 3}), 6, 4);
  CHECK(counters.contributions() == 2);
  CHECK(counters.rows() == 20);
  CHECK(counters.growth().empty());
}

TEST_CASE("However many contributions there are, the growth is told in a hundred points") {
  UnionGrowth growth;
  for (int i = 1; i <= 1'000'000; ++i) growth.Add(1, 1, i);
  growth.Add(500'000'000, 1, 2'000'000);
  v1::FoldCounters counters;
  growth.AddTo(counters);
  CHECK(counters.rows() == 1'000'001);
  CHECK(counters.growth_size() > 50);
  CHECK(counters.growth_size() <= 100);
  CHECK(counters.growth(counters.growth_size() - 1).touched() == 2'000'000);
}

}  // namespace
}  // namespace sheaf
