// Builders of specs and contributions for the tests of the aggregation algebra.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "aggregation/operators.h"
#include "aggregation/round_accumulator.h"
#include "base/random.h"
#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

v1::OutputSpec AnOutput(const std::string& op, v1::DType dtype, const std::vector<int64_t>& shape,
                        const std::string& name = "w");
v1::AggregateSpec ASpec(const v1::OutputSpec& output);
v1::AggregateSpec ASpec(const std::string& op, v1::DType dtype, const std::vector<int64_t>& shape);

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}
template <typename T>
std::vector<T> ValuesOf(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

v1::Tensor ATensor(v1::DType dtype, const std::vector<int64_t>& shape, const std::string& bytes);
// FLOAT32 of one dimension.
v1::Tensor Floats(const std::vector<float>& values);
v1::SparseTensor Sparse(const std::vector<int64_t>& dense_shape, const v1::Tensor& indices, const v1::Tensor& values);
// FLOAT32, one dimension of 10.
v1::SparseTensor SparseFloats(const std::vector<int64_t>& indices, const std::vector<float>& values);

v1::Contribution Contribute(const v1::Tensor& dense, float weight = 0);
v1::Contribution Contribute(const v1::SparseTensor& sparse, float weight = 0);

RoundAccumulator Accumulator(const v1::AggregateSpec& spec);
// OK, and folded in; or the refusal.
absl::Status Fold(RoundAccumulator& accumulator, const v1::Contribution& contribution);
AggregateReport Aggregate(const v1::AggregateSpec& spec, const std::vector<v1::Contribution>& contributions);
// The named tensor of a report.
const NamedTensor& Find(const AggregateReport& report, const std::string& name);

// A random finite value of any size a float of this type has, often an awkward one.
double AwkwardFloat(Random& random, v1::DType dtype);
// A random contribution for the only output of the spec.
v1::Contribution RandomContribution(const v1::AggregateSpec& spec, Random& random);
// A small output of this operator: any shape it takes, any modifiers.
v1::AggregateSpec RandomSpec(const Operator& op, v1::DType dtype, v1::Numerics numerics, Random& random);

}  // namespace sheaf
