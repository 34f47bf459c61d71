#include "tests/simulation/world.h"

#include <algorithm>

#include "sdk/cpp/proto_duration.h"

namespace sheaf::simulation {
namespace {

constexpr int kListAll = 1000;
// Of no seed's rounds is a lease longer.
constexpr absl::Duration kLongestLease = absl::Seconds(20);
// A round that can be finished is, in calm, after what still hangs, a lost lease or two, and the backoffs.
const absl::Duration kFinishWithin = absl::Seconds(40) + 3 * kLongestLease + absl::Seconds(60);

}  // namespace

World::World(uint64_t seed, StoreKind kind, Statistics& statistics, bool keep_journal)
    : journal_(agenda_, keep_journal),
      statistics_(statistics),
      chance_(seed),
      core_random_(seed ^ 0x636f7265),
      worker_random_(seed ^ 0x776f726b),
      weather_{.agenda = agenda_,
               .journal = journal_,
               .statistics = statistics,
               .chance = chance_,
               .plan = FaultPlan::Draw(chance_)},
      ledger_(journal_, statistics),
      storage_(kind, agenda_.clock()),
      server_({.agenda = agenda_,
               .journal = journal_,
               .statistics = statistics,
               .ledger = ledger_,
               .storage = storage_,
               .chance = chance_,
               .core_random = core_random_,
               .plan = weather_.plan,
               .limits = DrawLimits(chance_)}),
      seats_(weather_, server_, ledger_, worker_random_, 2 + static_cast<int>(chance_.Below(5))),
      observer_(weather_, server_, seats_),
      verifier_(journal_, statistics, ledger_),
      storm_end_(agenda_.now() + chance_.Between(absl::Seconds(20), absl::Seconds(120))) {
  int count = 1 + static_cast<int>(chance_.Below(5));
  for (int i = 0; i < count; ++i) {
    programs_.push_back(std::make_unique<ProgramActor>(weather_, server_, RoundPlan::Draw(i, chance_)));
  }
  server_.SetFaulty(true);
  agenda_.At(storm_end_, [this] { BecomeCalm(); });
  Beat();
}

World::~World() {
  ++statistics_.seeds;
  statistics_.events += agenda_.num_events();
}

std::optional<Violation> World::Run() {
  while (!IsOver() && Advance()) {
  }
  BecomeCalm();
  // What is deferred, delayed or left to the next start.
  absl::Time settled = agenda_.now() + absl::Seconds(20);
  while (agenda_.now() < settled && Advance()) {
  }
  if (!journal_.violation().has_value()) VerifyRounds();
  if (!journal_.violation().has_value()) VerifyNothingIsLeft();
  return journal_.violation();
}

bool World::Advance() {
  bool has_more = agenda_.RunNext();
  return has_more && !journal_.violation().has_value();
}

bool World::IsOver() const {
  return std::all_of(programs_.begin(), programs_.end(), [](const auto& program) { return program->is_done(); });
}

void World::BecomeCalm() {
  if (!weather_.is_stormy) return;
  journal_.Note("the storm is over");
  storm_end_ = agenda_.now();
  weather_.is_stormy = false;
  server_.SetFaulty(false);
  seats_.Mend();
}

void World::Beat() {
  agenda_.After(absl::Seconds(1), [this] { Beat(); });
  server_.CheckService();
  CheckProgress();
  if (weather_.Strikes(weather_.plan.graceful_restart, "graceful restarts begun")) server_.RestartGracefully();
  if (weather_.Strikes(weather_.plan.disk_full, "full disks begun")) {
    server_.FillDisk(chance_.Between(absl::ZeroDuration(), absl::Seconds(10)));
  }
  seats_.Strike();
  std::vector<std::string> rounds;
  for (const auto& program : programs_) {
    if (!program->round().empty()) rounds.push_back(program->round());
  }
  observer_.Act(rounds);
}

// --- Progress ------------------------------------------------------------------------------------

void World::CheckProgress() {
  if (weather_.is_stormy) return;
  auto live =
      server_.tasks().ListRounds({.states = {RoundState::kCollecting, RoundState::kSealing}, .limit = kListAll});
  if (!live.ok()) return journal_.Break("the store answers", "{}", live.status().ToString());
  const absl::Time now = agenda_.now();
  for (const RoundRecord& round : *live) {
    const v1::RoundSpec* spec = server_.monitor().FindSpec(round.id);
    const absl::Duration leases = spec != nullptr ? 3 * FromProtoDuration(spec->lease_duration()) : kLongestLease;
    if (now > std::max(round.deadline_time, storm_end_) + leases) {
      journal_.Break("every round ends", "round {} is not final {} after its deadline", round.id,
                     absl::FormatDuration(now - round.deadline_time));
    }
    if (now > std::max(round.create_time, storm_end_) + kFinishWithin && CanFinish(round)) {
      journal_.Break("what can be done gets done", "round {} is still live {} after the storm", round.id,
                     absl::FormatDuration(now - storm_end_));
    }
  }
  if (now > storm_end_ + absl::Minutes(10)) journal_.Break("every round ends", "a program still waits for its round");
}

bool World::CanFinish(const RoundRecord& round) {
  const v1::RoundSpec* spec = server_.monitor().FindSpec(round.id);
  bool is_blocked = round.tasks.failed > 0 || round.tasks.buried > 0;
  return !is_blocked && spec != nullptr && spec->open_slots().per_worker_max() == 0;
}

// --- The end -------------------------------------------------------------------------------------

template <typename M>
absl::StatusOr<typename M::Response> World::Ask(const M& method, const typename M::Request& request) {
  std::optional<absl::StatusOr<typename M::Response>> result;
  server_.Call(method.name, std::make_shared<typename M::Request>(request), std::make_unique<typename M::Response>(),
               [&](absl::Status status, const google::protobuf::Message* response) {
                 if (status.ok()) {
                   result = static_cast<const typename M::Response&>(*response);
                 } else {
                   result = status;
                 }
               });
  while (!result.has_value() && Advance()) {
  }
  if (result.has_value()) return *std::move(result);
  return absl::InternalError("no answer");
}

std::string World::ReadAggregate(const RoundId& round) {
  std::string file;
  v1::ReadAggregateRequest request;
  request.set_round(round.value());
  for (bool is_read = false; !is_read;) {
    request.set_offset(static_cast<int64_t>(file.size()));
    auto response = Ask(kReadAggregate, request);
    if (!response.ok()) {
      journal_.Break("a released aggregate can be read", "round {}: {}", round, response.status().ToString());
      return "";
    }
    file += response->data();
    is_read = static_cast<int64_t>(file.size()) >= response->size_bytes() || response->data().empty();
  }
  return file;
}

void World::VerifyRounds() {
  auto records = server_.tasks().ListRounds({.limit = kListAll});
  if (!records.ok() || records->size() != programs_.size()) {
    return journal_.Break("one request, one round", "{} programs have {} rounds", programs_.size(),
                          records.ok() ? records->size() : 0);
  }
  for (const RoundRecord& record : *records) {
    auto program = std::find_if(programs_.begin(), programs_.end(),
                                [&](const auto& other) { return other->plan().request_id == record.request_id; });
    EndedRound round{.record = record, .was_cancelled = (*program)->has_cancelled()};
    if ((*program)->round() != record.id.value()) {
      return journal_.Break("one request, one round", "{} knows of {} and has {}", record.request_id,
                            (*program)->round(), record.id);
    }
    auto tasks = server_.tasks().ListTasks({.round = record.id, .limit = kListAll});
    auto contributions = server_.tasks().ListContributions(record.id, 0, kListAll);
    v1::GetRoundRequest get;
    get.set_round(record.id.value());
    auto shown = Ask(kGetRound, get);
    if (!tasks.ok() || !contributions.ok() || !shown.ok() || !round.spec.ParseFromString(record.spec)) {
      return journal_.Break("the store answers", "round {} cannot be read: {}", record.id, shown.status().ToString());
    }
    round.tasks = *std::move(tasks);
    round.contributions = *std::move(contributions);
    round.shown = shown->round();
    if (record.state == RoundState::kSucceeded) round.aggregate = ReadAggregate(record.id);
    verifier_.Check(round);
  }
}

void World::VerifyNothingIsLeft() {
  auto rounds = storage_.payloads().ListRounds();
  if (rounds.ok() && rounds->empty()) return;
  journal_.Break("nothing individual stays", "there are payloads of {} ended rounds, of {} first", rounds->size(),
                 rounds->empty() ? RoundId() : rounds->front());
}

}  // namespace sheaf::simulation
