// What a contribution may look like, and how one that may not is refused: in a sentence, with nothing folded.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "aggregation/refusal.h"
#include "tests/aggregation/values.h"

namespace sheaf {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Refused with this code and message, and the state is as it was.
void CheckRefused(const v1::AggregateSpec& spec, const v1::Contribution& contribution, const std::string& message,
                  absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  RoundAccumulator accumulator = Accumulator(spec);
  const std::string before = accumulator.Serialize();
  const absl::Status status = Fold(accumulator, contribution);
  REQUIRE(std::string(status.message()) == message);
  REQUIRE(status.code() == code);
  // What others than its worker may read says what kind of error it is.
  REQUIRE(RefusalOf(status).kind != RefusalKind::kUnspecified);
  REQUIRE(accumulator.Serialize() == before);
}

v1::AggregateSpec SparseSpec() { return ASpec("sparse_sum", v1::FLOAT32, {10}); }
v1::AggregateSpec DenseSpec() { return ASpec("sum", v1::FLOAT32, {2}); }

v1::Tensor Indices(const std::vector<int64_t>& shape, const std::vector<int64_t>& values) {
  return ATensor(v1::INT64, shape, BytesOf(values));
}

TEST_CASE("Index rows come in any order, as [n] or [n, 1], in 32 or 64 bits") {
  const std::vector<int32_t> narrow = {7, 1, 4};
  const std::vector<int64_t> wide = {7, 1, 4};
  for (const v1::Tensor& indices :
       {ATensor(v1::INT32, {3}, BytesOf(narrow)), ATensor(v1::INT32, {3, 1}, BytesOf(narrow)), Indices({3}, wide),
        Indices({3, 1}, wide)}) {
    const AggregateReport report = Aggregate(SparseSpec(), {Contribute(Sparse({10}, indices, Floats({1, 2, 3})))});
    REQUIRE(ValuesOf<int64_t>(Find(report, "w.indices").data) == std::vector<int64_t>{1, 4, 7});
    REQUIRE(ValuesOf<float>(Find(report, "w.values").data) == std::vector<float>{2, 3, 1});
  }
}

TEST_CASE("A contribution that touches nothing is valid and counts as a client") {
  const AggregateReport report =
      Aggregate(SparseSpec(), {Contribute(SparseFloats({}, {})), Contribute(SparseFloats({}, {}))});
  REQUIRE(report.num_clients == 2);
  REQUIRE(Find(report, "w.indices").shape == std::vector<int64_t>{0, 1});
  REQUIRE(Find(report, "w.values").shape == std::vector<int64_t>{0});
}

TEST_CASE("A scalar may be dense or sparse") {
  REQUIRE(ValuesOf<float>(Find(Aggregate(ASpec("sum", v1::FLOAT32, {}),
                                         {Contribute(ATensor(v1::FLOAT32, {}, BytesOf<float>({2})))}),
                               "w")
                              .data) == std::vector<float>{2});
  const v1::SparseTensor scalar = Sparse({}, ATensor(v1::INT64, {2, 0}, ""), Floats({2, 3}));
  const AggregateReport report = Aggregate(ASpec("sparse_sum", v1::FLOAT32, {}), {Contribute(scalar)});
  REQUIRE(Find(report, "w.indices").shape == std::vector<int64_t>{1, 0});
  REQUIRE(ValuesOf<float>(Find(report, "w.values").data) == std::vector<float>{5});
}

TEST_CASE("A dimension of size zero holds no coordinate, or rows of nothing") {
  const v1::SparseTensor nowhere = Sparse({0, 2}, ATensor(v1::INT64, {0, 2}, ""), Floats({}));
  REQUIRE(Find(Aggregate(ASpec("sparse_sum", v1::FLOAT32, {0, 2}), {Contribute(nowhere)}), "w.indices").data.empty());
  CheckRefused(ASpec("sparse_sum", v1::FLOAT32, {0, 2}),
               Contribute(Sparse({0, 2}, Indices({1, 2}, {0, 1}), Floats({1}))),
               "output 'w': indices[0, 0] is 0, outside [0, 0)");
  const v1::SparseTensor nothing = Sparse({3, 0}, Indices({2}, {2, 0}), ATensor(v1::FLOAT32, {2, 0}, ""));
  const AggregateReport report = Aggregate(ASpec("slices_sum", v1::FLOAT32, {3, 0}), {Contribute(nothing)});
  REQUIRE(Find(report, "w.values").shape == std::vector<int64_t>{2, 0});
}

TEST_CASE("Indices out of range are refused, above and below") {
  CheckRefused(SparseSpec(), Contribute(SparseFloats({1, 10}, {1, 2})),
               "output 'w': indices[1, 0] is 10, outside [0, 10)");
  CheckRefused(SparseSpec(), Contribute(SparseFloats({-1}, {1})), "output 'w': indices[0, 0] is -1, outside [0, 10)");
  CheckRefused(ASpec("sparse_sum", v1::FLOAT32, {5, 5}),
               Contribute(Sparse({5, 5}, Indices({1, 2}, {4, 5}), Floats({1}))),
               "output 'w': indices[0, 1] is 5, outside [0, 5)");
}

TEST_CASE("Ragged, mistyped and misshapen tensors are refused") {
  CheckRefused(SparseSpec(), Contribute(SparseFloats({1, 2, 3}, {1, 2})),
               "output 'w': values have shape [2], expected [3] (one row per index)");
  CheckRefused(SparseSpec(), Contribute(Sparse({10}, ATensor(v1::INT64, {2}, "12345678"), Floats({1, 2}))),
               "output 'w': the tensor of indices has 8 bytes, but its shape [2] of INT64 takes 16");
  CheckRefused(SparseSpec(), Contribute(Sparse({10}, Indices({1, 2}, {1, 2}), Floats({1}))),
               "output 'w': indices have shape [1, 2], expected [n, 1]");
  CheckRefused(SparseSpec(), Contribute(Sparse({10}, Floats({1}), Floats({1}))),
               "output 'w': the tensor of indices is FLOAT32, expected INT64 or INT32");
  CheckRefused(SparseSpec(), Contribute(Sparse({10}, Indices({1}, {1}), ATensor(v1::FLOAT64, {1}, "12345678"))),
               "output 'w': the tensor of values is FLOAT64, expected FLOAT32");
  CheckRefused(SparseSpec(), Contribute(Sparse({11}, Indices({1}, {1}), Floats({1}))),
               "output 'w': dense_shape is [11], expected [10]");
  CheckRefused(SparseSpec(), Contribute(Sparse({10}, v1::Tensor(), v1::Tensor())),
               "output 'w': indices have shape [], expected [n, 1]");
  CheckRefused(DenseSpec(), Contribute(Floats({1, 2, 3})), "output 'w': the tensor has shape [3], expected [2]");
  CheckRefused(DenseSpec(), Contribute(ATensor(v1::INT32, {2}, "12345678")),
               "output 'w': the tensor is INT32, expected FLOAT32");
  CheckRefused(DenseSpec(), Contribute(ATensor(v1::FLOAT32, {2}, "1234567")),
               "output 'w': the tensor has 7 bytes, but its shape [2] of FLOAT32 takes 8");
}

TEST_CASE("Shapes that are negative or overflow are refused") {
  CheckRefused(SparseSpec(), Contribute(Sparse({10}, ATensor(v1::INT64, {-1}, ""), Floats({}))),
               "output 'w': the shape [-1] of the tensor of indices has a negative size");
  const int64_t huge = int64_t{1} << 61;
  CheckRefused(SparseSpec(), Contribute(Sparse({10}, ATensor(v1::INT64, {huge}, ""), ATensor(v1::FLOAT32, {huge}, ""))),
               "output 'w': the tensor of indices has 0 bytes, but its shape [2305843009213693952] of INT64 takes more "
               "than there can be");
  // Index rows without columns take no bytes, but their values would.
  CheckRefused(ASpec("sparse_sum", v1::FLOAT32, {}),
               Contribute(Sparse({}, ATensor(v1::INT64, {huge, 0}, ""), ATensor(v1::FLOAT32, {huge}, ""))),
               "output 'w': the tensor of values has 0 bytes, but its shape [2305843009213693952] of FLOAT32 takes "
               "more than there can be");
}

TEST_CASE("NaN and infinities are refused with their position") {
  CheckRefused(DenseSpec(), Contribute(Floats({1, kNan})), "output 'w': w[1] is NaN; only finite values are taken");
  CheckRefused(DenseSpec(), Contribute(Floats({-kInfinity, 1})),
               "output 'w': w[0] is -inf; only finite values are taken");
  CheckRefused(SparseSpec(), Contribute(SparseFloats({3, 8}, {1, kInfinity})),
               "output 'w': values row 1, that is w[8], is inf; only finite values are taken");
  CheckRefused(
      ASpec("slices_sum", v1::FLOAT64, {4, 2}),
      Contribute(Sparse({4, 2}, Indices({1}, {3}), ATensor(v1::FLOAT64, {1, 2}, BytesOf<double>({1, std::nan("")})))),
      "output 'w': values row 0, that is w[3, 1], is NaN; only finite values are taken");
}

TEST_CASE("NaN and infinities propagate where the spec says so") {
  v1::OutputSpec output = AnOutput("sum", v1::FLOAT32, {4});
  output.set_non_finite(v1::PROPAGATE_NON_FINITE);
  const AggregateReport report = Aggregate(
      ASpec(output), {Contribute(Floats({kNan, kInfinity, kInfinity, 1})), Contribute(Floats({1, 1, -kInfinity, 1}))});
  const std::vector<float> sum = ValuesOf<float>(Find(report, "w").data);
  REQUIRE(std::isnan(sum[0]));
  REQUIRE(sum[1] == kInfinity);
  REQUIRE(std::isnan(sum[2]));
  REQUIRE(sum[3] == 2);
}

TEST_CASE("A dense operator refuses a sparse tensor, and the other way round") {
  CheckRefused(
      DenseSpec(), Contribute(SparseFloats({1}, {1})),
      "output 'w': operator 'sum' takes a dense tensor, the contribution holds a sparse tensor; a sparse tensor is one "
      "operand, its indices and values are never summed one by one: use a sparse operator");
  CheckRefused(SparseSpec(), Contribute(Floats({1, 2})),
               "output 'w': operator 'sparse_sum' takes a sparse tensor, the contribution holds a dense tensor");
  v1::Contribution empty;
  empty.add_outputs()->set_name("w");
  CheckRefused(DenseSpec(), empty, "output 'w': operator 'sum' takes a dense tensor, the contribution holds nothing");
}

TEST_CASE("Each output must be there exactly once") {
  v1::Contribution contribution = Contribute(Floats({1, 2}));
  CheckRefused(DenseSpec(), v1::Contribution(), "output 'w' is missing from the contribution");
  *contribution.add_outputs() = contribution.outputs(0);
  CheckRefused(DenseSpec(), contribution, "output 'w' occurs twice in the contribution");
  contribution.mutable_outputs(1)->set_name("v");
  CheckRefused(DenseSpec(), contribution, "the round has no output 'v'; it has w");
}

TEST_CASE("A weight is finite and positive, or left out") {
  for (const float weight : {-1.0f, kNan, kInfinity, -kInfinity}) {
    RoundAccumulator accumulator = Accumulator(DenseSpec());
    const absl::Status status = Fold(accumulator, Contribute(Floats({1, 2}), weight));
    REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
    REQUIRE(std::string(status.message()).find("it must be finite and greater than 0") != std::string::npos);
  }
  CheckRefused(DenseSpec(), Contribute(Floats({1, 2}), -2),
               "the contribution's weight is -2; it must be finite and greater than 0");
}

TEST_CASE("More index rows than nnz_max are refused before anything is read") {
  v1::OutputSpec output = AnOutput("sparse_sum", v1::FLOAT32, {10});
  output.set_nnz_max(2);
  CheckRefused(ASpec(output), Contribute(SparseFloats({1, 2, 99}, {1, 2, 3})),
               "output 'w': the contribution has 3 rows; nnz_max of this output is 2",
               absl::StatusCode::kResourceExhausted);
}

TEST_CASE("A string key has at most 1,024 bytes") {
  v1::OutputSpec output = AnOutput("keyed_sum", v1::FLOAT32, {});
  output.set_key_type(v1::STRING_KEYS);
  RoundAccumulator accumulator = Accumulator(ASpec(output));
  for (const size_t size : {size_t{0}, size_t{1024}, size_t{1025}}) {
    INFO(size);
    v1::Contribution contribution;
    v1::OutputValue& value = *contribution.add_outputs();
    value.set_name("w");
    value.mutable_keyed()->add_string_keys(std::string(size, 'k'));
    *value.mutable_keyed()->mutable_values() = Floats({1});
    CHECK(Fold(accumulator, contribution).ok() == (size <= 1024));
  }
}

TEST_CASE("Values are one client's") {
  v1::Contribution contribution = Contribute(Floats({1, 2}));
  contribution.set_num_clients(3);
  CheckRefused(
      DenseSpec(), contribution,
      "num_clients is 3, but the contribution carries values, which are one client's; several combine as states");
  contribution.set_num_clients(-1);
  CheckRefused(DenseSpec(), contribution, "num_clients is -1; it must lie in [0, 2^40]");
}

}  // namespace
}  // namespace sheaf
