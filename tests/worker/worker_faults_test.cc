// The worker loop against a small model of the server, in one thread under a virtual clock, over a transport that
// loses, repeats and delays, with workers that crash. One seed replays one run. The whole federation is simulated in
// tests/simulation.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "base/clock.h"
#include "base/log.h"
#include "probe/computations/noop.h"
#include "probe/computations/one_hot.h"
#include "probe/computations/slow.h"
#include "proto/time.h"
#include "tests/no_waiter.h"
#include "tests/simulation/agenda.h"
#include "worker/computation_runner.h"
#include "worker/computation_table.h"
#include "worker/worker_loop.h"

namespace sheaf {
namespace {

constexpr absl::Duration kLease = absl::Seconds(30);

using simulation::Agenda;

// What work_service.proto promises, for tasks of `noop` with inline results.
class ModelServer {
 public:
  using Reply = std::function<void(v1::SyncResponse)>;

  ModelServer(Agenda& agenda, Random& random, int num_tasks) : agenda_(agenda), random_(random), tasks_(num_tasks) {}

  void Sync(const v1::SyncRequest& request, Reply reply) {
    ++num_syncs;
    Call call{request, agenda_.now(), {}, std::move(reply)};
    Seat& seat = seats_[request.worker()];
    // A newer call ends an older one's wait.
    if (seat.parked) std::exchange(seat.parked, nullptr)->Answer();
    for (const v1::TaskResult& result : request.results()) TakeResult(result, call.response);
    for (const v1::HeldLease& held : request.held()) Renew(held, call);
    int resent = Resend(call);
    Grant(call, seat, resent);
    bool has_news = call.response.leases_size() > 0 || call.response.verdicts_size() > 0;
    if (has_news || request.want() == 0 || FromProto(request.wait()) <= absl::ZeroDuration()) {
      return call.Answer();
    }
    seat.parked = std::make_shared<Call>(std::move(call));
    agenda_.After(FromProto(request.wait()), [this, name = request.worker(), parked = seat.parked] {
      if (seats_[name].parked == parked) std::exchange(seats_[name].parked, nullptr)->Answer();
    });
  }

  // Leases that lapsed go back; parked calls get what there is.
  void Tick() {
    for (TaskState& task : tasks_) {
      if (!task.token.empty() && !task.is_done && task.deadline <= agenda_.now()) task.token.clear();
    }
    for (auto& [name, seat] : seats_) {
      if (!seat.parked) continue;
      Grant(*seat.parked, seat, 0);
      if (seat.parked->response.leases_size() > 0) std::exchange(seat.parked, nullptr)->Answer();
    }
  }

  int num_done() const {
    return static_cast<int>(std::count_if(tasks_.begin(), tasks_.end(), [](const TaskState& t) { return t.is_done; }));
  }
  bool all_done() const { return num_done() == static_cast<int>(tasks_.size()); }
  int64_t num_syncs = 0;
  int64_t num_granted = 0;

 private:
  struct TaskState {
    bool is_done = false;
    // Of the lease, or of the result that was accepted.
    std::string token;
    std::string worker;
    absl::Time deadline;
    int64_t progress = 0;
  };
  struct Call {
    v1::SyncRequest request;
    absl::Time arrived;
    v1::SyncResponse response;
    Reply reply;
    void Answer() { reply(std::move(response)); }
  };
  struct Seat {
    std::shared_ptr<Call> parked;
    std::string poll_id;
  };

  TaskState& Find(const std::string& task) { return tasks_.at(std::stoi(task)); }

  void TakeResult(const v1::TaskResult& result, v1::SyncResponse& response) {
    TaskState& task = Find(result.task());
    v1::ResultVerdict* verdict = response.add_verdicts();
    verdict->set_task(result.task());
    verdict->set_lease_token(result.lease_token());
    if (task.token != result.lease_token()) return verdict->set_verdict(v1::ResultVerdict::LEASE_LOST);
    verdict->set_verdict(task.is_done ? v1::ResultVerdict::DUPLICATE : v1::ResultVerdict::ACCEPTED);
    if (result.has_release()) return task.token.clear();
    if (!result.has_contribution()) FAIL("a result that is no contribution");
    task.is_done = true;
  }

