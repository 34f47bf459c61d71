// A refusal tells its worker all, and everybody else nothing that came from the contribution.
#include "aggregation/refusal.h"

#include <catch2/catch.hpp>
#include <set>

namespace sheaf {
namespace {

TEST_CASE("A refusal's summary is its kind and its output, and its message stays whole") {
  const Refusal refusal = RefusalOf(
      RefusedAs(RefusalKind::kNonFinite, "w.x/y-1", absl::InvalidArgumentError("output 'w.x/y-1': w[patient] is NaN")));
  CHECK(refusal.told == "output 'w.x/y-1': w[patient] is NaN");
  CHECK(refusal.output == "w.x/y-1");
  CHECK(refusal.Summary() == "output 'w.x/y-1': a value is not finite");
}

TEST_CASE("A refusal in no output names none") {
  const Refusal refusal = RefusalOf(RefusedAs(RefusalKind::kWeight, "", absl::InvalidArgumentError("weight is -3.5")));
  CHECK(refusal.Summary() == "its weight is not finite and greater than 0, or is set beside states");
}

TEST_CASE("A refusal that nobody gave a kind says nothing of its contribution") {
  CHECK(RefusalOf(absl::InvalidArgumentError("w[patient] is NaN")).Summary() == "it was refused");
}

TEST_CASE("Every kind of refusal has a text of its own") {
  std::set<std::string> texts;
  for (int kind = 0; kind <= static_cast<int>(RefusalKind::kKeyLength); ++kind) {
    texts.insert(RefusalOf(RefusedAs(static_cast<RefusalKind>(kind), "", absl::InvalidArgumentError("no"))).Summary());
  }
  CHECK(texts.size() == static_cast<size_t>(RefusalKind::kKeyLength) + 1);
}

}  // namespace
}  // namespace sheaf
