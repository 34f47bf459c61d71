#include "tests/fuzz/specs.h"

#include <google/protobuf/text_format.h>

#include <string>
#include <vector>

#include "base/check.h"

namespace sheaf::fuzz {
namespace {

constexpr const char* kSpecs[] = {
    "outputs { name: 'w' operator: 'sum' dtype: FLOAT32 dense_shape: [3, 5] }",
    "outputs { name: 'w' operator: 'sum' dtype: FLOAT64 dense_shape: 9 non_finite: PROPAGATE_NON_FINITE }",
    "outputs { name: 'w' operator: 'sum' dtype: INT32 dense_shape: 4 }",
    "outputs { name: 'w' operator: 'sum' dtype: UINT64 }",
    "outputs { name: 'w' operator: 'mean' dtype: FLOAT32 dense_shape: 2 non_finite: PROPAGATE_NON_FINITE }",
    "outputs { name: 'w' operator: 'weighted_mean' dtype: FLOAT64 dense_shape: [1, 2] }",
    "outputs { name: 'w' operator: 'min' dtype: FLOAT32 dense_shape: 3 non_finite: PROPAGATE_NON_FINITE }",
    "outputs { name: 'w' operator: 'max' dtype: INT64 dense_shape: 3 }",
    "outputs { name: 'w' operator: 'count' dtype: FLOAT32 dense_shape: 3 }",
    "outputs { name: 'w' operator: 'sparse_sum' dtype: FLOAT32 dense_shape: 100 }",
    "outputs { name: 'w' operator: 'sparse_sum' dtype: FLOAT32 dense_shape: [7, 3, 2] min_contributors: 2 }",
    "outputs { name: 'w' operator: 'sparse_sum' dtype: INT64 dense_shape: [7, 3] index_dims: 1 drop_zeros: true }",
    "outputs { name: 'w' operator: 'sparse_sum' dtype: FLOAT64 dense_shape: [1000000000, 4000000000] nnz_max: 5 "
    "non_finite: PROPAGATE_NON_FINITE }",
    "outputs { name: 'w' operator: 'sparse_sum' dtype: FLOAT32 dense_shape: 10 form: DENSE min_contributors: 2 }",
    "outputs { name: 'w' operator: 'sparse_sum_to_dense' dtype: FLOAT32 dense_shape: [4, 4] }",
    "outputs { name: 'w' operator: 'slices_sum' dtype: FLOAT32 dense_shape: [50, 4] }",
    "outputs { name: 'w' operator: 'slices_sum' dtype: UINT64 dense_shape: [5, 2, 2] drop_zeros: true }",
    "outputs { name: 'w' operator: 'coordinate_mean' dtype: FLOAT32 dense_shape: [20, 2] index_dims: 1 }",
    "outputs { name: 'w' operator: 'weighted_coordinate_mean' dtype: FLOAT64 dense_shape: 20 min_contributors: 2 }",
    "outputs { name: 'w' operator: 'client_mean' dtype: FLOAT32 dense_shape: 20 non_finite: PROPAGATE_NON_FINITE }",
    "outputs { name: 'w' operator: 'weighted_client_mean' dtype: FLOAT32 dense_shape: 20 }",
    "outputs { name: 'w' operator: 'sparse_min' dtype: FLOAT64 dense_shape: 20 }",
    "outputs { name: 'w' operator: 'sparse_max' dtype: INT32 dense_shape: [20, 3] index_dims: 1 }",
    "outputs { name: 'w' operator: 'keyed_sum' dtype: INT64 key_type: STRING_KEYS min_contributors: 2 }",
    "outputs { name: 'w' operator: 'keyed_sum' dtype: FLOAT32 key_type: INT64_KEYS dense_shape: 2 drop_zeros: true }",
    "outputs { name: 'w' operator: 'sum' dtype: FLOAT32 dense_shape: 5 } numerics: F64",
    "outputs { name: 'w' operator: 'weighted_mean' dtype: FLOAT32 dense_shape: 5 } numerics: F32",
    "outputs { name: 'w' operator: 'sparse_sum' dtype: FLOAT32 dense_shape: 100 } numerics: F64",
    "outputs { name: 'w' operator: 'slices_sum' dtype: FLOAT32 dense_shape: [50, 3] } numerics: F32",
    "outputs { name: 'w' operator: 'coordinate_mean' dtype: FLOAT64 dense_shape: 20 } numerics: F64",
    "outputs { name: 'keys' operator: 'keyed_sum' dtype: FLOAT64 key_type: STRING_KEYS } numerics: F64",
    "outputs { name: 'rows' operator: 'slices_sum' dtype: FLOAT32 dense_shape: [9, 2] } "
    "outputs { name: 'bias' operator: 'weighted_mean' dtype: FLOAT32 dense_shape: 2 }",
};

}  // namespace

std::span<const v1::AggregateSpec> Specs() {
  static const std::vector<v1::AggregateSpec> specs = [] {
    std::vector<v1::AggregateSpec> parsed;
    for (const char* text : kSpecs) {
      SHEAF_CHECK(google::protobuf::TextFormat::ParseFromString(text, &parsed.emplace_back()), "{}", text);
    }
    return parsed;
  }();
  return specs;
}

const v1::AggregateSpec& SpecAt(uint8_t choice) { return Specs()[choice % Specs().size()]; }

bool IsExact(const v1::AggregateSpec& spec) {
  return spec.numerics() == v1::NUMERICS_UNSPECIFIED || spec.numerics() == v1::EXACT;
}

}  // namespace sheaf::fuzz