  void Renew(const v1::HeldLease& held, Call& call) {
    TaskState& task = Find(held.task());
    v1::LeaseUpdate* update = call.response.add_held();
    update->set_task(held.task());
    update->set_lease_token(held.lease_token());
    if (task.is_done || task.token != held.lease_token()) return update->set_verdict(v1::LeaseUpdate::LOST);
    if (held.progress() > task.progress) task.deadline = agenda_.now() + kLease;
    task.progress = std::max(task.progress, held.progress());
    update->set_verdict(v1::LeaseUpdate::HELD);
    *update->mutable_remaining() = ToProto(task.deadline - call.arrived);
  }

  // What it believes leased to the worker and the worker does not mention.
  int Resend(Call& call) {
    std::set<std::string> mentioned;
    for (const v1::HeldLease& held : call.request.held()) mentioned.insert(held.lease_token());
    for (const v1::TaskResult& result : call.request.results()) mentioned.insert(result.lease_token());
    int resent = 0;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const TaskState& task = tasks_[i];
      if (task.is_done || task.token.empty() || task.worker != call.request.worker() ||
          mentioned.contains(task.token)) {
        continue;
      }
      AddLease(i, call);
      ++resent;
    }
    return resent;
  }

  void Grant(Call& call, Seat& seat, int resent) {
    // The same poll gets the same leases, which were re-sent, and no others.
    if (resent > 0 && seat.poll_id == call.request.poll_id()) return;
    for (size_t i = 0; i < tasks_.size() && resent < call.request.want(); ++i) {
      TaskState& task = tasks_[i];
      if (task.is_done || !task.token.empty()) continue;
      task.token = random_.Token(8);
      task.worker = call.request.worker();
      task.deadline = agenda_.now() + kLease;
      task.progress = 0;
      seat.poll_id = call.request.poll_id();
      AddLease(i, call);
      ++resent;
      ++num_granted;
    }
  }

  void AddLease(size_t i, Call& call) {
    v1::Lease* lease = call.response.add_leases();
    lease->set_task(std::to_string(i));
    lease->set_lease_token(tasks_[i].token);
    lease->mutable_computation()->set_name("noop");
    *lease->mutable_remaining() = ToProto(tasks_[i].deadline - call.arrived);
  }

  Agenda& agenda_;
  Random& random_;
  std::vector<TaskState> tasks_;
  std::map<std::string, Seat> seats_;
};

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(Agenda& agenda, Random& random, ModelServer& server)
      : agenda_(agenda), random_(random), server_(server) {}

  void CallMethod(std::string_view, const google::protobuf::Message& request, google::protobuf::Message* response,
                  const CallOptions& options, Done done) override {
    // Whatever comes first, the answer or the timeout, ends the call.
    auto finish = std::make_shared<Done>(std::move(done));
    auto end = [finish](absl::Status status) {
      if (*finish) std::exchange(*finish, nullptr)(std::move(status));
    };
    agenda_.After(options.timeout, [end] { end(absl::DeadlineExceededError("lost")); });
    if (random_.Chance(faults / 2)) return agenda_.After(Delay(), [end] { end(absl::UnavailableError("reset")); });
    auto copy = std::make_shared<v1::SyncRequest>(static_cast<const v1::SyncRequest&>(request));
    int copies = random_.Chance(faults) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      if (random_.Chance(faults)) continue;
      agenda_.After(Delay(), [this, copy, response, finish, end] {
        server_.Sync(*copy, [this, response, finish, end](v1::SyncResponse answer) {
          if (random_.Chance(faults)) return;
          agenda_.After(Delay(), [response, finish, end, answer = std::move(answer)] {
            if (*finish) response->CopyFrom(answer);
            end(absl::OkStatus());
          });
        });
      });
    }
  }

  double faults = 0;

 private:
  absl::Duration Delay() {
    absl::Duration most = random_.Chance(faults) ? absl::Seconds(20) : absl::Milliseconds(5);
    return random_.Between(absl::ZeroDuration(), most);
  }

  Agenda& agenda_;
  Random& random_;
  ModelServer& server_;
};

