// What single operators mean, by example. All of them against the laws: operator_laws_test.cc.
#include "aggregation/operators.h"

#include <catch2/catch.hpp>
#include <limits>
#include <numeric>

#include "tests/aggregation/values.h"

namespace sheaf {
namespace {

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

TEST_CASE("Very many values at one coordinate overflow no digit of its sum") {
  // The first opens a bin, of whose digits the others fill as much as one value may.
  constexpr float kFirst = 0x1p-30f, kOther = 0x1.fffffep-14f;
  constexpr size_t kOthers = 20'000;
  RoundAccumulator sum = Accumulator(ASpec("sparse_sum", v1::FLOAT32, {10}));
  REQUIRE(Fold(sum, Contribute(SparseFloats({3}, {kFirst}))).ok());
  REQUIRE(sum.Report().ok());
  const std::vector<int64_t> indices(kOthers, 3);
  REQUIRE(Fold(sum, Contribute(SparseFloats(indices, std::vector<float>(kOthers, kOther)))).ok());
  const auto expected = static_cast<float>(double{kOther} * kOthers + double{kFirst});
  REQUIRE(ValuesOf<float>(Find(*sum.Report(), "w.values").data) == std::vector<float>{expected});
}

TEST_CASE("A mean that is rounded to a negative zero is dropped with the other zeros") {
  v1::OutputSpec output = AnOutput("client_mean", v1::FLOAT32, {10});
  const float smallest = std::numeric_limits<float>::denorm_min();
  const std::vector<v1::Contribution> contributions = {Contribute(SparseFloats({3, 4}, {-smallest, -3 * smallest})),
                                                       Contribute(SparseFloats({}, {})),
                                                       Contribute(SparseFloats({}, {}))};
  for (const v1::Numerics numerics : {v1::EXACT, v1::F64}) {
    v1::AggregateSpec spec = ASpec(output);
    spec.set_numerics(numerics);
    const NamedTensor kept = Find(Aggregate(spec, contributions), "w.values");
    REQUIRE(ValuesOf<float>(kept.data) == std::vector<float>{0, -smallest});
    spec.mutable_outputs(0)->set_drop_zeros(true);
    REQUIRE(ValuesOf<int64_t>(Find(Aggregate(spec, contributions), "w.indices").data) == std::vector<int64_t>{4});
  }
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
  REQUIRE(std::string(status.message()) == "w[0]: the sum does not fit into INT32; declare INT64");
  values = {-3000000, 1};
  for (int i = 0; i < 1000; ++i) REQUIRE(Fold(sum, Contribute(ATensor(v1::INT32, {2}, BytesOf(values)))).ok());
  REQUIRE(ValuesOf<int32_t>(Find(*sum.Report(), "w").data) == std::vector<int32_t>{0, 2000});
}

// The value twice, at the second of two coordinates or keys, or in the second element of a row.
std::vector<v1::Contribution> Twice(const std::string& op, v1::DType dtype, const std::string& zero_and_value) {
  v1::Contribution contribution;
  if (op == "keyed_sum") {
    v1::OutputValue& value = *contribution.add_outputs();
    value.set_name("w");
    *value.mutable_keyed()->mutable_int_keys() = ATensor(v1::INT64, {2}, BytesOf<int64_t>({7, 8}));
    *value.mutable_keyed()->mutable_values() = ATensor(dtype, {2}, zero_and_value);
  } else if (FindOperator(Operators(), op)->operand == Operand::kDense) {
    contribution = Contribute(ATensor(dtype, {2}, zero_and_value));
  } else if (op == "slices_sum") {
    contribution = Contribute(
        Sparse({3, 2}, ATensor(v1::INT64, {1, 1}, BytesOf<int64_t>({1})), ATensor(dtype, {1, 2}, zero_and_value)));
  } else {
    contribution = Contribute(
        Sparse({2}, ATensor(v1::INT64, {2, 1}, BytesOf<int64_t>({0, 1})), ATensor(dtype, {2}, zero_and_value)));
  }
  return {contribution, contribution};
}

std::string ZeroAnd(v1::DType dtype, double value) {
  if (dtype == v1::FLOAT32) return BytesOf<float>({0, static_cast<float>(value)});
  return BytesOf<double>({0, value});
}

absl::StatusOr<AggregateReport> SumOfTwo(const std::string& op, v1::DType dtype, v1::Numerics numerics,
                                         v1::NonFinitePolicy policy, const std::string& zero_and_value) {
  v1::OutputSpec output =
      AnOutput(op, dtype, op == "slices_sum" ? std::vector<int64_t>{3, 2} : std::vector<int64_t>{2});
  if (op == "keyed_sum") {
    output.clear_dense_shape();
    output.set_key_type(v1::INT64_KEYS);
  }
  output.set_non_finite(policy);
  v1::AggregateSpec spec = ASpec(output);
  spec.set_numerics(numerics);
  RoundAccumulator sum = Accumulator(spec);
  for (const v1::Contribution& contribution : Twice(op, dtype, zero_and_value)) {
    const absl::Status status = Fold(sum, contribution);
    if (!status.ok()) return status;
  }
  return sum.Report();
}

TEST_CASE("A sum of floats that does not fit fails naming the place, unless infinities propagate") {
  for (const char* op : {"sum", "sparse_sum", "sparse_sum_to_dense", "slices_sum", "keyed_sum"}) {
    for (const v1::DType dtype : {v1::FLOAT32, v1::FLOAT64}) {
      for (const v1::Numerics numerics : {v1::EXACT, v1::F64, v1::F32}) {
        if (numerics == v1::F32 && dtype == v1::FLOAT64) continue;
        for (const double sign : {1.0, -1.0}) {
          INFO(op << " " << v1::DType_Name(dtype) << " " << v1::Numerics_Name(numerics) << " " << sign);
          const std::string values = ZeroAnd(dtype, sign * (dtype == v1::FLOAT32 ? 3e38 : 1.7e308));
          const absl::StatusOr<AggregateReport> refused =
              SumOfTwo(op, dtype, numerics, v1::NON_FINITE_POLICY_UNSPECIFIED, values);
          const std::string place = std::string(op) == "keyed_sum"    ? "w[8]"
                                    : std::string(op) == "slices_sum" ? "w[1, 1]"
                                                                      : "w[1]";
          CHECK(refused.status().code() == absl::StatusCode::kOutOfRange);
          CHECK(std::string(refused.status().message()).rfind(place + ": the sum does not fit into FLOAT", 0) == 0);
          const absl::StatusOr<AggregateReport> report =
              SumOfTwo(op, dtype, numerics, v1::PROPAGATE_NON_FINITE, values);
          REQUIRE(report.ok());
          const bool is_whole = std::string(op) == "sum" || std::string(op) == "sparse_sum_to_dense";
          const std::string& data = Find(*report, is_whole ? "w" : "w.values").data;
          const double found =
              dtype == v1::FLOAT32 ? static_cast<double>(ValuesOf<float>(data).back()) : ValuesOf<double>(data).back();
          CHECK(found == sign * std::numeric_limits<double>::infinity());
        }
      }
    }
  }
}

TEST_CASE("A mean that fits is released under EXACT; under F64 and F32 a sum that overflows on its way fails") {
  for (const char* op : {"mean", "weighted_mean", "coordinate_mean", "weighted_coordinate_mean", "client_mean",
                         "weighted_client_mean"}) {
    INFO(op);
    const auto mean_of = [&](v1::DType dtype, v1::Numerics numerics, double value) {
      return SumOfTwo(op, dtype, numerics, v1::REJECT_NON_FINITE, ZeroAnd(dtype, value));
    };
    const bool is_dense = std::string(op) == "mean" || std::string(op) == "weighted_mean";
    const char* const name = is_dense ? "w" : "w.values";
    const absl::StatusOr<AggregateReport> wide = mean_of(v1::FLOAT64, v1::EXACT, 1.7e308);
    REQUIRE(wide.ok());
    CHECK(ValuesOf<double>(Find(*wide, name).data).back() == 1.7e308);
    for (const v1::Numerics numerics : {v1::EXACT, v1::F64}) {
      const absl::StatusOr<AggregateReport> narrow = mean_of(v1::FLOAT32, numerics, 3e38);
      REQUIRE(narrow.ok());
      CHECK(ValuesOf<float>(Find(*narrow, name).data).back() == 3e38f);
    }
    CHECK(mean_of(v1::FLOAT32, v1::F32, 3e38).status().ToString() ==
          "OUT_OF_RANGE: w[1]: the mean does not fit into FLOAT32, or its sum left the range of F32 on the way; use "
          "numerics EXACT, or declare FLOAT64, or contribute smaller numbers");
    CHECK(mean_of(v1::FLOAT64, v1::F64, -1.7e308).status().code() == absl::StatusCode::kOutOfRange);
  }
}

TEST_CASE("What is said of a sum that does not fit would help") {
  const int64_t most = std::numeric_limits<int64_t>::max();
  const auto said = [](v1::DType dtype, const std::string& values) {
    return std::string(SumOfTwo("sum", dtype, v1::EXACT, v1::NON_FINITE_POLICY_UNSPECIFIED, values).status().message());
  };
  CHECK(said(v1::INT64, BytesOf<int64_t>({0, most})) ==
        "w[1]: the sum does not fit into INT64; no integer is wider: contribute smaller numbers, or FLOAT64, whose sum "
        "is rounded");
  CHECK(said(v1::UINT64, BytesOf<uint64_t>({0, uint64_t{1} << 63})) ==
        "w[1]: the sum does not fit into UINT64; no integer is wider: contribute smaller numbers, or FLOAT64, whose "
        "sum is rounded");
  CHECK(said(v1::FLOAT32, BytesOf<float>({0, 3e38f})) ==
        "w[1]: the sum does not fit into FLOAT32; declare FLOAT64, or contribute smaller numbers");
  CHECK(said(v1::FLOAT64, BytesOf<double>({0, 1.7e308})) ==
        "w[1]: the sum does not fit into FLOAT64; no dtype is wider: contribute smaller numbers");
}

TEST_CASE("Where nothing fits, the first place is named without looking at every place for each") {
  constexpr int64_t kCoordinates = 1 << 18;
  v1::OutputSpec output = AnOutput("sparse_sum", v1::FLOAT32, {kCoordinates});
  std::vector<int64_t> indices(kCoordinates);
  std::iota(indices.begin(), indices.end(), 0);
  const v1::Tensor values = ATensor(v1::FLOAT32, {kCoordinates}, BytesOf(std::vector<float>(kCoordinates, 3e38f)));
  const v1::SparseTensor sparse =
      Sparse({kCoordinates}, ATensor(v1::INT64, {kCoordinates, 1}, BytesOf(indices)), values);
  RoundAccumulator sum = Accumulator(ASpec(output));
  for (int i = 0; i < 2; ++i) REQUIRE(Fold(sum, Contribute(sparse)).ok());
  CHECK(std::string(sum.Report().status().message()).rfind("w[0]: the sum does not fit into FLOAT32", 0) == 0);
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

TEST_CASE("Rows of no values take no room for those that could come, also where the result is dense") {
  for (const char* symbol : {"slices_sum", "coordinate_mean"}) {
    v1::OutputSpec output = AnOutput(symbol, v1::FLOAT32, {int64_t{1} << 62, 0});
    output.set_index_dims(1);
    output.set_form(v1::DENSE);
    const v1::AggregateSpec spec = ASpec(output);
    RoundAccumulator sum = Accumulator(spec);
    const v1::Tensor row = ATensor(v1::INT64, {1}, BytesOf<int64_t>({(int64_t{1} << 62) - 1}));
    const v1::Tensor nothing = ATensor(v1::FLOAT32, {1, 0}, "");
    REQUIRE(Fold(sum, Contribute(Sparse({int64_t{1} << 62, 0}, row, nothing))).ok());
    CHECK(sum.memory_bytes() < 1 << 20);
    const auto restored = RoundAccumulator::Restore(spec, sum.Serialize());
    REQUIRE(restored.ok());
    const absl::StatusOr<AggregateReport> report = restored->Report();
    REQUIRE(report.ok());
    CHECK(Find(*report, "w").data.empty());
    CHECK(report->outputs.front().released() == 1);
  }
}

}  // namespace
}  // namespace sheaf
