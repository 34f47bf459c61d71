// Every row of the operator table against the laws and the oracle, over random cases; and what single operators mean.
#include "aggregation/operators.h"

#include <catch2/catch.hpp>

#include "tests/aggregation/values.h"
#include "tests/conformance/operator_suite.h"

namespace sheaf {
namespace {

constexpr int kCasesEach = 500;

// A small output of this operator: any shape it takes, any modifiers.
v1::AggregateSpec RandomSpec(const Operator& op, v1::DType dtype, Random& random) {
  std::vector<int64_t> shape(random.Below(4));
  if (op.default_index_dims > 0 && shape.empty()) shape.resize(1);
  for (int64_t& size : shape) size = random.Chance(0.05) ? 0 : 1 + static_cast<int64_t>(random.Below(5));
  v1::OutputSpec output = AnOutput(std::string(op.symbol), dtype, shape);
  if (op.operand == Operand::kKeyed) output.set_key_type(random.Chance(0.5) ? v1::STRING_KEYS : v1::INT64_KEYS);
  if (op.operand != Operand::kDense) {
    if (op.operand == Operand::kSparse && random.Chance(0.5) && !shape.empty())
      output.set_index_dims(1 + static_cast<int>(random.Below(shape.size())));
    if (random.Chance(0.3)) output.set_min_contributors(static_cast<int64_t>(random.Below(4)));
    if (random.Chance(0.3) && !op.releases_dense) output.set_drop_zeros(true);
  }
  const bool is_float = dtype == v1::FLOAT32 || dtype == v1::FLOAT64;
  if (is_float && random.Chance(0.3)) output.set_non_finite(v1::PROPAGATE_NON_FINITE);
  return ASpec(output);
}

void CheckRandomCases(const Operator& op, v1::DType dtype) {
  for (int seed = 0; seed < kCasesEach; ++seed) {
    SeededRandom random(static_cast<uint64_t>(seed));
    const v1::AggregateSpec spec = RandomSpec(op, dtype, random);
    std::vector<v1::Contribution> contributions;
    for (uint64_t n = random.Below(7); n > 0; --n) contributions.push_back(RandomContribution(spec, random));
    INFO(op.symbol << " " << v1::DType_Name(dtype) << " seed " << seed << ": " << spec.ShortDebugString());
    CheckOperatorLaws(spec, contributions, random);
  }
}

TEST_CASE("Every operator obeys its laws and equals the oracle, to the last bit") {
  for (const Operator& op : Operators()) {
    for (const v1::DType dtype : {v1::FLOAT32, v1::FLOAT64, v1::INT32, v1::INT64, v1::UINT64}) {
      if ((dtype == v1::FLOAT32 || dtype == v1::FLOAT64) || op.takes_integers()) CheckRandomCases(op, dtype);
    }
  }
}

TEST_CASE("Outputs of one round do not mix") {
  v1::AggregateSpec spec;
  *spec.add_outputs() = AnOutput("weighted_coordinate_mean", v1::FLOAT32, {100, 3}, "rows");
  spec.mutable_outputs(0)->set_index_dims(1);
  *spec.add_outputs() = AnOutput("weighted_mean", v1::FLOAT32, {3}, "bias");
  std::vector<v1::Contribution> contributions;
  SeededRandom random(1);
  for (int i = 0; i < 5; ++i) {
    v1::AggregateSpec rows = ASpec(spec.outputs(0)), bias = ASpec(spec.outputs(1));
    v1::Contribution contribution = RandomContribution(rows, random);
    contribution.mutable_outputs(0)->set_name("rows");
    *contribution.add_outputs() = RandomContribution(bias, random).outputs(0);
    contribution.mutable_outputs(1)->set_name("bias");
    contributions.push_back(contribution);
  }
  CheckOperatorLaws(spec, contributions, random);
}

TEST_CASE("Blocks and rows of any width are summed alike") {
  SeededRandom random(3);
  for (const int64_t width : {1, 7, 8, 500, 1023, 1024, 1025, 3000}) {
    for (const v1::DType dtype : {v1::FLOAT32, v1::FLOAT64, v1::INT64}) {
      const v1::AggregateSpec slices = ASpec("slices_sum", dtype, {5, width});
      const v1::AggregateSpec dense = ASpec("sum", dtype, {width});
      std::vector<v1::Contribution> rows, tensors;
      for (int i = 0; i < 4; ++i) {
        rows.push_back(RandomContribution(slices, random));
        tensors.push_back(RandomContribution(dense, random));
      }
      INFO(width << " " << v1::DType_Name(dtype));
      CheckOperatorLaws(slices, rows, random);
      CheckOperatorLaws(dense, tensors, random);
    }
  }
}

TEST_CASE("A sparse sum is over coordinates, not over the parts of the tensors") {
  const AggregateReport report =
      Aggregate(ASpec("sparse_sum", v1::FLOAT32, {10}),
                {Contribute(SparseFloats({1, 4, 7}, {1, 2, 3})), Contribute(SparseFloats({0, 4, 9}, {10, 20, 30}))});
  REQUIRE(ValuesOf<int64_t>(Find(report, "w.indices").data) == std::vector<int64_t>{0, 1, 4, 7, 9});
  REQUIRE(ValuesOf<float>(Find(report, "w.values").data) == std::vector<float>{10, 1, 22, 3, 30});
  REQUIRE(ValuesOf<int64_t>(Find(report, "w.dense_shape").data) == std::vector<int64_t>{10});
  REQUIRE(report.outputs[0].touched() == 5);
  REQUIRE(report.outputs[0].divisor() == "none");
}

TEST_CASE("A coordinate mean divides by those who touched the coordinate, a client mean by all") {
  const std::vector<v1::Contribution> contributions = {
      Contribute(SparseFloats({1, 2}, {6, 2})), Contribute(SparseFloats({1}, {2})), Contribute(SparseFloats({}, {})),
      Contribute(SparseFloats({}, {}))};
  const AggregateReport by_coordinate = Aggregate(ASpec("coordinate_mean", v1::FLOAT32, {10}), contributions);
  const AggregateReport by_client = Aggregate(ASpec("client_mean", v1::FLOAT32, {10}), contributions);
  REQUIRE(ValuesOf<float>(Find(by_coordinate, "w.values").data) == std::vector<float>{4, 2});
  REQUIRE(ValuesOf<float>(Find(by_client, "w.values").data) == std::vector<float>{2, 0.5f});
  REQUIRE(by_coordinate.outputs[0].divisor() == "contributions that touched the coordinate");
  REQUIRE(by_coordinate.outputs[0].divisor_value() == 0);
  REQUIRE(by_client.outputs[0].divisor() == "all contributions");
  REQUIRE(by_client.outputs[0].divisor_value() == 4);
}

TEST_CASE("Weights multiply values and their sum divides them") {
  const AggregateReport dense = Aggregate(ASpec("weighted_mean", v1::FLOAT32, {2}),
                                          {Contribute(Floats({1, 2}), 3), Contribute(Floats({5, 6}), 1)});
  REQUIRE(ValuesOf<float>(Find(dense, "w").data) == std::vector<float>{2, 3});
  REQUIRE(dense.outputs[0].divisor_value() == 4);
  const std::vector<v1::Contribution> sparse = {Contribute(SparseFloats({1}, {1}), 3),
                                                Contribute(SparseFloats({1, 2}, {5, 8}), 1)};
  const AggregateReport by_coordinate = Aggregate(ASpec("weighted_coordinate_mean", v1::FLOAT32, {10}), sparse);
  const AggregateReport by_client = Aggregate(ASpec("weighted_client_mean", v1::FLOAT32, {10}), sparse);
  REQUIRE(ValuesOf<float>(Find(by_coordinate, "w.values").data) == std::vector<float>{2, 8});
  REQUIRE(ValuesOf<float>(Find(by_client, "w.values").data) == std::vector<float>{2, 2});
}

TEST_CASE("A weight left at 0 means 1, and unweighted operators ignore weights") {
  const std::vector<v1::Contribution> contributions = {Contribute(Floats({1}), 0), Contribute(Floats({4}), 2)};
  REQUIRE(ValuesOf<float>(Find(Aggregate(ASpec("weighted_mean", v1::FLOAT32, {1}), contributions), "w").data) ==
          std::vector<float>{3});
  REQUIRE(ValuesOf<float>(Find(Aggregate(ASpec("mean", v1::FLOAT32, {1}), contributions), "w").data) ==
          std::vector<float>{2.5f});
}

TEST_CASE("A mean of no contributions is released as zeros") {
  REQUIRE(ValuesOf<float>(Find(Aggregate(ASpec("mean", v1::FLOAT32, {2}), {}), "w").data) == std::vector<float>{0, 0});
  REQUIRE(Find(Aggregate(ASpec("client_mean", v1::FLOAT32, {2}), {}), "w.values").data.empty());
}

TEST_CASE("Entries of one contribution at one coordinate are added and count once") {
  v1::OutputSpec output = AnOutput("coordinate_mean", v1::FLOAT32, {10});
  const std::vector<v1::Contribution> contributions = {Contribute(SparseFloats({2, 2, 5, 5}, {1, 1, 1, 1})),
                                                       Contribute(SparseFloats({2}, {10}))};
  REQUIRE(ValuesOf<float>(Find(Aggregate(ASpec(output), contributions), "w.values").data) == std::vector<float>{6, 2});
  output.set_min_contributors(2);
  const AggregateReport report = Aggregate(ASpec(output), contributions);
  REQUIRE(ValuesOf<int64_t>(Find(report, "w.indices").data) == std::vector<int64_t>{2});
  REQUIRE(report.outputs[0].touched() == 2);
  REQUIRE(report.outputs[0].released() == 1);
}

TEST_CASE("Sums that cancel to zero stay, unless zeros are dropped at release") {
  v1::OutputSpec output = AnOutput("sparse_sum", v1::FLOAT32, {10});
  const std::vector<v1::Contribution> contributions = {Contribute(SparseFloats({3, 4}, {1, -0.0f})),
                                                       Contribute(SparseFloats({3}, {-1}))};
  REQUIRE(ValuesOf<int64_t>(Find(Aggregate(ASpec(output), contributions), "w.indices").data) ==
          std::vector<int64_t>{3, 4});
  output.set_drop_zeros(true);
  REQUIRE(Find(Aggregate(ASpec(output), contributions), "w.indices").data.empty());
}

TEST_CASE("sparse_sum_to_dense releases zeros where nobody touched and where too few did") {
  v1::OutputSpec output = AnOutput("sparse_sum_to_dense", v1::FLOAT32, {3});
  v1::SparseTensor one = SparseFloats({0, 2}, {1, 2}), two = SparseFloats({2}, {3});
  one.set_dense_shape(0, 3);
  two.set_dense_shape(0, 3);
  const std::vector<v1::Contribution> contributions = {Contribute(one), Contribute(two)};
  REQUIRE(ValuesOf<float>(Find(Aggregate(ASpec(output), contributions), "w").data) == std::vector<float>{1, 0, 5});
  output.set_min_contributors(2);
  REQUIRE(ValuesOf<float>(Find(Aggregate(ASpec(output), contributions), "w").data) == std::vector<float>{0, 0, 5});
}

TEST_CASE("Integer sums never wrap: one that does not fit is named") {
  std::vector<int32_t> values = {3000000, 1};
  RoundAccumulator sum = Accumulator(ASpec("sum", v1::INT32, {2}));
  for (int i = 0; i < 1000; ++i) REQUIRE(Fold(sum, Contribute(ATensor(v1::INT32, {2}, BytesOf(values)))).ok());
  const absl::Status status = sum.Report().status();
  REQUIRE(status.code() == absl::StatusCode::kOutOfRange);
  REQUIRE(std::string(status.message()) == "w[0]: the sum does not fit into INT32; declare a wider dtype");
  values = {-3000000, 1};
  for (int i = 0; i < 1000; ++i) REQUIRE(Fold(sum, Contribute(ATensor(v1::INT32, {2}, BytesOf(values)))).ok());
  REQUIRE(ValuesOf<int32_t>(Find(*sum.Report(), "w").data) == std::vector<int32_t>{0, 2000});
}

TEST_CASE("Coordinates far apart in a space of 2^62 are told apart") {
  const std::vector<int64_t> shape = {int64_t{1} << 31, int64_t{1} << 31};
  const int64_t far = (int64_t{1} << 31) - 1;
  const v1::SparseTensor value =
      Sparse(shape, ATensor(v1::INT64, {2, 2}, BytesOf(std::vector<int64_t>{far, far, 0, far})), Floats({1, 2}));
  const AggregateReport report =
      Aggregate(ASpec("sparse_sum", v1::FLOAT32, shape), {Contribute(value), Contribute(value)});
  REQUIRE(ValuesOf<int64_t>(Find(report, "w.indices").data) == std::vector<int64_t>{0, far, far, far});
  REQUIRE(ValuesOf<float>(Find(report, "w.values").data) == std::vector<float>{4, 2});
}

}  // namespace
}  // namespace sheaf
