#include "tests/simulation/world.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>

#include "base/checksum.h"
#include "server/core/inspection/views.h"
#include "server/stored/round_spec.h"

namespace sheaf::simulation {
namespace {

constexpr int kListAll = 1000;
constexpr int kAsksMax = 5;
// A worker that is told to stop while nothing goes wrong has handed in or given back what it held.
constexpr absl::Duration kStopWithin = absl::Seconds(40);
// The core looks for what nobody refers to every ten minutes; the first look that finds it begins its time.
constexpr absl::Duration kCleanWithin = absl::Minutes(21);

}  // namespace

World::World(const WorldOptions& options, Statistics& statistics)
    : options_(options),
      journal_(agenda_, options.keep_journal),
      statistics_(statistics),
      chance_(options.seed),
      announcing_(options.seed ^ 0x616e6e6f),
      carrying_(options.seed ^ 0x63617272),
      core_random_(options.seed ^ 0x636f7265),
      worker_random_(options.seed ^ 0x776f726b),
      weather_{.agenda = agenda_,
               .journal = journal_,
               .statistics = statistics,
               .chance = chance_,
               .plan = FaultPlan::Draw(chance_, announcing_)},
      limits_(DrawLimits(chance_)),
      ledger_(journal_, statistics),
      storage_(options.store),
      credentials_(weather_.plan.uses_tokens ? Credentials::Create(storage_.tasks(), core_random_, agenda_.now())
                                             : Credentials()),
      server_(weather_,
              {.agenda = agenda_,
               .journal = journal_,
               .statistics = statistics,
               .ledger = ledger_,
               .storage = storage_,
               .chance = chance_,
               .core_random = core_random_,
               .plan = weather_.plan,
               .limits = limits_,
               .crash_at = options.crash_at},
              options.num_servers, options.seed),
      seats_(weather_, server_, ledger_, worker_random_, credentials_, 2 + static_cast<int>(chance_.Below(5))),
      observer_(weather_, server_, credentials_.operators, seats_),
      verifier_(journal_, statistics, ledger_),
      progress_(journal_, statistics, server_, limits_) {
  server_.monitor().set_on_ended([this](const RoundId& round) { OnRoundEnded(round); });
  std::vector<FaultyTransport*> links = seats_.links();
  links.push_back(&observer_.link());
  int count = 1 + static_cast<int>(chance_.Below(5));
  for (int i = 0; i < count; ++i) {
    RoundPlan plan = RoundPlan::Draw(i, chance_);
    if (announcing_.Chance(weather_.plan.announced)) plan.Announce(announcing_);
    programs_.push_back(std::make_unique<ProgramActor>(weather_, server_, credentials_.submitter, std::move(plan)));
    links.push_back(&programs_.back()->link());
  }
  if (carrying_.Chance(0.4)) CreateChain(count, links);
  swizzle_ = std::make_unique<Swizzle>(weather_, std::move(links));
  server_.BecomeFaulty();
  if (options.mode == Mode::kLiveness) {
    agenda_.After(chance_.Between(absl::Seconds(20), absl::Seconds(120)), [this] { BecomeCalm(); });
  } else {
    agenda_.After(chance_.Between(absl::Seconds(60), absl::Seconds(240)), [this] { is_over_ = true; });
  }
  Beat();
}

void World::CreateChain(int number, std::vector<FaultyTransport*>& links) {
  const bool announces = carrying_.Chance(0.6);
  RoundPlan plan = RoundPlan::DrawContinued(number, carrying_);
  const ProgramActor* before = nullptr;
  for (int left = 1 + static_cast<int>(carrying_.Below(4)); left >= 0; --left) {
    RoundPlan next = RoundPlan::DrawContinuing(++number, plan, carrying_);
    if (announces && before != nullptr) plan.Announce(carrying_);
    programs_.push_back(
        std::make_unique<ProgramActor>(weather_, server_, credentials_.submitter, std::move(plan), before));
    before = programs_.back().get();
    links.push_back(&programs_.back()->link());
    plan = std::move(next);
  }
}

World::~World() {
  ++statistics_.seeds;
  statistics_.safety_seeds += options_.mode == Mode::kSafety;
  statistics_.sqlite_seeds += options_.store == StoreKind::kSqlite;
  statistics_.many_servers_seeds += options_.num_servers > 1;
  statistics_.token_seeds += weather_.plan.uses_tokens;
  statistics_.events += agenda_.num_events();
}

std::optional<Violation> World::Run() {
  while (!IsOver() && Advance()) {
  }
  if (options_.mode == Mode::kLiveness && !journal_.violation().has_value()) {
    BecomeCalm();
    VerifyRounds();
    Close();
    VerifyNothingIsLeft();
  } else if (!journal_.violation().has_value()) {
    VerifyRounds();
  }
  return journal_.violation();
}

bool World::Advance() {
  bool has_more = agenda_.RunNext();
  return has_more && !journal_.violation().has_value();
}

void World::AdvanceTo(absl::Time time) {
  while (agenda_.now() < time && Advance()) {
  }
}

bool World::IsOver() const {
  if (is_over_) return true;
  const bool are_done =
      std::all_of(programs_.begin(), programs_.end(), [](const auto& program) { return program->is_done(); });
  // A request that was repeated after its round was deleted makes another, which no program waits for.
  return are_done && server_.monitor().num_live() == 0;
}

void World::BecomeCalm() {
  if (!weather_.is_stormy) return;
  journal_.Note("the storm is over");
  weather_.is_stormy = false;
  weather_.calm_time = agenda_.now();
  server_.Mend();
  seats_.Mend();
  observer_.link().Mend();
  for (const auto& program : programs_) program->link().Mend();
}

void World::Beat() {
  if (is_closing_) return;
  agenda_.After(absl::Seconds(1), [this] { Beat(); });
  server_.CheckService();
  for (const std::string& digest : server_.monitor().LiveBroadcasts()) {
    if (!storage_.payloads().HasBlob(digest)) {
      journal_.Break("a live round has its broadcast", "broadcast {} is gone", digest);
    }
  }
  if (!weather_.is_stormy) progress_.Check(weather_.calm_time, agenda_.now());
  if (weather_.Strikes(weather_.plan.graceful_restart, "graceful restarts begun")) server_.RestartGracefully();
  if (weather_.Strikes(weather_.plan.disk_full, "full disks begun")) {
    server_.FillDisk(chance_.Between(absl::ZeroDuration(), absl::Seconds(10)));
  }
  server_.Strike();
  seats_.Strike();
  swizzle_->Strike();
  std::vector<std::string> rounds;
  for (const auto& program : programs_) {
    if (!program->round().empty()) rounds.push_back(program->round());
  }
  observer_.Act(rounds);
}

// --- Rounds that end -----------------------------------------------------------------------------

const ProgramActor* World::ProgramOf(const std::string& request_id) const {
  auto found = std::find_if(programs_.begin(), programs_.end(),
                            [&](const auto& program) { return program->plan().request_id == request_id; });
  return found == programs_.end() ? nullptr : found->get();
}

EndedRound World::ReadRound(const RoundRecord& record) {
  EndedRound round{.record = record};
  const ProgramActor* program = ProgramOf(record.request_id);
  round.was_opened = !server_.monitor().FindSpec(record.id)->announced() ||
                     server_.monitor().OpenTimeOf(record.id) < absl::InfiniteFuture();
  round.was_cancelled = program != nullptr && program->has_cancelled();
  if (program != nullptr && program->plan().broadcast != nullptr) {
    round.broadcast_digest = program->plan().broadcast->digest;
  }
  auto tasks = server_.tasks().ListTasks({.round = record.id, .limit = kListAll});
  auto contributions = server_.tasks().ListContributions(record.id, 0, kListAll);
  auto spec = DecodeSpec(record);
  auto release = DecodeRelease(record);
  if (program == nullptr || !tasks.ok() || !contributions.ok() || !spec.ok() || !release.ok()) {
    journal_.Break("the store answers", "round {} of {} cannot be read", record.id, record.request_id);
    return round;
  }
  round.spec = *std::move(spec);
  round.release = *std::move(release);
  round.tasks = *std::move(tasks);
  // The store forgets where a task went whose round was deleted since.
  for (TaskRecord& task : round.tasks) task.carried_to = server_.monitor().FindTask(task.id)->carried_to;
  round.contributions = *std::move(contributions);
  if (record.state != RoundState::kSucceeded) return round;
  const std::string& digest = round.release.aggregate.digest();
  auto blob = storage_.payloads().OpenBlob(digest);
  const auto bytes = blob.ok() ? (*blob)->Read(0, (*blob)->size_bytes()) : blob.status();
  if (!bytes.ok() || Sha256Hex(*bytes) != digest) {
    journal_.Break("a released aggregate can be read", "round {}: {}", record.id, bytes.status().ToString());
    return round;
  }
  round.aggregate = *bytes;
  return round;
}

void World::OnRoundEnded(const RoundId& id) {
  const absl::StatusOr<RoundRecord> record = server_.tasks().GetRound(id);
  if (!record.ok()) return journal_.Break("the store answers", "round {}: {}", id, record.status().ToString());
  const EndedRound round = ReadRound(*record);
  if (!journal_.violation().has_value()) verifier_.Check(round);
}

// --- The end -------------------------------------------------------------------------------------

template <typename M>
absl::StatusOr<typename M::Response> World::Ask(const M& method, const typename M::Request& request) {
  // Where the server crashes once, it may do so now.
  for (int attempt = 0; attempt < kAsksMax && !journal_.violation().has_value(); ++attempt) {
    auto result = std::make_shared<std::optional<absl::StatusOr<typename M::Response>>>();
    server_.Call(method.name, credentials_.all, std::make_shared<typename M::Request>(request),
                 std::make_unique<typename M::Response>(),
                 [result](absl::Status status, const google::protobuf::Message* response) {
                   if (status.ok()) {
                     *result = static_cast<const typename M::Response&>(*response);
                   } else {
                     *result = status;
                   }
                 });
    const absl::Time due = agenda_.now() + absl::Seconds(1);
    while (!result->has_value() && agenda_.now() < due && Advance()) {
    }
    if (result->has_value() && !absl::IsUnavailable((*result)->status())) return **std::move(result);
    AdvanceTo(due);
  }
  return absl::InternalError("no answer");
}

std::string World::ReadAggregate(const RoundId& round) {
  std::string file;
  v1::ReadAggregateRequest request;
  request.set_round(round.value());
  for (bool is_read = false; !is_read;) {
    request.set_offset(static_cast<int64_t>(file.size()));
    auto response = Ask(kReadAggregate, request);
    if (server_.monitor().WasDeleted(round)) return "";
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
  if (!records.ok()) return journal_.Break("the store answers", "{}", records.status().ToString());
  for (const RoundRecord& record : *records) {
    if (server_.monitor().WasDeleted(record.id)) continue;
    const EndedRound round = ReadRound(record);
    if (journal_.violation().has_value()) return;
    verifier_.CheckContributions(round);
    if (options_.mode == Mode::kLiveness) VerifyShown(record);
  }
  for (const auto& program : programs_) {
    if (program->round().empty()) continue;
    const std::string* request_id = server_.monitor().FindRequestId(RoundId(program->round()));
    if (request_id != nullptr && *request_id == program->plan().request_id) continue;
    journal_.Break("one request, one round", "{} was told of round {}", program->plan().request_id, program->round());
  }
}

void World::VerifyShown(const RoundRecord& record) {
  v1::GetRoundRequest get;
  get.set_round(record.id.value());
  const auto shown = Ask(kGetRound, get);
  if (server_.monitor().WasDeleted(record.id)) return;
  const auto stored = ToProto(record);
  if (!shown.ok() || !stored.ok() || !google::protobuf::util::MessageDifferencer::Equals(shown->round(), *stored)) {
    return journal_.Break("what is shown is what is stored", "round {}: {}", record.id, shown.status().ToString());
  }
  if (record.state != RoundState::kSucceeded) return;
  const std::string file = ReadAggregate(record.id);
  if (server_.monitor().WasDeleted(record.id) || journal_.violation().has_value()) return;
  if (Sha256Hex(file) != shown->round().aggregate().digest()) {
    journal_.Break("a released aggregate can be read", "that of round {} is another", record.id);
  }
}

void World::Close() {
  if (journal_.violation().has_value()) return;
  seats_.Close();
  const absl::Time stopped = agenda_.now() + kStopWithin;
  const auto is_quiet = [this] { return seats_.is_empty() && server_.num_open_calls() == 0 && server_.is_up(); };
  while (!is_quiet() && agenda_.now() < stopped && Advance()) {
  }
  is_closing_ = true;
  if (!seats_.is_empty()) journal_.Break("workers stop when told", "some have not");
  if (const std::string leaks = server_.Leaks(); !leaks.empty()) {
    journal_.Break("nothing is left when all has ended", "{}", leaks);
  }
  AdvanceTo(agenda_.now() + limits_.unreferenced_keep + (options_.crash_at > 0 ? 2 : 1) * kCleanWithin);
}

void World::VerifyNothingIsLeft() {
  if (journal_.violation().has_value()) return;
  MemoryPayloadStore& payloads = storage_.payloads();
  auto rounds = payloads.ListRounds();
  if (!rounds.ok() || !rounds->empty()) {
    return journal_.Break("nothing individual stays", "there are payloads of {} ended rounds", rounds->size());
  }
  const int64_t uploads = payloads.DeleteStaleUploads(agenda_.now(), absl::ZeroDuration());
  if (uploads > 0) {
    journal_.Break("nothing is left when all has ended", "{} uploads are there that nobody goes on with", uploads);
  }
  const auto blobs = payloads.ListBlobs();
  if (!blobs.ok()) return journal_.Break("the store answers", "{}", blobs.status().ToString());
  for (const PayloadStore::BlobInfo& blob : *blobs) {
    const auto use = server_.tasks().GetBlobUse(blob.digest);
    if (use.ok() && *use == TaskStore::BlobUse::kCurrent) continue;
    journal_.Break("nothing is left when all has ended", "blob {} of {} bytes is there and nothing refers to it",
                   blob.digest, blob.size_bytes);
  }
}

}  // namespace sheaf::simulation
