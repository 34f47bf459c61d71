#include "probe/one_hot.h"

#include <catch2/catch.hpp>

#include "aggregation/reference.h"
#include "aggregation/wire/safetensors.h"

namespace sheaf {
namespace {

// What a round of these contributions releases.
std::string Released(const v1::AggregateSpec& spec, const std::vector<v1::Contribution>& contributions) {
  return EncodeSafetensors(ReferenceAggregate(spec, contributions)->tensors, {});
}

TEST_CASE("One-hot contributions show in the sum, each once, in either form") {
  const v1::AggregateSpec spec = OneHotAggregate(4);
  for (const OneHotForm form : {OneHotForm::kAlone, OneHotForm::kMeeting}) {
    std::vector<v1::Contribution> contributions = {ZeroContribution(spec).value()};
    for (const int64_t index : {3, 0, 3}) contributions.push_back(OneHotContribution(spec, index, form).value());
    const std::string file = Released(spec, contributions);
    CHECK(OneHotCounts(file, form).value() == std::vector<int64_t>{1, 0, 0, 2});
    const OneHotForm other = form == OneHotForm::kAlone ? OneHotForm::kMeeting : OneHotForm::kAlone;
    CHECK(absl::IsInternal(OneHotCounts(file, other).status()));
  }
  CHECK(absl::IsInvalidArgument(OneHotContribution(spec, 4, OneHotForm::kAlone).status()));
}

TEST_CASE("An aggregate whose outputs do not hold the same contributions is found out") {
  const v1::AggregateSpec spec = OneHotAggregate(2);
  v1::Contribution crooked = OneHotContribution(spec, 0, OneHotForm::kAlone).value();
  *crooked.mutable_outputs(1) = OneHotContribution(spec, 1, OneHotForm::kAlone)->outputs(1);
  CHECK(absl::IsInternal(OneHotCounts(Released(spec, {crooked}), OneHotForm::kAlone).status()));
}

}  // namespace
}  // namespace sheaf
