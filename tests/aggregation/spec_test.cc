// Specs: every output says what it means, and what means nothing is refused with the reason.
#include <catch2/catch.hpp>

#include "aggregation/aggregate_spec.h"
#include "aggregation/operators.h"
#include "tests/aggregation/values.h"

namespace sheaf {
namespace {

std::string RefusalOf(const v1::AggregateSpec& spec) {
  const absl::Status status = ValidateAggregateSpec(spec);
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(RoundAccumulator::Create(spec).status() == status);
  return std::string(status.message());
}

bool Mentions(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

TEST_CASE("Every operator of the table makes a round") {
  for (const Operator& op : Operators()) {
    v1::OutputSpec output = AnOutput(std::string(op.symbol), v1::FLOAT32, {4, 3});
    if (op.operand == Operand::kKeyed) output.set_key_type(v1::STRING_KEYS);
    REQUIRE(ValidateAggregateSpec(ASpec(output)).ok());
    REQUIRE(!op.meaning.empty());
  }
  REQUIRE(OperatorSymbols().size() == Operators().size());
}

TEST_CASE("An operator must be named: there is no default") {
  REQUIRE(Mentions(RefusalOf(ASpec("", v1::FLOAT32, {1})),
                   "names no operator, and there is no default; the operators are sum, mean"));
  REQUIRE(Mentions(RefusalOf(ASpec("avg", v1::FLOAT32, {1})),
                   "output 'w': there is no operator 'avg'; the operators are sum, mean"));
}

TEST_CASE("A spec has outputs with names that are legal and release different tensors") {
  REQUIRE(Mentions(RefusalOf(v1::AggregateSpec()), "no outputs"));
  REQUIRE(Mentions(RefusalOf(ASpec(AnOutput("sum", v1::FLOAT32, {1}, ""))), "output name ''"));
  REQUIRE(Mentions(RefusalOf(ASpec(AnOutput("sum", v1::FLOAT32, {1}, "a b"))), "output name 'a b'"));
  REQUIRE(Mentions(RefusalOf(ASpec(AnOutput("sum", v1::FLOAT32, {1}, std::string(129, 'a')))), "1 to 128"));
  REQUIRE(Mentions(RefusalOf(ASpec(AnOutput("sum", v1::FLOAT32, {1}, "__metadata__"))), "taken by the file format"));
  v1::AggregateSpec spec = ASpec("sum", v1::FLOAT32, {1});
  *spec.add_outputs() = spec.outputs(0);
  REQUIRE(Mentions(RefusalOf(spec), "also releases a tensor named 'w'"));
  *spec.mutable_outputs(1) = AnOutput("sparse_sum", v1::FLOAT32, {1}, "v");
  REQUIRE(ValidateAggregateSpec(spec).ok());
  spec.mutable_outputs(0)->set_name("v.values");
  REQUIRE(Mentions(RefusalOf(spec), "also releases a tensor named 'v.values'"));
}

TEST_CASE("Types and shapes are checked") {
  REQUIRE(Mentions(RefusalOf(ASpec("sum", v1::DTYPE_UNSPECIFIED, {1})), "dtype is missing"));
  REQUIRE(Mentions(RefusalOf(ASpec("mean", v1::INT32, {1})), "output 'w', operator 'mean': it does not take INT32"));
  REQUIRE(Mentions(RefusalOf(ASpec("weighted_client_mean", v1::UINT64, {1})), "a mean of integers is not an integer"));
  REQUIRE(Mentions(RefusalOf(ASpec("sum", v1::FLOAT32, {3, -1})), "its shape [3, -1] has a negative size"));
  const int64_t huge = int64_t{1} << 32;
  REQUIRE(Mentions(RefusalOf(ASpec("sparse_sum", v1::FLOAT32, {huge, huge})), "more than 2^63 coordinates"));
  REQUIRE(Mentions(RefusalOf(ASpec("sum", v1::FLOAT32, {huge})), "use a sparse operator"));
  REQUIRE(Mentions(RefusalOf(ASpec("sparse_sum_to_dense", v1::FLOAT32, {huge})), "use a sparse operator"));
  REQUIRE(ValidateAggregateSpec(ASpec("sparse_sum", v1::FLOAT32, {huge})).ok());
  REQUIRE(Mentions(RefusalOf(ASpec("slices_sum", v1::FLOAT32, {})),
                   "its indices address 1 dimensions, but its shape [] has 0"));
}

TEST_CASE("An output has at most 2^28 elements, or a row of it has, and 32 dimensions") {
  constexpr int64_t kMost = int64_t{1} << 28;
  for (const char* op : {"sum", "count", "sparse_sum_to_dense"}) {
    INFO(op);
    CHECK(ValidateAggregateSpec(ASpec(op, v1::FLOAT32, {kMost})).ok());
    CHECK(Mentions(RefusalOf(ASpec(op, v1::FLOAT32, {kMost + 1})), "more than 268435456 dense elements"));
  }
  for (const char* op : {"slices_sum", "keyed_sum"}) {
    INFO(op);
    const bool is_keyed = std::string(op) == "keyed_sum";
    for (const int64_t width : {kMost, kMost + 1}) {
      v1::OutputSpec output = AnOutput(op, v1::FLOAT32, {width});
      if (is_keyed) output.set_key_type(v1::INT64_KEYS);
      if (!is_keyed) output.mutable_dense_shape()->Set(0, int64_t{1} << 30);
      if (!is_keyed) output.add_dense_shape(width);
      CHECK(ValidateAggregateSpec(ASpec(output)).ok() == (width == kMost));
    }
  }
  CHECK(ValidateAggregateSpec(ASpec("sparse_sum", v1::FLOAT32, {int64_t{1} << 62})).ok());
  CHECK(ValidateAggregateSpec(ASpec("sum", v1::FLOAT32, std::vector<int64_t>(32, 1))).ok());
  CHECK(Mentions(RefusalOf(ASpec("sum", v1::FLOAT32, std::vector<int64_t>(33, 1))), "the most is 32"));
}

TEST_CASE("Modifiers that mean nothing for an operator are refused") {
  const auto with = [](const std::string& op, v1::DType dtype, auto set) {
    v1::OutputSpec output = AnOutput(op, dtype, {4, 3});
    set(output);
    return ASpec(output);
  };
  REQUIRE(Mentions(RefusalOf(with("sum", v1::FLOAT32, [](auto& o) { o.set_min_contributors(2); })),
                   "are for sparse operators"));
  REQUIRE(
      Mentions(RefusalOf(with("mean", v1::FLOAT32, [](auto& o) { o.set_index_dims(1); })), "are for sparse operators"));
  REQUIRE(Mentions(RefusalOf(with("sum", v1::FLOAT32, [](auto& o) { o.set_drop_zeros(true); })),
                   "are for sparse operators"));
  REQUIRE(Mentions(RefusalOf(with("sparse_sum_to_dense", v1::FLOAT32, [](auto& o) { o.set_drop_zeros(true); })),
                   "drop_zeros means nothing"));
  REQUIRE(Mentions(RefusalOf(with("sparse_sum", v1::FLOAT32, [](auto& o) { o.set_min_contributors(-1); })),
                   "must not be negative"));
  REQUIRE(Mentions(RefusalOf(with("sparse_sum", v1::FLOAT32, [](auto& o) { o.set_index_dims(3); })),
                   "address 3 dimensions"));
  REQUIRE(Mentions(RefusalOf(with("sum", v1::INT64, [](auto& o) { o.set_non_finite(v1::PROPAGATE_NON_FINITE); })),
                   "floating point"));
}

TEST_CASE("What is kept of each coordinate beside its value is estimated, too") {
  constexpr int64_t kCoordinates = 1000;
  const auto bytes_for_each = [&](const std::string& op, int64_t min_contributors, int64_t width) {
    v1::OutputSpec output = AnOutput(op, v1::FLOAT32, {kCoordinates, width});
    output.set_index_dims(1);
    output.set_form(v1::DENSE);
    output.set_min_contributors(min_contributors);
    return EstimateStateBytes(ASpec(output)).at(0) / kCoordinates;
  };
  CHECK(bytes_for_each("sparse_sum", 0, 2) == 2 * 16);
  CHECK(bytes_for_each("sparse_sum", 0, 0) == 0);
  CHECK(bytes_for_each("sparse_sum", 2, 2) == 2 * 16 + 12);
  CHECK(bytes_for_each("coordinate_mean", 0, 0) == 0);
  CHECK(bytes_for_each("coordinate_mean", 0, 1) == 16 + 12);
  CHECK(bytes_for_each("weighted_coordinate_mean", 0, 2) == 2 * 16 + 12 + 16);
}

TEST_CASE("F32 is refused where it would lose what was sent, naming what would not") {
  v1::AggregateSpec spec = ASpec("sum", v1::FLOAT64, {1});
  for (const v1::Numerics numerics : {v1::EXACT, v1::F64}) {
    spec.set_numerics(numerics);
    REQUIRE(ValidateAggregateSpec(spec).ok());
  }
  spec.set_numerics(v1::F32);
  REQUIRE(
      RefusalOf(spec) ==
      "output 'w', operator 'sum': numerics F32 is too narrow for FLOAT64; use F64 or EXACT, or contribute FLOAT32");
  spec.mutable_outputs(0)->set_operator_("max");
  REQUIRE(ValidateAggregateSpec(spec).ok());
}

TEST_CASE("Keys and forms are for the operators that have them") {
  v1::OutputSpec output = AnOutput("keyed_sum", v1::INT64, {});
  REQUIRE(Mentions(RefusalOf(ASpec(output)), "its key_type is missing or unknown; use STRING_KEYS or INT64_KEYS"));
  output.set_key_type(v1::INT64_KEYS);
  REQUIRE(ValidateAggregateSpec(ASpec(output)).ok());
  output.set_operator_("sum");
  REQUIRE(Mentions(RefusalOf(ASpec(output)), "key_type is for keyed operators"));
  output.clear_key_type();
  output.set_form(v1::DENSE);
  REQUIRE(Mentions(RefusalOf(ASpec(output)), "form is for sparse operators"));
  output.set_operator_("sparse_min");
  REQUIRE(Mentions(RefusalOf(ASpec(output)), "coordinates that nobody touched would hold 0, which nobody sent"));
}

}  // namespace
}  // namespace sheaf
