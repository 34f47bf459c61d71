#include "server/core/rounds/fold_strand.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/server/held_jobs.h"

namespace sheaf {
namespace {

using Length = FoldStrand::Length;

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
  return spec;
}

struct Strand {
  void Do(Length length, const std::string& name) {
    strand.Do<std::string>(
        length,
        [this, name](RoundAccumulator&) {
          done += name;
          return name;
        },
        [this](const std::string& result, absl::Time) { heard += result; });
  }

  HeldJobs jobs;
  HeldEvents events;
  InlineFor one_by_one;
  FoldStrand strand{jobs, events, RoundId("r"), *RoundAccumulator::Create(ASum())};
  std::string done, heard;
};

TEST_CASE("Short work of a strand that waits for one job is one job and one event") {
  Strand s;
  for (const char* name : {"a", "b", "c"}) s.Do(Length::kShort, name);
  REQUIRE(s.jobs.RunNext());
  CHECK(s.jobs.empty());
  CHECK(s.done == "abc");
  CHECK_FALSE(s.strand.is_idle());
  CHECK(s.events.size() == 1);
  s.events.RunAll();
  CHECK(s.heard == "abc");
  CHECK(s.strand.is_idle());
  // That job has begun, and takes no more.
  s.Do(Length::kShort, "d");
  REQUIRE(s.jobs.RunNext());
  CHECK(s.done == "abcd");
}

TEST_CASE("Short work of a strand does not overtake long work") {
  Strand s;
  s.Do(Length::kShort, "a");
  s.Do(Length::kLong, "B");
  for (const char* name : {"c", "d"}) s.Do(Length::kShort, name);
  for (const char* done : {"a", "aB", "aBcd"}) {
    REQUIRE(s.jobs.RunNext());
    CHECK(s.done == done);
  }
  CHECK(s.jobs.empty());
  s.events.RunAll();
  CHECK(s.heard == "aBcd");
}

TEST_CASE(
    "A strand releases its accumulator once: who asks again, because nothing could be written, gets the same release") {
  Strand s;
  const AggregateRelease* released = nullptr;
  int num_heard = 0;
  for (int i = 0; i < 2; ++i) {
    s.strand.Release<int>(
        s.one_by_one,
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
  s.Do(Length::kLong, "a");
  REQUIRE(s.jobs.RunNext());
  CHECK(s.done == "a");
}

TEST_CASE("A job of short work has an end") {
  Strand s;
  for (int i = 0; i < 1000; ++i) s.Do(Length::kShort, "x");
  REQUIRE(s.jobs.RunNext());
  CHECK(s.done.size() < 1000);
  while (s.jobs.RunNext()) {
  }
  s.events.RunAll();
  CHECK(s.heard.size() == 1000);
  CHECK(s.strand.is_idle());
}

}  // namespace
}  // namespace sheaf
