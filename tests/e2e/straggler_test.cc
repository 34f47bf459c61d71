// A worker that is much slower than the others, and a round that does not wait for it.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>

#include "probe/computations/slow.h"
#include "proto/time.h"
#include "sdk/cpp/client/round_client.h"
#include "tests/e2e/rounds.h"
#include "worker/runtime.h"
#include "worker/thread_pool.h"

namespace sheaf {
namespace {

constexpr absl::Duration kSlow = absl::Seconds(12);

// `slow`, on a machine on which each task takes kSlow.
class Sluggish final : public Computation {
 public:
  explicit Sluggish(std::unique_ptr<Computation> inner) : inner_(std::move(inner)) {}
  std::string_view name() const override { return inner_->name(); }
  int version() const override { return inner_->version(); }
  absl::StatusOr<std::unique_ptr<PreparedTask>> Prepare(const v1::Lease& lease, RunControl& control) const override {
    v1::Lease longer = lease;
    longer.set_payload(absl::FormatDuration(kSlow) + lease.payload().substr(lease.payload().find(' ')));
    return inner_->Prepare(longer, control);
  }

 private:
  const std::unique_ptr<Computation> inner_;
};

class SluggishWorker {
 public:
  explicit SluggishWorker(Federation& federation) : runtime_(ConfigFor(federation), clock_, random_) {
    REQUIRE(runtime_.Start().ok());
    thread_.Post([this] { static_cast<void>(runtime_.Run()); });
  }
  ~SluggishWorker() { runtime_.RequestDrain(); }

 private:
  static WorkerConfig ConfigFor(Federation& federation) {
    WorkerConfig config;
    config.server = federation.address();
    config.computations = {{.name = kSlowComputation, .data = {}, .make = [](const ComputationParts& parts) {
                              return std::make_unique<Sluggish>(SlowComputation().make(parts));
                            }}};
    config.options.worker = "sluggish";
    config.options.concurrency = 1;
    config.options.grace = absl::Milliseconds(100);
    return config;
  }

  SystemClock clock_;
  SystemRandom random_;
  WorkerRuntime runtime_;
  // Goes first: its end is waited for.
  ThreadPool thread_{1};
};

v1::RoundSpec ARound(bool has_policy) {
  v1::RoundSpec spec = OneHotRound({.num_tasks = 8, .work = absl::Milliseconds(200)});
  if (has_policy) spec.mutable_straggler()->set_speculate(true);
  return spec;
}

// The round with the slow worker in it, which has one of its tasks before the others come.
v1::Round RunWithSluggish(bool has_policy, Federation& federation) {
  SluggishWorker sluggish(federation);
  const std::string id = StartRound(federation, ARound(has_policy));
  WaitUntil("the slow worker has a task", absl::Seconds(20),
            [&] { return RoundOf(federation.transport(), id).tasks().leased() == 1; });
  federation.StartWorker("quick-1");
  federation.StartWorker("quick-2");
  v1::Round round = Await(federation, id);
  CHECK(round.aggregate().num_contributions() == 8);
  CHECK(CountsOf(federation.transport(), id) == std::vector<int64_t>(8, 1));
  return round;
}

absl::Duration Took(const v1::Round& round) { return FromProto(round.end_time()) - FromProto(round.create_time()); }

TEST_CASE("A round with a straggler policy does not wait for a worker that is much slower, and has the same bits") {
  v1::Round waited;
  {
    Federation federation;
    waited = RunWithSluggish(false, federation);
  }
  CHECK(Took(waited) >= kSlow);
  Federation federation;
  const v1::Round round = RunWithSluggish(true, federation);
  INFO("without the policy " << Took(waited) << ", with it " << Took(round));
  CHECK(Took(round) < Took(waited) / 2);
  CHECK(round.aggregate().digest() == waited.aggregate().digest());
  CHECK(round.num_speculative_wins() == 1);
  int num_cancelled = 0;
  for (const v1::Task& listed : TasksOf(federation.transport(), round.id())) {
    const v1::Task task = TaskOf(federation.transport(), listed.id());
    if (task.attempts_size() != 2) continue;
    CHECK(task.attempts(0).worker() == "sluggish");
    CHECK(task.attempts(0).outcome() == v1::ATTEMPT_CANCELLED);
    CHECK(task.attempts(1).is_speculative());
    CHECK(task.attempts(1).outcome() == v1::ATTEMPT_SUCCEEDED);
    ++num_cancelled;
  }
  CHECK(num_cancelled == 1);
  const CommandRun described = federation.Sheaf({"round", "describe", round.id()});
  CHECK_THAT(described.out, Catch::Matchers::Contains("1 accepted from a second attempt while the first still ran"));
}

}  // namespace
}  // namespace sheaf