class World {
 public:
  World(uint64_t seed, int num_tasks, int num_workers) : random(seed), server(agenda, random, num_tasks) {
    for (int i = 0; i < num_workers; ++i) StartWorker(i);
    Tick();
  }

  // Puts a new life into a seat; an old one crashes.
  void StartWorker(int seat) {
    if (seat >= static_cast<int>(seats_.size())) seats_.resize(seat + 1);
    seats_[seat].loop.reset();
    WorkerOptions options{.worker = fmt::format("w{}", ++lives_), .concurrency = 1 + static_cast<int>(random.Below(3))};
    seats_[seat].loop = std::make_unique<WorkerLoop>(
        options,
        WorkerLoop::Parts{transport, runner_, cache_, random, [this, seat] { StepAfter(absl::ZeroDuration(), seat); }});
    Step(seat);
  }

  void RunUntil(absl::Duration duration, const std::function<bool()>& is_enough) {
    absl::Time end = agenda.now() + duration;
    while (agenda.now() < end && !is_enough() && agenda.RunNext()) {
    }
  }

  Agenda agenda;
  SeededRandom random;
  ModelServer server;
  FaultyTransport transport{agenda, random, server};
  double crashes_per_second = 0;

 private:
  // A worker in its latest life. It has one timer: setting it anew replaces it.
  struct Seat {
    std::unique_ptr<WorkerLoop> loop;
    int64_t timer = 0;
  };

  void StepAfter(absl::Duration delay, int seat) {
    agenda.After(delay, [this, seat, timer = ++seats_[seat].timer] {
      if (timer == seats_[seat].timer) Step(seat);
    });
  }

  void Step(int seat) {
    absl::Time next = seats_[seat].loop->Step(agenda.now());
    if (seats_[seat].loop->is_done()) FAIL("a worker gave up");
    if (next < absl::InfiniteFuture()) StepAfter(std::max(next - agenda.now(), absl::ZeroDuration()), seat);
  }

  void Tick() {
    server.Tick();
    if (random.Chance(crashes_per_second)) StartWorker(static_cast<int>(random.Below(seats_.size())));
    agenda.After(absl::Seconds(1), [this] { Tick(); });
  }

  DataSources data_{{}};
  NoWaiter waiter_;
  ComputationRunner runner_{
      ComputationTable{NoopComputation(), OneHotComputation(), SlowComputation()}.Make({data_, waiter_}),
      [this](std::function<void()> work) {
        absl::Duration most = random.Chance(0.1) ? absl::Seconds(20) : absl::Milliseconds(100);
        agenda.After(random.Between(absl::ZeroDuration(), most), std::move(work));
      }};
  BlobCache cache_{1 << 20};
  int lives_ = 0;
  std::vector<Seat> seats_;
};

TEST_CASE("Over a faulty network, with workers that crash, every task gets done and nobody calls without end") {
  ConfigureLog("worker_test", LogLevel::kError);
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    World world(seed, 40, 4);
    world.transport.faults = 0.3;
    world.crashes_per_second = 0.02;
    auto all_done = [&] { return world.server.all_done(); };
    world.RunUntil(absl::Minutes(2), all_done);
    // Once the faults stop, it takes a few leases at the most.
    world.transport.faults = 0;
    world.crashes_per_second = 0;
    absl::Time calm = world.agenda.now();
    world.RunUntil(absl::Hours(1), all_done);
    REQUIRE(world.server.all_done());
    CHECK(world.agenda.now() - calm < kLease * 3);
    CHECK(world.server.num_syncs < 2000);
    CHECK(world.agenda.num_events() < 20'000);
  }
  ConfigureLog("worker_test", LogLevel::kInfo);
}

TEST_CASE("Over a sound network each task is granted once and costs about one call") {
  World world(7, 1000, 4);
  world.RunUntil(absl::Hours(1), [&] { return world.server.all_done(); });
  REQUIRE(world.server.all_done());
  CHECK(world.server.num_granted == 1000);
  INFO(world.server.num_syncs << " calls");
  CHECK(world.server.num_syncs < 1100);
}

}  // namespace
}  // namespace sheaf
