#include "tests/server/wide_round.h"

#include <catch2/catch.hpp>
#include <string>

namespace sheaf {

v1::RoundSpec WideRound(int num_tasks) {
  v1::RoundSpec spec = SumRound(num_tasks);
  spec.mutable_aggregate()->mutable_outputs(0)->set_dense_shape(0, kWide);
  spec.mutable_retry()->set_failed_max(100);
  return spec;
}

v1::TaskResult WideResult(const v1::Lease& lease, const std::function<float(int64_t)>& value_of) {
  v1::TaskResult result = Result(lease, 1);
  v1::Contribution contribution;
  REQUIRE(contribution.ParseFromString(result.contribution()));
  v1::Tensor& tensor = *contribution.mutable_outputs(0)->mutable_dense();
  tensor.set_shape(0, kWide);
  tensor.clear_data();
  for (int64_t i = 0; i < kWide; ++i) {
    const float value = value_of(i);
    tensor.mutable_data()->append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  result.set_contribution(contribution.SerializeAsString());
  return result;
}

}  // namespace sheaf
