// What a release is: the accumulator's last word, which it is consumed for.
#include "aggregation/output/release.h"

#include <catch2/catch.hpp>
#include <optional>
#include <utility>

#include "aggregation/operators.h"
#include "aggregation/wire/safetensors.h"
#include "base/random.h"
#include "tests/aggregation/values.h"

namespace sheaf {
namespace {

template <typename T>
concept ReleasesInPlace = requires(T& accumulator) {
  accumulator.Release();
};
static_assert(!ReleasesInPlace<RoundAccumulator>, "what is released is consumed: std::move(sum).Release()");

std::string FileOf(const AggregateRelease& release) {
  std::string file;
  const absl::Status written = WriteSafetensors(release.tensors, {}, [&file](std::string_view piece) {
    file += piece;
    return absl::OkStatus();
  });
  REQUIRE(written.ok());
  return file;
}

TEST_CASE(
    "A release has the bytes of the report before it, is written as often as one likes, and outlives its accumulator") {
  SeededRandom random(1);
  for (const Operator& op : Operators()) {
    const v1::AggregateSpec spec = RandomSpec(op, v1::FLOAT64, v1::EXACT, random);
    INFO(spec.ShortDebugString());
    std::optional<RoundAccumulator> sum = Accumulator(spec);
    for (int i = 0; i < 3; ++i) {
      const absl::Status folded = Fold(*sum, RandomContribution(spec, random));
      REQUIRE((folded.ok() || absl::IsResourceExhausted(folded)));
    }
    const absl::StatusOr<AggregateReport> report = sum->Report();
    const absl::StatusOr<AggregateRelease> release = std::move(*sum).Release();
    sum.reset();
    if (absl::IsOutOfRange(report.status())) continue;
    REQUIRE(report.ok());
    REQUIRE(release.ok());
    CHECK(release->num_contributions == report->num_contributions);
    const std::string expected = EncodeSafetensors(report->tensors, {});
    CHECK(FileOf(*release) == expected);
    CHECK(FileOf(*release) == expected);
  }
}

TEST_CASE("A tensor of a release can be written when nothing else of it is left") {
  RoundAccumulator sum = Accumulator(ASpec("sum", v1::FLOAT32, {2}));
  REQUIRE(Fold(sum, Contribute(Floats({1, 2}))).ok());
  const ReleasedTensor tensor = std::move(sum).Release().value().tensors.at(0);
  std::string data;
  REQUIRE(tensor
              .write([&data](std::string_view piece) {
                data += piece;
                return absl::OkStatus();
              })
              .ok());
  CHECK(ValuesOf<float>(data) == std::vector<float>{1, 2});
}

TEST_CASE("Contributions are validated after the release as before it") {
  RoundAccumulator sum = Accumulator(ASpec("sum", v1::FLOAT32, {2}));
  const std::shared_ptr<const ContributionValidator> validator = sum.validator();
  const absl::StatusOr<AggregateRelease> release = std::move(sum).Release();
  REQUIRE(release.ok());
  CHECK(validator->Validate(Contribute(Floats({1, 2}))).ok());
  CHECK(absl::IsInvalidArgument(validator->Validate(Contribute(Floats({1}))).status()));
}

}  // namespace
}  // namespace sheaf
