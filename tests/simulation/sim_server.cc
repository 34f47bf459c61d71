#include "tests/simulation/sim_server.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "proto/time.h"
#include "sheaf/v1/blob_service.pb.h"
#include "sheaf/v1/round_service.pb.h"
#include "storage/sql/sql_task_store.h"
#include "storage/sqlite/sqlite_engine.h"

namespace sheaf::simulation {
namespace {

// Beyond what the caller allowed for waiting.
constexpr absl::Duration kAnswerWithin = absl::Seconds(2);
// When nobody may wait any more.
constexpr absl::Duration kDrainAnswerWithin = absl::Milliseconds(20);
// Ticks alone, in a second.
constexpr int64_t kIdleBatchesMax = 100;
// A task that can be leased and a worker that waits for one find each other; between them lies the core's rest after a
// failed batch.
constexpr absl::Duration kMeetWithin = absl::Seconds(1);
// Beats, of a second each, at which something may be overdue, one after the other.
constexpr int kOverdueBeatsMax = 2;
// How often a crash is aimed at one operation, and how much longer the server then lives without it: a rare one comes
// late.
constexpr double kAimed = 0.5;
constexpr int64_t kAimedLongerTimes = 10;
// Down for so long, if nothing else goes wrong.
constexpr absl::Duration kRestart = absl::Milliseconds(100);
// As the core thread's.
constexpr absl::Duration kTickIntervalMin = absl::Milliseconds(1);
// How often who waits for its turn looks, and an owner is heard of in the time after which it is taken over.
constexpr absl::Duration kLookInterval = absl::Milliseconds(100);
constexpr int kBeats = 5;
// How often an owner that cannot reach its database ends.
constexpr double kDatabaseGivenUp = 0.2;
constexpr absl::Duration kPollWaitMax = absl::Seconds(60);
// How often the server hears that nobody waits for a call any more.
constexpr double kCallerGone = 0.1;

// How often a batch leaves calls for the next one.
constexpr double kSmallBatch = 0.1;

// Of a batch that leaves calls unread, the oldest of which came then.
class UnreadSince final : public BatchControl {
 public:
  explicit UnreadSince(absl::Time oldest) : oldest_(oldest) {}
  absl::Time ReadUntil(absl::Time now) override { return std::min(now, oldest_); }

