#include "tests/simulation/seats.h"

#include <algorithm>
#include <utility>

#include "probe/computations/noop.h"
#include "probe/computations/one_hot.h"
#include "probe/computations/slow.h"
#include "tests/simulation/models.h"
#include "worker/computation_table.h"

namespace sheaf::simulation {

Seats::Seats(Weather& weather, SimServers& server, Ledger& ledger, Random& random, const Credentials& credentials,
             int count)
    : weather_(weather),
      server_(server),
      ledger_(ledger),
      random_(random),
      builtin_(ComputationTable{NoopComputation(), OneHotComputation(), SlowComputation()}.Make(
                   {.data = data_, .waiter = waiter_}),
               [](const std::function<void()>& work) { work(); }),
      runner_(weather, builtin_) {
  runner_.set_on_ahead_runs([this](const v1::Lease& lease, const TaskInputs& inputs) { OnAheadRuns(lease, inputs); });
  for (int i = 0; i < count; ++i) {
    auto seat = std::make_unique<Seat>();
    seat->population = i % 2 == 0 ? "red" : "blue";
    // The first of each population can run whatever there is.
    if (i < 2 || weather.chance.Chance(0.5)) seat->labels["gpu"] = "yes";
    seat->transport = std::make_unique<FaultyTransport>(weather, server, credentials.OfWorker(seat->population));
    seats_.push_back(std::move(seat));
    Start(i);
  }
}

void Seats::Start(int number) {
  Seat& seat = *seats_[number];
  if (seat.loop != nullptr || is_closed_) return;
  seat.worker = fmt::format("w{}.{}", number, ++num_lives_);
  ledger_.Register(seat.worker, seat.population);
  weather_.journal.Note("worker {} of {} starts", seat.worker, seat.population);
  WorkerOptions options{.worker = seat.worker,
                        .population = seat.population,
                        .labels = seat.labels,
                        .concurrency = 1 + static_cast<int>(weather_.chance.Below(3)),
                        .prepare_ahead = weather_.plan.announced > 0 ? (number + weather_.plan.prepare_ahead) % 3 : 0};
  seat.loop = std::make_unique<WorkerLoop>(
      std::move(options), WorkerLoop::Parts{*seat.transport, runner_, seat.cache, random_,
                                            [this, number] { StepAt(weather_.agenda.now(), number); }});
  StepAt(weather_.agenda.now(), number);
}

void Seats::OnAheadRuns(const v1::Lease& lease, const TaskInputs& inputs) {
  ++weather_.statistics.announced["runs of what was prepared"];
  const std::string& digest = server_.monitor().BroadcastOf(RoundId(lease.round()));
  if (!ledger_.WasToldOpen(lease.lease_token())) {
    weather_.journal.Break("what is prepared runs when its round has opened", "task {} runs, and nobody said OPENED",
                           lease.task());
  }
  const SimBroadcast* broadcast = FindBroadcast(digest);
  const bool has_it = broadcast == nullptr ? inputs.broadcast == nullptr
                                           : inputs.broadcast != nullptr && *inputs.broadcast == broadcast->whole;
  if (broadcast != nullptr && !broadcast->bases.empty())
    ++weather_.statistics.announced["runs with a patched broadcast"];
  if (inputs.broadcast_digest != digest || !has_it) {
    weather_.journal.Break("what is prepared runs with the broadcast", "task {} runs with \"{}\", its round has \"{}\"",
                           lease.task(), inputs.broadcast_digest, digest);
  }
}

void Seats::Kill(int number, absl::Duration downtime) {
  seats_[number]->loop.reset();
  ++seats_[number]->timer;
  weather_.agenda.After(downtime, [this, number, rest = ++seats_[number]->rest] {
    if (rest == seats_[number]->rest) Start(number);
  });
}

void Seats::StepAt(absl::Time time, int number) {
  Seat& seat = *seats_[number];
  weather_.agenda.At(time, [this, number, timer = ++seat.timer] {
    if (timer == seats_[number]->timer) Step(number);
  });
}

void Seats::Step(int number) {
  Seat& seat = *seats_[number];
  absl::Time next = seat.loop->Step(weather_.agenda.now());
  if (seat.loop->is_done()) {
    weather_.journal.Note("worker {} is done", seat.worker);
    if (!seat.loop->exit_status().ok()) {
      weather_.journal.Break("workers go on", "worker {} gave up: {}", seat.worker,
                             seat.loop->exit_status().ToString());
    }
    return Kill(number, absl::Seconds(1));
  }
  if (next < absl::InfiniteFuture()) StepAt(next, number);
}

void Seats::Strike() {
  for (int i = 0; i < count(); ++i) {
    Seat& seat = *seats_[i];
    if (weather_.Strikes(weather_.plan.partition, "partitions")) {
      absl::Duration duration = weather_.chance.Between(absl::ZeroDuration(), weather_.plan.partition_max);
      weather_.journal.Note("worker {} is cut off for {}", seat.worker, absl::FormatDuration(duration));
      seat.transport->Cut(duration);
    }
    if (seat.loop == nullptr) continue;
    if (weather_.Strikes(weather_.plan.worker_crash, "worker crashes")) {
      weather_.journal.Note("worker {} crashes", seat.worker);
      Kill(i, weather_.chance.Between(absl::ZeroDuration(), absl::Seconds(10)));
    } else if (weather_.Strikes(weather_.plan.worker_stop, "workers told to stop")) {
      weather_.journal.Note("worker {} is told to stop", seat.worker);
      seat.loop->RequestDrain();
    }
  }
}

void Seats::Mend() {
  for (const auto& seat : seats_) seat->transport->Mend();
  for (int i = 0; i < count(); ++i) Start(i);
  runner_.Mend();
}

void Seats::Close() {
  is_closed_ = true;
  for (const auto& seat : seats_) {
    if (seat->loop != nullptr) seat->loop->RequestDrain();
  }
}

bool Seats::is_empty() const {
  return std::all_of(seats_.begin(), seats_.end(), [](const auto& seat) { return seat->loop == nullptr; });
}

std::vector<FaultyTransport*> Seats::links() const {
  std::vector<FaultyTransport*> links;
  for (const auto& seat : seats_) links.push_back(seat->transport.get());
  return links;
}

}  // namespace sheaf::simulation
