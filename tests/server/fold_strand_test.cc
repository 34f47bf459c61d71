#include "server/core/rounds/fold_strand.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/held_jobs.h"

namespace sheaf {
namespace {

// Keeps events until they are asked for.
class HeldEvents final : public Executor {
 public:
  void Post(Event event) override { events_.push_back(std::move(event)); }
  void Defer(Deferred) override {}
  size_t size() const { return events_.size(); }
  void RunAll() {
    for (const Event& event : std::exchange(events_, {})) event(absl::UnixEpoch());
  }

 private:
  std::vector<Event> events_;
};

v1::AggregateSpec ASum() {
  v1::AggregateSpec spec;
  v1::OutputSpec& output = *spec.add_outputs();
  output.set_name("x");
  output.set_operator_("sum");
  output.set_dtype(v1::FLOAT32);
  output.add_dense_shape(1);
  // In which the order is seen.
  spec.set_numerics(v1::F32);
  return spec;
}

struct Strand {
  // A contribution of `value`; `name` is heard when it was folded.
  void Fold(const std::string& name, float value = 1, int64_t bytes = 1) {
    v1::Contribution contribution;
    v1::OutputValue& output = *contribution.add_outputs();
    output.set_name("x");
    v1::Tensor& tensor = *output.mutable_dense();
    tensor.set_dtype(v1::FLOAT32);
    tensor.add_shape(1);
    tensor.set_data(std::string(reinterpret_cast<const char*>(&value), sizeof value));
    ValidContribution valid = strand.validator()->Validate(std::move(contribution)).value();
    auto unfolded = std::make_shared<Unfolded>(UnfoldedContribution{.valid = std::move(valid), .claim = {}});
    unfolded_.push_back(unfolded);
    strand.Fold(unfolded, bytes, [this, name](int64_t memory_bytes, absl::Time) {
      CHECK(memory_bytes > 0);
      heard += name;
    });
  }
  void Do(const std::string& name) {
    strand.Do<std::string>(
        [this, name](RoundAccumulator& sum) {
          done += fmt::format("{}{}", name, sum.num_contributions());
          return name;
        },
        [this](const std::string& result, absl::Time) { heard += result; });
  }
  int64_t num_unfolded() const {
    return std::count_if(unfolded_.begin(), unfolded_.end(), [](const auto& one) { return one->has_value(); });
  }

  HeldJobs jobs;
  InlineFor parallel;
  HeldEvents events;
  FoldStrand strand{jobs, parallel, events, RoundId("r"), *RoundAccumulator::Create(ASum())};
  std::string done, heard;

 private:
  std::vector<std::shared_ptr<Unfolded>> unfolded_;
};

TEST_CASE("Contributions of a strand that wait for one job are one job and one event") {
  Strand s;
  for (const char* name : {"a", "b", "c"}) s.Fold(name);
  CHECK(s.num_unfolded() == 3);
  REQUIRE(s.jobs.RunNext());
  CHECK(s.jobs.empty());
  CHECK(s.num_unfolded() == 0);
  CHECK_FALSE(s.strand.is_idle());
  CHECK(s.events.size() == 1);
  s.events.RunAll();
  CHECK(s.heard == "abc");
  REQUIRE(s.strand.is_idle());
  CHECK(s.strand.accumulator().num_contributions() == 3);
  // That job has begun, and takes no more.
  s.Fold("d");
  REQUIRE(s.jobs.RunNext());
  s.events.RunAll();
  CHECK(s.strand.accumulator().num_contributions() == 4);
}

TEST_CASE("Contributions of a strand do not overtake other work") {
  Strand s;
  s.Fold("a");
  s.Do("B");
  for (const char* name : {"c", "d"}) s.Fold(name);
  s.Do("E");
  for (const char* done : {"", "B1", "B1", "B1E3"}) {
    REQUIRE(s.jobs.RunNext());
    CHECK(s.done == done);
  }
  CHECK(s.jobs.empty());
  s.events.RunAll();
  CHECK(s.heard == "aBcdE");
}

TEST_CASE("Contributions of one job are folded in the order in which they came") {
  Strand s;
  // In another order the ones would be lost in float numbers.
  for (const float value : {1e30f, -1e30f, 1.0f}) s.Fold("x", value);
  REQUIRE(s.jobs.RunNext());
  s.events.RunAll();
  const AggregateReport report = s.strand.accumulator().Report().value();
  float sum = 0;
  std::memcpy(&sum, report.tensors.at(0).data.data(), sizeof sum);
  CHECK(sum == 1);
}

TEST_CASE(
    "A strand releases its accumulator once: who asks again, because nothing could be written, gets the same release") {
  Strand s;
  const AggregateRelease* released = nullptr;
  int num_heard = 0;
  for (int i = 0; i < 2; ++i) {
    s.strand.Release<int>(
        [&released, i](const AggregateRelease& release) -> absl::StatusOr<int> {
          CHECK(released == (i == 0 ? nullptr : &release));
          released = &release;
          return absl::UnavailableError("no room on the disk");
        },
        [&num_heard](absl::StatusOr<int> written, absl::Time) {
          CHECK(absl::IsUnavailable(written.status()));
          ++num_heard;
        });
    REQUIRE(s.jobs.RunNext());
  }
  REQUIRE(released != nullptr);
  CHECK(released->tensors.at(0).name == "x");
  s.events.RunAll();
  CHECK(num_heard == 2);
  // What needs no sum goes on.
  s.strand.Do<int>([](RoundAccumulator&) { return 1; }, [&num_heard](int, absl::Time) { ++num_heard; });
  REQUIRE(s.jobs.RunNext());
  s.events.RunAll();
  CHECK(num_heard == 3);
}

TEST_CASE("A job of contributions has an end") {
  Strand s;
  for (int i = 0; i < 1000; ++i) s.Fold("x");
  REQUIRE(s.jobs.RunNext());
  CHECK(s.num_unfolded() > 0);
  while (s.jobs.RunNext()) {
  }
  s.events.RunAll();
  CHECK(s.heard.size() == 1000);
  CHECK(s.strand.is_idle());
  // By their bytes, too.
  for (int i = 0; i < 2; ++i) s.Fold("y", 1, 3 << 20);
  REQUIRE(s.jobs.RunNext());
  CHECK(s.num_unfolded() == 1);
  REQUIRE(s.jobs.RunNext());
  CHECK(s.jobs.empty());
}

}  // namespace
}  // namespace sheaf