 private:
  const absl::Time oldest_;
};

absl::Duration WaitOf(const google::protobuf::Message& request) {
  absl::Duration wait;
  if (const auto* sync = dynamic_cast<const v1::SyncRequest*>(&request)) wait = FromProto(sync->wait());
  if (const auto* get = dynamic_cast<const v1::GetRoundRequest*>(&request)) wait = FromProto(get->wait());
  return std::min(wait, kPollWaitMax);
}

}  // namespace

SimServer::SimServer(Parts parts, StoreMonitor& monitor, int number, SimDatabase* database)
    : parts_(parts),
      point_(parts_.statistics),
      monitor_(monitor),
      number_(number),
      database_(database),
      task_store_(std::make_unique<CrashingTaskStore>(parts_.storage.tasks(), point_, monitor_)),
      payload_store_(parts_.storage.payloads(), point_, monitor_),
      background_(
          parts_.agenda, parts_.chance, [this](const Background::Job& job) { Guard(job); },
          [this] { return frozen_until_; }) {
  point_.Arm(parts_.crash_at);
  Start();
}

SimServer::~SimServer() { point_.Disarm(); }

// --- Lives ---------------------------------------------------------------------------------------

void SimServer::Arm() {
  if (parts_.crash_at > 0) return;
  if (!is_faulty_ || parts_.plan.operations_per_crash == 0) return point_.Disarm();
  if (point_.is_armed()) return;
  const bool is_aimed = parts_.chance.Chance(kAimed);
  const int64_t passages_max = 2 * parts_.plan.operations_per_crash * (is_aimed ? kAimedLongerTimes : 1);
  point_.Arm(1 + static_cast<int64_t>(parts_.chance.Below(passages_max)));
  if (!is_aimed) return;
  point_.Aim(StoreOperations()[parts_.chance.Below(StoreOperations().size())].operation, parts_.chance.Chance(0.5));
}

void SimServer::Start() {
  ++num_lives_;
  parts_.journal.Note("the server starts, life {}", num_lives_);
  is_stopping_ = false;
  listens_ = true;
  well_since_ = parts_.agenda.now();
  if (database_ != nullptr) return LookAt(parts_.agenda.now());
  Live();
}

void SimServer::LookAt(absl::Time time) {
  parts_.agenda.At(time, [this, rest = ++rest_] {
    if (rest != rest_ || life_ != nullptr) return;
    if (IsFrozen()) return LookAt(frozen_until_);
    if (!database_->is_cut(number_)) {
      seen_owner_ = database_->FindOwner();
      if (seen_owner_ == number_) seen_owner_.reset();
      if (database_->CanTake(number_)) return TakeOver();
    }
    LookAt(parts_.agenda.now() + kLookInterval);
  });
}

void SimServer::TakeOver() {
  parts_.journal.Note("server {} takes the database", number_);
  std::unique_ptr<SimSession> session = database_->Take(number_);
  SimSession& its_session = *session;
  has_lost_ = false;
  // What only the former owner's process had is out of reach.
  parts_.storage.payloads().DropUnsynced();
  auto store = SqlTaskStore::Open(std::make_unique<SqliteEngine>(std::move(session)));
  if (absl::IsAborted(store.status()) || absl::IsUnavailable(store.status())) {
    return Crash("it cannot open its database");
  }
  SHEAF_CHECK(store.ok(), "{}", store.status().ToString());
  own_store_ = *std::move(store);
  parts_.storage.Show(*own_store_);
  monitor_.set_store(*own_store_);
  task_store_ = std::make_unique<CrashingTaskStore>(*own_store_, point_, monitor_, [this, &its_session] {
    if (!its_session.has_committed()) return false;
    // This process will never know; whoever looks at the database does.
    parts_.storage.Reopen();
    monitor_.set_store(parts_.storage.tasks());
    return true;
  });
  well_since_ = parts_.agenda.now();
  Live();
}

void SimServer::Live() {
  Guard([this] {
    Arm();
    const Core::Options options = {
        .limits = parts_.limits, .data_directory = "simulated", .folds = &background_, .receptions = &background_};
    life_ = std::make_unique<ServerParts>(*task_store_, payload_store_, *this, parts_.core_random,
                                          parts_.agenda.clock(), options);
    absl::Status status = life_->core.Recover(parts_.agenda.now());
    if (absl::IsResourceExhausted(status)) return Crash("its disk is full");
    if (database_ != nullptr && (absl::IsAborted(status) || absl::IsUnavailable(status))) {
      return Crash("it cannot recover from its database");
    }
    if (!status.ok()) return parts_.journal.Break("a server recovers", "{}", status.ToString());
    monitor_.NoteCrash();
    if (num_lives_ > 1) monitor_.NoteRecovered();
    ScheduleBatch(parts_.agenda.now());
  });
}

void SimServer::Guard(const std::function<void()>& work) {
  if (database_ == nullptr) {
    try {
      work();
    } catch (const ServerCrash&) {
      Crash("its power fails");
    }
    return;
  }
  const int before = database_->SetActing(number_);
  const bool was_owners = monitor_.is_owners();
  has_lost_ |= database_->owner().server != number_;
  monitor_.SetIsOwners(!has_lost_);
  try {
    work();
  } catch (const ServerCrash&) {
    Crash("its power fails");
  }
  monitor_.SetIsOwners(was_owners);
  database_->SetActing(before);
}

void SimServer::Crash(std::string_view why) {
  ++parts_.statistics.faults["server crashes"];
  parts_.journal.Note("the server is gone: {}", why);
  monitor_.NoteCrash();
  last_crash_ = parts_.agenda.now();
  Stop(is_faulty_ ? parts_.chance.Between(absl::ZeroDuration(), parts_.plan.downtime_max) : kRestart);
}

void SimServer::Stop(absl::Duration downtime) {
  if (parts_.crash_at == 0) point_.Disarm();
  if (task_store_->is_in_batch()) task_store_->RollbackBatch();
  inbox_.clear();
  background_.Clear();
  ++batch_;
  batch_time_ = absl::InfiniteFuture();
  if (database_ == nullptr) parts_.ledger.OnCrash();
  std::map<int64_t, Pending> pending = std::exchange(pending_, {});
  life_.reset();
  if (database_ == nullptr) {
    parts_.storage.Crash();
    monitor_.set_store(parts_.storage.tasks());
    task_store_ = std::make_unique<CrashingTaskStore>(parts_.storage.tasks(), point_, monitor_);
  } else if (own_store_ != nullptr) {
    if (&parts_.storage.tasks() == own_store_.get()) {
      parts_.storage.Reopen();
      monitor_.set_store(parts_.storage.tasks());
    }
    task_store_ = std::make_unique<CrashingTaskStore>(parts_.storage.tasks(), point_, monitor_);
    own_store_.reset();
  }
  for (auto& [id, call] : pending) {
    const auto* sync = dynamic_cast<const v1::SyncRequest*>(call.request.get());
    if (database_ != nullptr && sync != nullptr) parts_.ledger.OnSyncEnded(call.ledger_call, *sync);
    // Where the network is well, they all hear of it, also of a crash that comes as the last fault.
    if (parts_.chance.Chance(0.5) || !is_faulty_) {
      call.on_answer(absl::UnavailableError("the connection was reset"), nullptr);
    }
  }
  parts_.agenda.After(downtime, [this, rest = ++rest_] {
    if (rest == rest_) Start();
  });
}

void SimServer::RestartGracefully() {
  if (life_ == nullptr || is_stopping_ || IsFrozen()) return;
  ++parts_.statistics.faults["graceful restarts"];
  parts_.journal.Note("the server is told to stop");
  is_stopping_ = true;
  background_.Hurry();
  int64_t life = num_lives_;
  Post([this](absl::Time now) { life_->core.BeginDrain(now); });
  parts_.agenda.After(absl::Milliseconds(200), [this, life] {
    if (life != num_lives_ || life_ == nullptr) return;
    for (const auto& [id, call] : pending_) {
      // One that cannot reach its database, or has lost it, says nothing.
      if (database_ != nullptr || parts_.agenda.now() - call.arrival < kDrainAnswerWithin) continue;
      parts_.journal.Break("every poll is answered", "a draining server still keeps {} call {}", call.method, id);
    }
    listens_ = false;
    bool had_room = !point_.disk_is_full;
    Post([this](absl::Time now) { life_->core.CheckpointAll(now); });
    parts_.agenda.After(absl::Milliseconds(200), [this, life, had_room] {
      if (life != num_lives_ || life_ == nullptr) return;
      if (had_room && !point_.disk_is_full && database_ == nullptr) monitor_.NoteGracefulStop();
      if (database_ != nullptr && Owns()) database_->Release(number_);
      parts_.journal.Note("the server has stopped");
      Stop(is_faulty_ ? parts_.chance.Between(absl::ZeroDuration(), absl::Seconds(2)) : absl::ZeroDuration());
    });
  });
}

void SimServer::BecomeFaulty() {
  is_faulty_ = true;
  Arm();
}

void SimServer::Mend() {
  is_faulty_ = false;
  EmptyDisk();
  if (parts_.crash_at == 0) point_.Disarm();
  frozen_until_ = std::min(frozen_until_, parts_.agenda.now());
  if (database_ != nullptr) database_->Cut(number_, false);
  if (database_ != nullptr && life_ != nullptr) ScheduleBatch(parts_.agenda.now());
  if (life_ == nullptr) {
    ++rest_;
    return Start();
  }
  for (auto& [id, call] : pending_) Abandon(call);
}

void SimServer::FillDisk(absl::Duration duration) {
  ++parts_.statistics.faults["full disks"];
  parts_.journal.Note("the disk is full for {}", absl::FormatDuration(duration));
  point_.disk_is_full = true;
  point_.payload_disk_is_full = parts_.chance.Chance(0.5);
  parts_.agenda.After(duration, [this] { EmptyDisk(); });
}

void SimServer::Pause(absl::Duration duration) {
  if (is_stopping_ || IsFrozen()) return;
  ++parts_.statistics.shared["pauses"];
  parts_.statistics.shared["pauses beyond a takeover"] += Owns() && duration > database_->takeover_after();
  parts_.journal.Note("server {} stands still for {}", number_, absl::FormatDuration(duration));
  frozen_until_ = parts_.agenda.now() + duration;
  well_since_ = frozen_until_;
  for (auto& [id, call] : pending_) call.due += duration;
}

void SimServer::CutFromDatabase(absl::Duration duration) {
  ++parts_.statistics.shared["partitions from the database"];
  parts_.journal.Note("server {} does not reach the database for {}", number_, absl::FormatDuration(duration));
  cut_until_ = std::max(cut_until_, parts_.agenda.now() + duration);
  database_->Cut(number_, true);
  parts_.agenda.At(cut_until_, [this] {
    if (!database_->is_cut(number_) || parts_.agenda.now() < cut_until_) return;
    database_->Cut(number_, false);
    well_since_ = parts_.agenda.now();
    // What came meanwhile is read only now, and begins to wait.
    for (auto& [id, call] : pending_) {
      call.due = std::max(call.due, parts_.agenda.now() + WaitOf(*call.request) + kAnswerWithin);
    }
  });
}

void SimServer::EmptyDisk() {
  point_.disk_is_full = false;
  point_.payload_disk_is_full = false;
  well_since_ = parts_.agenda.now();
}

// --- Batches -------------------------------------------------------------------------------------

void SimServer::Post(Event event) {
  inbox_.push_back({std::move(event), parts_.agenda.now()});
  ScheduleBatch(parts_.agenda.now() + parts_.chance.Between(absl::ZeroDuration(), absl::Milliseconds(1)));
}

void SimServer::Defer(Deferred deferred) { life_->runner.Defer(std::move(deferred)); }

void SimServer::ScheduleBatch(absl::Time time) {
  if (time >= batch_time_) return;
  batch_time_ = time;
  parts_.agenda.At(time, [this, batch = ++batch_] {
    if (batch != batch_ || life_ == nullptr) return;
    if (!IsFrozen()) return RunBatch();
    batch_time_ = absl::InfiniteFuture();
    ScheduleBatch(frozen_until_);
  });
}

void SimServer::RunBatch() {
  batch_time_ = absl::InfiniteFuture();
  if (database_ != nullptr && database_->is_cut(number_)) {
    // The core waits for its database, and does nothing else; after some time the process ends.
    if (is_faulty_ && parts_.chance.Chance(kDatabaseGivenUp)) return Crash("it gives its database up");
    return ScheduleBatch(cut_until_);
  }
  ++parts_.statistics.batches;
  if (inbox_.empty()) ++num_idle_batches_;
  absl::Time now = parts_.agenda.now();
  // Now and then a batch takes only some of what waits.
  size_t num_taken = inbox_.size();
  if (num_taken > 1 && parts_.chance.Chance(kSmallBatch)) num_taken = 1 + parts_.chance.Below(num_taken - 1);
  std::vector<Event> events;
  for (size_t i = 0; i < num_taken; ++i) events.push_back(std::move(inbox_[i].event));
  inbox_.erase(inbox_.begin(), inbox_.begin() + static_cast<std::ptrdiff_t>(num_taken));
  UnreadSince control(inbox_.empty() ? absl::InfiniteFuture() : inbox_.front().arrival);
  if (!inbox_.empty()) ScheduleBatch(now);
  Guard([&] {
    absl::Status status = life_->runner.Run(std::move(events), now, control);
    if (absl::IsAborted(status)) return Crash("the database is another server's");
    if (absl::IsInternal(status) || absl::IsDataLoss(status)) {
      return parts_.journal.Break("the server keeps going", "{}", status.ToString());
    }
    absl::Time next = life_->core.NextTick(now);
    // Also where nothing happens its commits are heard of.
    if (database_ != nullptr) next = std::min(next, now + database_->takeover_after() / kBeats);
    if (next < absl::InfiniteFuture()) ScheduleBatch(std::max(next, now + kTickIntervalMin));
  });
}

// --- Calls ---------------------------------------------------------------------------------------

void SimServer::Call(std::string_view method, const std::string& authorization, std::shared_ptr<const Message> request,
                     std::unique_ptr<Message> response, OnAnswer on_answer) {
  if (IsFrozen()) {
    // It lies in the socket.
    auto shared = std::make_shared<std::unique_ptr<Message>>(std::move(response));
    return parts_.agenda.At(frozen_until_, [this, method = std::string(method), authorization, request, shared,
                                            on_answer = std::move(on_answer)]() mutable {
      Call(method, authorization, request, std::move(*shared), std::move(on_answer));
    });
  }
  if (life_ == nullptr || !listens_) return on_answer(absl::UnavailableError("nobody listens"), nullptr);
  ++parts_.statistics.calls;
  absl::Time arrival = parts_.agenda.now();
  int64_t id = ++newest_call_;
  Pending& call = pending_[id];
  call = {.method = std::string(method),
          .arrival = arrival,
          .due = arrival + WaitOf(*request) + kAnswerWithin,
          .request = request,
          .on_answer = std::move(on_answer)};
  if (const auto* sync = dynamic_cast<const v1::SyncRequest*>(request.get())) {
    call.ledger_call = parts_.ledger.OnSyncArrives(*sync);
    parts_.journal.Note("{} calls: {} results, {} held, wants {} ({}){}", sync->worker(), sync->results_size(),
                        sync->held_size(), sync->want(), sync->poll_id(), sync->draining() ? ", draining" : "");
  }
  Guard([&] {
    auto shared = std::shared_ptr<Message>(std::move(response));
    const absl::StatusOr<IdentityPtr> caller = life_->core.access().Authenticate(authorization, {});
    if (!caller.ok()) return Answer(id, caller.status(), *shared, arrival);
    call.in_server = life_->dispatcher.NewCall();
    life_->dispatcher.Dispatch(method, {.id = call.in_server, .caller = *caller}, *request, shared.get(),
                               [this, id, life = num_lives_, arrival, shared](const absl::Status& status) {
                                 if (life == num_lives_) Answer(id, status, *shared, arrival);
                               });
  });
  if (is_faulty_) AbandonOlder(id);
  if (is_faulty_ && WaitOf(*request) > absl::ZeroDuration() && parts_.chance.Chance(kCallerGone)) {
    parts_.agenda.After(parts_.chance.Between(absl::ZeroDuration(), WaitOf(*request)), [this, id, life = num_lives_] {
      if (life != num_lives_ || life_ == nullptr || !pending_.contains(id)) return;
      ++parts_.statistics.faults["callers gone"];
      Abandon(pending_.at(id));
    });
  }
}

void SimServer::AbandonOlder(int64_t newest) {
  const auto found = pending_.find(newest);
  if (life_ == nullptr || found == pending_.end()) return;
  const auto* sync = dynamic_cast<const v1::SyncRequest*>(found->second.request.get());
  if (sync == nullptr) return;
  for (auto& [id, call] : pending_) {
    const auto* older = id == newest ? nullptr : dynamic_cast<const v1::SyncRequest*>(call.request.get());
    if (older == nullptr || older->worker() != sync->worker() || !parts_.chance.Chance(kCallerGone)) continue;
    ++parts_.statistics.faults["callers gone that call again"];
    Abandon(call);
  }
}

void SimServer::Abandon(Pending& call) {
  call.is_abandoned = true;
  life_->dispatcher.Abandon(*life_->methods.Find(call.method), *Identity::Anybody(), call.in_server);
}

void SimServer::Answer(int64_t id, const absl::Status& status, const Message& response, absl::Time arrival) {
  auto found = pending_.find(id);
  if (found == pending_.end()) {
    return parts_.journal.Break("every poll is answered", "call {} was answered twice", id);
  }
  Pending call = std::move(found->second);
  pending_.erase(found);
  if (absl::IsCancelled(status) && !call.is_abandoned) {
    parts_.journal.Break("only who has gone is dropped", "{} call {} was ended: {}", call.method, id,
                         status.ToString());
  }
  // Whoever comes for the broadcast of a round that has ended meanwhile is too late. Each is of one population.
  const auto* read = dynamic_cast<const v1::ReadBlobRequest*>(call.request.get());
  const auto is_too_late = [&] {
    const std::vector<std::string> live = monitor_.LiveBroadcasts();
    return read != nullptr && std::find(live.begin(), live.end(), read->digest()) == live.end();
  };
  if (absl::IsUnauthenticated(status) || (absl::IsPermissionDenied(status) && !is_too_late())) {
    parts_.journal.Break("who has a token may do what it says", "{} call {}: {}", call.method, id, status.ToString());
  }
  if (task_store_->is_in_batch()) {
    parts_.journal.Break("durable before told", "{} call {} was answered inside a batch", call.method, id);
  }
  if (const auto* sync = dynamic_cast<const v1::SyncRequest*>(call.request.get())) {
    const auto& answer = static_cast<const v1::SyncResponse&>(response);
    parts_.journal.Note("{} is answered {}: {} leases{}", sync->worker(), status.ToString(), answer.leases_size(),
                        answer.drain() ? ", drain" : "");
    if (status.ok()) {
      parts_.ledger.OnSyncAnswered(call.ledger_call, *sync, answer, {.arrival = arrival, .now = parts_.agenda.now()},
                                   tasks(), monitor_);
    } else {
      parts_.ledger.OnSyncEnded(call.ledger_call, *sync);
    }
  }
  call.on_answer(status, status.ok() ? &response : nullptr);
}

void SimServer::CheckService() {
  if (num_idle_batches_ > kIdleBatchesMax) {
    parts_.journal.Break("a server without work rests", "it ran {} batches without an event in a second",
                         num_idle_batches_);
  }
  num_idle_batches_ = 0;
  for (const auto& [id, call] : pending_) {
    if (parts_.agenda.now() <= call.due || (database_ != nullptr && !IsWell())) continue;
    parts_.journal.Break("every poll is answered", "{} call {} is {} overdue", call.method, id,
                         absl::FormatDuration(parts_.agenda.now() - call.due));
  }
  const bool is_well = IsWell();
  for (auto& [id, call] : pending_) {
    call.num_overdue = is_well && HasNews(call) ? call.num_overdue + 1 : 0;
    if (call.num_overdue <= kOverdueBeatsMax) continue;
    parts_.journal.Break("who waits is told", "{} call {} is not answered, although what it waits for has happened",
                         call.method, id);
  }
  if (database_ == nullptr || Owns()) monitor_.CheckTimely(parts_.agenda.now(), is_well);
  if (!is_well) return;
  CheckOnePollPerWorker();
  CheckWorkMeetsWorkers();
}

void SimServer::CheckOnePollPerWorker() {
  std::set<std::string> waiting;
  for (const auto& [id, call] : pending_) {
    const auto* sync = dynamic_cast<const v1::SyncRequest*>(call.request.get());
    if (sync == nullptr || call.arrival > parts_.agenda.now() - kMeetWithin) continue;
    if (waiting.insert(sync->worker()).second) continue;
    parts_.journal.Break("a newer call ends the older one", "two calls of worker {} wait", sync->worker());
  }
}

bool SimServer::IsWell() const {
  const bool has_room = !point_.disk_is_full && !point_.payload_disk_is_full;
  const bool has_database = database_ == nullptr || (Owns() && !IsFrozen() && !database_->is_cut(number_));
  return life_ != nullptr && !is_stopping_ && has_room && has_database &&
         well_since_ <= parts_.agenda.now() - kMeetWithin;
}

bool SimServer::HasNews(const Pending& call) {
  if (const auto* get = dynamic_cast<const v1::GetRoundRequest*>(call.request.get())) {
    const absl::StatusOr<RoundRecord> round = tasks().GetRound(RoundId(get->round()));
    return !round.ok() || std::to_string(round->version) != get->etag();
  }
  const auto* sync = dynamic_cast<const v1::SyncRequest*>(call.request.get());
  if (sync == nullptr) return false;
  return std::any_of(sync->held().begin(), sync->held().end(), [this](const v1::HeldLease& held) {
    const std::optional<TaskId> task = TaskId::Parse(held.task());
    if (!task.has_value()) return false;
    const TaskId place = monitor_.PlaceOf(*task).id;
    const RoundState state = monitor_.StateOf(place.round);
    if (place != *task) return held.announced() || !HandsOutTasks(state);
    return held.announced() ? state != RoundState::kAnnounced : state != RoundState::kCollecting;
  });
}

std::string SimServer::Leaks() {
  if (life_ == nullptr) return "it is not up";
  std::string leaks;
  for (const auto& [id, call] : pending_) leaks += fmt::format(" {} call {} waits;", call.method, id);
  for (const auto& [id, round] : life_->core.rounds().all()) leaks += fmt::format(" round {} is live;", id);
  for (const char* population : {"red", "blue"}) {
    const int64_t num_parked = life_->core.polls().Num(population);
    if (num_parked > 0) leaks += fmt::format(" {} polls are parked;", num_parked);
  }
  return leaks;
}

void SimServer::CheckWorkMeetsWorkers() {
  const absl::Time lately = parts_.agenda.now() - kMeetWithin;
  const absl::StatusOr<std::vector<WorkerRecord>> workers = tasks().ListWorkers({.limit = 1000});
  if (!workers.ok()) return parts_.journal.Break("the store answers", "{}", workers.status().ToString());
  std::set<std::pair<std::string, std::string>> served;
  for (const WorkerRecord& worker : *workers) {
    if (!worker.is_draining) served.insert({worker.population, worker.name.value()});
  }
  // By population, and whether for tasks to prepare.
  std::map<std::pair<std::string, bool>, std::string> waiting;
  for (const auto& [id, call] : pending_) {
    const auto* sync = dynamic_cast<const v1::SyncRequest*>(call.request.get());
    if (sync == nullptr || sync->draining() || call.arrival > lately) continue;
    if (!served.contains({sync->population(), sync->worker()})) continue;
    if (sync->want() > 0) waiting[{sync->population(), false}] = sync->worker();
    if (sync->want_announced() > 0) waiting[{sync->population(), true}] = sync->worker();
  }
  if (waiting.empty()) return;
  auto queued = tasks().ListTasks({.states = {TaskState::kQueued}, .limit = 1000});
  if (!queued.ok()) return parts_.journal.Break("the store answers", "{}", queued.status().ToString());
  for (const TaskRecord& task : *queued) {
    const v1::RoundSpec* spec = monitor_.FindSpec(task.id.round);
    const bool is_announced = spec != nullptr && monitor_.StateOf(task.id.round) == RoundState::kAnnounced;
    if (spec == nullptr || !task.requirement.empty() || task.available_time > lately ||
        spec->open_slots().per_worker_max() > 0 || !waiting.contains({spec->population(), is_announced})) {
      continue;
    }
    parts_.journal.Break("work and workers meet", "task {} lies in the queue while worker {} waits", task.id.ToString(),
                         waiting[{spec->population(), is_announced}]);
  }
}

}  // namespace sheaf::simulation
