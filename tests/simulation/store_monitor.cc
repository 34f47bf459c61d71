#include "tests/simulation/store_monitor.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "proto/time.h"
#include "server/stored/round_spec.h"
#include "storage/transitions.h"
#include "tests/simulation/ledger.h"
#include "tests/simulation/models.h"

namespace sheaf::simulation {
namespace {

// Beats, of a second each, at which something may be overdue, one after the other.
constexpr int kOverdueBeatsMax = 2;
// A store may keep whole microseconds.
constexpr absl::Duration kResolution = absl::Microseconds(1);

StoreMonitor::TaskImage ImageOf(const TaskRecord& task) {
  StoreMonitor::TaskImage image;
  image.worker = task.worker;
  image.token = task.lease_token;
  image.expire_time = task.expire_time;
  image.attempt_deadline_time = task.attempt_deadline_time;
  image.progress = task.progress;
  image.state = task.state;
  image.num_attempts = task.num_attempts;
  image.num_failed = task.num_failed;
  image.num_lost = task.num_lost;
  image.origin = task.origin;
  image.carried_to = task.carried_to;
  if (const auto& second = task.second_lease) {
    image.second = StoreMonitor::LeaseImage{.worker = second->worker,
                                            .token = second->lease_token,
                                            .expire_time = second->expire_time,
                                            .attempt_deadline_time = second->attempt_deadline_time,
                                            .progress = second->progress};
  }
  return image;
}

}  // namespace

// --- Batches -------------------------------------------------------------------------------------

void StoreMonitor::OnBegin() {
  if (!is_owners_) return;
  before_batch_.clear();
  num_carried_ = 0;
}

void StoreMonitor::OnCommit() {
  if (!is_owners_) return;
  for (const auto& [id, before] : std::exchange(before_batch_, {})) {
    const RoundImage& round = rounds_.at(id);
    const bool had_ended = before.has_value() && IsFinal(before->state);
    if (IsFinal(round.state) && !had_ended && !round.is_deleted) on_ended_(id);
    if (!before.has_value() || before->state != RoundState::kAnnounced) continue;
    statistics_.announced["rounds opened"] += round.state == RoundState::kCollecting;
    statistics_.carried["rounds sealed as they opened"] += round.state == RoundState::kSealing;
    statistics_.announced["rounds that ran out"] += round.state == RoundState::kFailed;
    statistics_.announced["rounds cancelled before opening"] += round.state == RoundState::kCancelled;
  }
}

void StoreMonitor::OnRollback() {
  if (!is_owners_) return;
  statistics_.carried["carry-overs undone"] += std::exchange(num_carried_, 0) > 0;
  for (auto& [id, image] : before_batch_) {
    if (image.has_value()) {
      const bool was_opened = image->state == RoundState::kAnnounced && rounds_[id].state == RoundState::kCollecting;
      if (was_opened) ++statistics_.announced["openings undone"];
      rounds_[id] = *std::move(image);
    } else {
      rounds_.erase(id);
    }
  }
  before_batch_.clear();
}

// --- Operations ----------------------------------------------------------------------------------

void StoreMonitor::OnCreateRound(const TaskStore::CreateRoundParams& params,
                                 const TaskStore::CreateRoundResult& result) {
  if (!is_owners_) return;
  RoundImage image;
  if (auto spec = DecodeSpec(params.round); spec.ok()) {
    image.spec = *std::move(spec);
  } else {
    journal_.Break("spec", "{}", spec.status().ToString());
  }
  image.population = result.round.population;
  image.request_id = params.round.request_id;
  image.create_time = result.round.create_time;
  image.deadline_time = result.round.deadline_time;
  image.version = result.round.version - 1;
  image.state = result.round.state;
  if ((image.state == RoundState::kAnnounced) != image.spec.announced()) {
    journal_.Break("who announces a round opens it", "round {} begins as {}", result.round.id, Name(image.state));
  }
  for (const auto& [id, other] : rounds_) {
    if (!other.is_deleted && other.request_id == image.request_id) {
      journal_.Break("one request, one round", "{} has made round {} and now {}", image.request_id, id,
                     result.round.id);
    }
  }
  if (!image.spec.continues().empty()) CheckContinues(result.round.id, image.spec);
  image.tasks.resize(static_cast<size_t>(params.num_staged) + params.tasks.size());
  before_batch_.emplace(result.round.id, std::nullopt);
  rounds_[result.round.id] = std::move(image);
  Look("CreateRound", result.round.id);
}

void StoreMonitor::NoteGrants(const WorkerName& worker, const RoundId& id, absl::Time now,
                              const std::vector<TaskRecord>& leased) {
  for (const TaskRecord& task : leased) {
    journal_.Note("task {} leased to {} under {} until +{}", task.id.ToString(), worker, task.lease_token,
                  absl::FormatDuration(task.expire_time - now));
    bool is_new = grants_
                      .emplace(task.lease_token.value(), Grant{.task = task.id,
                                                               .worker = worker,
                                                               .expire_time = task.expire_time,
                                                               .attempt_deadline_time = task.attempt_deadline_time})
                      .second;
    if (!is_new) journal_.Break("one token, one lease", "token {} was granted twice", task.lease_token);
    if (task.num_lost > 0 && StateOf(id) == RoundState::kAnnounced) ++statistics_.announced["tasks prepared again"];
  }
  const RoundImage* round = Find(id);
  if (round != nullptr && ledger_.PopulationOf(worker.value()) != round->population) {
    journal_.Break("nothing crosses populations", "worker {} was leased a task of round {}", worker, id);
  }
}

void StoreMonitor::CheckShare(const WorkerName& worker, const RoundId& id) {
  const RoundImage* round = Find(id);
  if (round == nullptr) return;
  const int32_t most = round->spec.open_slots().per_worker_max();
  const auto taken = std::count_if(round->tasks.begin(), round->tasks.end(), [&](const TaskImage& task) {
    if (task.state == TaskState::kSucceeded) return task.worker == worker;
    return task.state == TaskState::kLeased &&
           (task.worker == worker || (task.second && task.second->worker == worker));
  });
  if (most > 0 && taken > most) {
    journal_.Break("no worker has more than its share", "worker {} has {} tasks of round {}, per_worker_max {}", worker,
                   taken, id, most);
  }
}

void StoreMonitor::OnLease(const TaskStore::LeaseTasksParams& params, const std::vector<TaskRecord>& leased) {
  if (!is_owners_) return;
  for (const TaskRecord& task : leased) {
    if (task.available_time <= params.now) continue;
    journal_.Break("backoff", "task {} was leased before its time", task.id.ToString());
  }
  NoteGrants(params.worker, params.round, params.now, leased);
  Look("LeaseTasks", params.round);
  CheckShare(params.worker, params.round);
}

void StoreMonitor::OnLeaseAgain(const TaskStore::LeaseAgainParams& params, const std::vector<TaskRecord>& leased) {
  if (!is_owners_) return;
  NoteGrants(params.worker, params.round, params.now, leased);
  const RoundImage* round = Find(params.round);
  if (round == nullptr) return;
  if (!round->spec.straggler().speculate()) {
    journal_.Break("only by policy", "round {} has no straggler policy, and leases a task twice", params.round);
  }
  if (round->counts.queued > 0) {
    journal_.Break("what waits comes first", "round {} leases a task twice while {} are queued", params.round,
                   round->counts.queued);
  }
  for (const TaskRecord& task : leased) {
    ++statistics_.stragglers["second attempts"];
    const TaskImage& before = round->tasks[task.id.index];
    if (before.state != TaskState::kLeased || before.second) {
      journal_.Break("two attempts at most", "task {} was {}{}, and is leased again", task.id.ToString(),
                     Name(before.state), before.second ? " twice" : "");
    }
    if (before.worker == params.worker) {
      journal_.Break("a second attempt is another worker's", "task {} is leased to {} twice", task.id.ToString(),
                     params.worker);
    }
  }
  Look("LeaseAgain", params.round);
  CheckShare(params.worker, params.round);
}

void StoreMonitor::OnMove(const TaskStore::MoveRoundParams& params) {
  if (!is_owners_) return;
  RoundImage* round = Find(params.round);
  if (round != nullptr && params.to == RoundState::kSealing) CheckSealing(params.round, *round, params.now);
  if (round != nullptr && params.from == RoundState::kAnnounced && params.to == RoundState::kCollecting) {
    NoteOpening(params, *round);
  }
  Look("MoveRound", params.round);
}

void StoreMonitor::CheckContinues(const RoundId& id, const v1::RoundSpec& spec) {
  ++statistics_.carried["rounds that continue another"];
  const RoundImage* before = Find(RoundId(spec.continues()));
  if (before == nullptr) return;
  if (!HandsOutTasks(before->state) || before->population != spec.population()) {
    journal_.Break("what can be continued runs", "round {} continues round {} of population {}, which is {}", id,
                   spec.continues(), before->population, Name(before->state));
  }
  for (const auto& [other, image] : rounds_) {
    if (other == id || image.is_deleted || !HandsOutTasks(image.state)) continue;
    if (image.spec.continues() != spec.continues()) continue;
    journal_.Break("one round continues another", "rounds {} and {} both continue {}", other, id, spec.continues());
  }
}

void StoreMonitor::OnCarryOver(const TaskStore::CarryOverParams& params, const std::vector<TaskRecord>& carried) {
  if (!is_owners_) return;
  RoundImage* from = Find(params.from);
  RoundImage* to = Find(params.to);
  if (from == nullptr || to == nullptr) return;
  if (to->spec.continues() != params.from.value()) {
    journal_.Break("one round continues another", "tasks of round {} are carried to round {}, which continues \"{}\"",
                   params.from, params.to, to->spec.continues());
  }
  before_batch_.emplace(params.from, *from);
  before_batch_.emplace(params.to, *to);
  num_carried_ += static_cast<int64_t>(carried.size());
  const auto find = [&](const TaskRecord& task) -> TaskImage* {
    for (TaskImage& image : from->tasks) {
      if (image.LeaseOf(task.lease_token) != nullptr) return &image;
    }
    return nullptr;
  };
  for (const TaskRecord& task : carried) {
    journal_.Note("task {} of worker {} goes on as {}, through {} rounds so far", task.origin->ToString(), task.worker,
                  task.id.ToString(), task.staleness);
    ++statistics_.carried["tasks carried over"];
    statistics_.carried["tasks carried through several rounds"] += task.staleness > 1;
    statistics_.carried["second leases carried over"] += task.second_lease.has_value();
    const TaskImage* image = find(task);
    if (image == nullptr) {
      journal_.Break("what is carried over ran", "task {} has the token {}, which no task of round {} has",
                     task.id.ToString(), task.lease_token, params.from);
      continue;
    }
    TaskImage now = ImageOf(task);
    const auto same = [](const LeaseImage& a, const LeaseImage& b) {
      return a.worker == b.worker && a.token == b.token && a.expire_time == b.expire_time &&
             a.attempt_deadline_time == b.attempt_deadline_time && a.progress == b.progress;
    };
    if (!same(*image, now) || image->second.has_value() != now.second.has_value() ||
        (now.second && !same(*image->second, *now.second))) {
      journal_.Break("what is carried over keeps its leases", "task {} is not held as {} was", task.id.ToString(),
                     task.origin->ToString());
    }
    if (task.staleness > to->spec.staleness().max()) {
      journal_.Break("nothing is staler than it may be", "task {} came through {} rounds, staleness.max is {}",
                     task.id.ToString(), task.staleness, to->spec.staleness().max());
    }
    to->tasks.push_back(std::move(now));
  }
  const auto num_left = std::count_if(from->tasks.begin(), from->tasks.end(),
                                      [](const TaskImage& image) { return image.state == TaskState::kLeased; }) -
                        static_cast<int64_t>(carried.size());
  statistics_.carried["tasks left behind"] += num_left;
  Look("CarryOver", params.from);
  Look("CarryOver", params.to);
}

void StoreMonitor::NoteOpening(const TaskStore::MoveRoundParams& params, RoundImage& round) {
  before_batch_.emplace(params.round, round);
  if (round.open_time < absl::InfiniteFuture()) {
    journal_.Break("a round has one broadcast", "round {} is opened a second time", params.round);
  }
  // Looked for in the store with every change from here on.
  round.open_time = params.now;
  round.deadline_time = params.now + FromProto(round.spec.deadline());
  round.spec.set_broadcast_digest(params.broadcast_digest);
}

void StoreMonitor::CheckSealing(const RoundId& id, const RoundImage& round, absl::Time now) {
  const bool is_time = round.num_contributions >= round.spec.goal() || now >= round.deadline_time - kResolution ||
                       round.counts.queued + round.counts.leased == 0;
  if (is_time) return;
  journal_.Break("a round collects until its goal",
                 "round {} is sealed with {} contributions, goal {}, {} before its "
                 "deadline",
                 id, round.num_contributions, round.spec.goal(), absl::FormatDuration(round.deadline_time - now));
}

void StoreMonitor::OnRenew(const TaskStore::RenewLeaseParams& params, const TaskRecord& task) {
  if (!is_owners_) return;
  auto grant = grants_.find(task.lease_token.value());
  if (grant == grants_.end()) return;
  if (task.lease_token != params.token) {
    journal_.Break("only the holder renews", "task {} was renewed under {}, and is held under {}", task.id.ToString(),
                   params.token, task.lease_token);
  }
  const TaskImage* image = FindTask(task.id);
  const LeaseImage* before = image == nullptr ? nullptr : image->LeaseOf(params.token);
  if (before != nullptr && params.progress > before->progress &&
      task.expire_time < std::min(params.expire_time, task.attempt_deadline_time) - kResolution) {
    journal_.Break("a lease is renewed by progress", "task {} made progress, and its lease was not renewed",
                   task.id.ToString());
  }
  if (before != nullptr && params.progress <= before->progress && task.expire_time != before->expire_time) {
    journal_.Break("a lease is renewed by progress", "task {} made none, and its lease was renewed",
                   task.id.ToString());
  }
  if (task.expire_time > task.attempt_deadline_time) {
    journal_.Break("an attempt ends at its deadline", "task {} is leased beyond it", task.id.ToString());
  }
  grant->second.expire_time = std::max(grant->second.expire_time, task.expire_time);
  if (before != nullptr && task.attempt_deadline_time > before->attempt_deadline_time) {
    journal_.Break("an attempt ends at its deadline", "that of task {} was put off", task.id.ToString());
  }
  grant->second.attempt_deadline_time = task.attempt_deadline_time;
  statistics_.carried["leases renewed after it"] += task.origin.has_value();
  Look("RenewLease", task.id.round);
}

void StoreMonitor::BeforeEndAttempt(const TaskStore::EndAttemptParams& params) {
  if (!is_owners_) return;
  RoundImage* round = Find(params.task.round);
  if (round == nullptr || params.outcome != AttemptOutcome::kLost) return;
  // The holder itself came, with a result whose upload a crash had taken.
  const TaskImage* image = FindTask(params.task);
  if (image != nullptr && ledger_.WasOffered(image->origin.value_or(params.task).ToString(), params.token.value()))
    return;
  const LeaseImage* lease = round->tasks[params.task.index].LeaseOf(params.token);
  if (lease != nullptr && params.now < lease->expire_time && params.now < lease->attempt_deadline_time) {
    journal_.Break("a task is never held by two live tokens", "the lease {} of task {} ended {} early", params.token,
                   params.task.ToString(), absl::FormatDuration(lease->expire_time - params.now));
  }
}

void StoreMonitor::OnEndAttempt(const TaskStore::EndAttemptParams& params) {
  if (!is_owners_) return;
  const RoundImage* round = Find(params.task.round);
  if (round == nullptr) return;
  const TaskImage before = round->tasks[params.task.index];
  Look("EndAttempt", params.task.round);
  const TaskImage& now = round->tasks[params.task.index];
  if (before.origin) {
    statistics_.carried["attempts that failed"] += params.outcome == AttemptOutcome::kFailed;
    statistics_.carried["attempts that were lost"] += params.outcome == AttemptOutcome::kLost;
    if (!before.second && now.state != TaskState::kCancelled) {
      journal_.Break("what was carried over is nobody else's", "the attempt at task {} ended {}, and the task is {}",
                     params.task.ToString(), Name(params.outcome), Name(now.state));
    }
  }
  if (round->state == RoundState::kAnnounced && params.outcome == AttemptOutcome::kLost && !before.origin) {
    ++statistics_.announced["leases lost while announced"];
  }
  if (before.second) {
    ++statistics_.stragglers[before.token == params.token ? "first attempts that ended while the second ran"
                                                          : "second attempts that ended while the first ran"];
    const LeaseToken& other = before.token == params.token ? before.second->token : before.token;
    if (now.state != TaskState::kLeased || now.token != other || now.second) {
      journal_.Break("while one attempt runs its task is not tried again",
                     "an attempt at task {} ended {}, and the task is {} under {}", params.task.ToString(),
                     Name(params.outcome), Name(now.state), now.token);
    }
  }
  if (before.LeaseOf(params.token) == nullptr) {
    journal_.Break("only the holder's attempt ends", "task {} is held under {}, and an attempt under {} ended",
                   params.task.ToString(), before.token, params.token);
  }
  if (now.num_failed != before.num_failed + (params.outcome == AttemptOutcome::kFailed) ||
      now.num_lost != before.num_lost + (params.outcome == AttemptOutcome::kLost)) {
    journal_.Break("attempts are counted",
                   "an attempt at task {} ended {}; it counts {} failed and {} lost, was {} "
                   "and {}",
                   params.task.ToString(), Name(params.outcome), now.num_failed, now.num_lost, before.num_failed,
                   before.num_lost);
  }
}

void StoreMonitor::OnContribution(const TaskStore::RecordContributionParams& params, const ContributionRecord& record) {
  if (!is_owners_) return;
  ++statistics_.contributions;
  const std::string token = params.token.value();
  const std::string task = params.task.ToString();
  journal_.Note("contribution {} of round {}: task {} under {}", record.sequence, params.task.round, task, token);
  const RoundImage* round = Find(params.task.round);
  if (round == nullptr) return;
  const TaskImage& before = round->tasks[params.task.index];
  if (before.origin) {
    ++statistics_.carried["contributions"];
    statistics_.carried["contributions to an announced round"] += round->state == RoundState::kAnnounced;
  }
  if (round->state != RoundState::kCollecting && !(before.origin && round->state == RoundState::kAnnounced)) {
    journal_.Break("none counted after close", "task {} was counted in a round that is {}", task, Name(round->state));
  }
  if (before.second) {
    ++statistics_.stragglers[before.token == params.token ? "contributions of the first of two attempts"
                                                          : "contributions of the second of two attempts"];
  }
  if (before.LeaseOf(params.token) == nullptr) {
    journal_.Break("only the holder's contribution counts", "task {} was {} under {} and counted under {}", task,
                   Name(before.state), before.token, token);
  }
  if (!ledger_.WasOffered(before.origin.value_or(params.task).ToString(), token)) {
    journal_.Break("counted, so attempted", "no worker offered a contribution of task {} under {}", task, token);
  }
  if (record.sequence != round->num_contributions + 1) {
    journal_.Break("sequence", "contribution {} of round {} follows {}", record.sequence, params.task.round,
                   round->num_contributions);
  }
  const bool is_spooled = params.payload.segment != 0;
  if (is_spooled != (round->spec.durability() == v1::DURABLE)) {
    journal_.Break("durability", "task {} of a {} round was {}spooled", task,
                   v1::Durability_Name(round->spec.durability()), is_spooled ? "" : "not ");
  }
  Look("RecordContribution", params.task.round);
}

void StoreMonitor::OnForget(const RoundId& round, int64_t count) {
  if (!is_owners_) return;
  const RoundImage* image = Find(round);
  if (image == nullptr) return;
  journal_.Note("round {} forgets {} contributions", round, count);
  if (count > 0 && image->spec.durability() != v1::EPHEMERAL) {
    journal_.Break("durable is durable", "the DURABLE round {} forgot {} contributions", round, count);
  }
  // A checkpoint has at least two contributions, of min_clients clients, more than the one before.
  const bool is_too_few = count < std::max<int64_t>(2, image->spec.min_clients());
  if (count > 0 && !has_crashed_ && !is_too_few) {
    journal_.Break("a graceful stop loses nothing", "round {} forgot {} contributions", round, count);
  }
  Look("Forget", round);
}

void StoreMonitor::OnDelete(const TaskStore::DeleteEndedRoundsParams& params, const TaskStore::DeletedRounds& deleted) {
  if (!is_owners_) return;
  const auto key = [](const std::pair<const RoundId, RoundImage>& entry) {
    return std::tuple(entry.second.end_time, entry.second.create_time, entry.first);
  };
  std::vector<std::tuple<absl::Time, absl::Time, RoundId>> ended;
  // Those that have not been kept for long enough, by population.
  std::map<std::string, int64_t> num_left;
  for (const auto& entry : rounds_) {
    if (entry.second.is_deleted || !IsFinal(entry.second.state)) continue;
    ended.push_back(key(entry));
    if (entry.second.end_time > params.ended_by) ++num_left[entry.second.spec.population()];
  }
  std::sort(ended.begin(), ended.end());
  // The most that each population may keep.
  auto kept_max = static_cast<int64_t>(ended.size());
  const auto kept = [&] {
    int64_t sum = 0;
    for (const auto& [population, count] : num_left) sum += std::min(count, kept_max);
    return sum;
  };
  while (kept() > params.keep_max) --kept_max;
  int64_t num_due = -params.keep_max;
  for (const auto& [population, count] : num_left) num_due += count;
  std::vector<RoundId> gone;
  for (const auto& [end_time, create_time, id] : ended) {
    const bool is_old = end_time <= params.ended_by;
    if (is_old) {
      gone.push_back(id);
    } else if (num_due > 0 && num_left[rounds_.at(id).spec.population()]-- > kept_max) {
      gone.push_back(id);
      --num_due;
    }
  }
  const size_t due = gone.size();
  // A round has far fewer tasks here than one call may delete.
  bool is_right = deleted.rounds.size() == due;
  for (size_t i = 0; is_right && i < due; ++i) is_right = deleted.rounds[i] == gone[i];
  if (!is_right) {
    journal_.Break("only what ended long ago is deleted", "{} rounds were deleted, {} first, and {} of {} were due",
                   deleted.rounds.size(), deleted.rounds.empty() ? RoundId() : deleted.rounds.front(), due,
                   ended.size());
  }
  for (const RoundId& id : deleted.rounds) {
    RoundImage* image = Find(id);
    if (image == nullptr) return;
    journal_.Note("round {} is deleted", id);
    before_batch_.emplace(id, *image);
    image->is_deleted = true;
    ++statistics_.rounds_deleted;
    const auto tasks = store_->ListTasks({.round = id, .limit = 1});
    if (!absl::IsNotFound(store_->GetRound(id).status()) || (tasks.ok() && !tasks->empty())) {
      journal_.Break("what is deleted is gone", "round {} can still be read", id);
    }
  }
}

void StoreMonitor::OnChange(std::string_view operation, const RoundId& round) {
  if (!is_owners_) return;
  const bool is_announced = rounds_.contains(round) && StateOf(round) == RoundState::kAnnounced;
  if (is_announced && operation == "RequeueTask") ++statistics_.announced["tasks requeued while announced"];
  Look(operation, round);
}

void StoreMonitor::OnSpool(const RoundId& round) {
  if (!is_owners_) return;
  const RoundImage* image = Find(round);
  if (image != nullptr && image->spec.durability() == v1::EPHEMERAL) {
    journal_.Break("nothing individual on disk", "a contribution of the EPHEMERAL round {} is spooled", round);
  }
}

const StoreMonitor::Grant* StoreMonitor::FindGrant(const std::string& token) const {
  auto found = grants_.find(token);
  return found == grants_.end() ? nullptr : &found->second;
}

const v1::RoundSpec* StoreMonitor::FindSpec(const RoundId& round) const {
  auto found = rounds_.find(round);
  return found == rounds_.end() ? nullptr : &found->second.spec;
}

bool StoreMonitor::WasDeleted(const RoundId& round) const {
  auto found = rounds_.find(round);
  return found != rounds_.end() && found->second.is_deleted;
}

void StoreMonitor::NoteRecovered() {
  for (const auto& [id, round] : rounds_) {
    statistics_.carried["tasks recovered"] +=
        std::count_if(round.tasks.begin(), round.tasks.end(),
                      [](const TaskImage& task) { return task.state == TaskState::kLeased && task.origin; });
  }
  statistics_.announced["announced rounds recovered"] += std::count_if(
      rounds_.begin(), rounds_.end(), [](const auto& entry) { return entry.second.state == RoundState::kAnnounced; });
}

int64_t StoreMonitor::num_live() const {
  return std::count_if(rounds_.begin(), rounds_.end(), [](const auto& entry) { return !IsFinal(entry.second.state); });
}

std::vector<std::string> StoreMonitor::LiveBroadcasts() const {
  std::vector<std::string> digests;
  for (const auto& [id, round] : rounds_) {
    const std::string& digest = round.spec.broadcast_digest();
    if (IsFinal(round.state)) continue;
    if (!digest.empty()) digests.push_back(digest);
    for (const TaskImage& task : round.tasks) {
      if (task.state != TaskState::kLeased || !task.origin || WasDeleted(task.origin->round)) continue;
      const std::string& began = BroadcastOf(task.origin->round);
      if (!began.empty()) digests.push_back(began);
    }
  }
  for (size_t i = 0, count = digests.size(); i < count; ++i) {
    const SimBroadcast* broadcast = FindBroadcast(digests[i]);
    if (broadcast != nullptr) digests.insert(digests.end(), broadcast->bases.begin(), broadcast->bases.end());
  }
  return digests;
}

const StoreMonitor::TaskImage* StoreMonitor::FindTask(const TaskId& task) const {
  auto found = rounds_.find(task.round);
  if (found == rounds_.end() || task.index < 0 || task.index >= static_cast<int32_t>(found->second.tasks.size())) {
    return nullptr;
  }
  return &found->second.tasks[task.index];
}

StoreMonitor::Place StoreMonitor::PlaceOf(const TaskId& name) const {
  Place place{.id = name, .is_traceable = !WasDeleted(name.round)};
  const TaskImage* task = FindTask(name);
  for (; task != nullptr && task->carried_to; task = FindTask(place.id)) {
    place.id = *task->carried_to;
    place.is_traceable = place.is_traceable && !WasDeleted(place.id.round);
  }
  // Memory has those that are leased.
  if (task != nullptr && task->state == TaskState::kLeased) place.is_traceable = true;
  return place;
}

const std::string* StoreMonitor::FindRequestId(const RoundId& round) const {
  auto found = rounds_.find(round);
  return found == rounds_.end() ? nullptr : &found->second.request_id;
}

void StoreMonitor::CheckTimely(absl::Time now, bool server_is_well) {
  for (auto& [id, round] : rounds_) {
    if (IsFinal(round.state)) continue;
    const std::string overdue = server_is_well ? OverdueOf(round, now) : "";
    round.num_overdue = overdue.empty() ? 0 : round.num_overdue + 1;
    if (round.num_overdue > kOverdueBeatsMax) journal_.Break("what is due happens", "round {}: {}", id, overdue);
  }
}

std::string StoreMonitor::OverdueOf(const RoundImage& round, absl::Time now) {
  // A disk without room for the aggregate has it tried again every second; see IsWell.
  if (!HandsOutTasks(round.state)) return "it is still sealing";
  if (now > round.deadline_time) return "its deadline has passed";
  for (const TaskImage& task : round.tasks) {
    const bool is_first_over = task.state == TaskState::kLeased && now > task.expire_time;
    if (is_first_over || (task.second && now > task.second->expire_time))
      return "a lease that is over is not taken back";
  }
  const TaskCounts& tasks = round.counts;
  // It may have all that it needs, and waits for its broadcast.
  if (round.state == RoundState::kAnnounced && tasks.succeeded >= round.spec.min_goal()) return "";
  if (tasks.succeeded >= round.spec.goal()) return "it has all it needs";
  const bool can_end =
      tasks.succeeded >= round.spec.min_goal() || tasks.succeeded + tasks.buried < round.spec.min_goal();
  return tasks.queued + tasks.leased == 0 && can_end ? "nothing can come any more" : "";
}

// --- Looking -------------------------------------------------------------------------------------

StoreMonitor::RoundImage* StoreMonitor::Find(const RoundId& round) {
  auto found = rounds_.find(round);
  if (found == rounds_.end()) {
    journal_.Break("rounds exist", "round {} was changed and never created", round);
    return nullptr;
  }
  if (found->second.is_deleted) {
    journal_.Break("what is deleted stays so", "round {} was changed and is deleted", round);
    return nullptr;
  }
  return &found->second;
}

void StoreMonitor::Look(std::string_view operation, const RoundId& round) {
  RoundImage* image = Find(round);
  if (image == nullptr) return;
  before_batch_.emplace(round, *image);
  absl::StatusOr<RoundRecord> record = store_->GetRound(round);
  absl::StatusOr<std::vector<TaskRecord>> tasks = store_->ListTasks({.round = round, .limit = 1000});
  if (!record.ok() || !tasks.ok() || tasks->size() != image->tasks.size()) {
    return journal_.Break("the store answers", "after {} round {} cannot be read: {} {}", operation, round,
                          record.status().ToString(), tasks.status().ToString());
  }
  CheckCounts(*record, *tasks);
  CheckRound(operation, *image, *record);
  for (size_t i = 0; i < tasks->size(); ++i) {
    const TaskRecord& task = (*tasks)[i];
    CheckTask(operation, *image, image->tasks[i], task);
    // The store forgets what has gone on in a round that was deleted.
    const std::optional<TaskId> gone_on = task.carried_to ? task.carried_to : image->tasks[i].carried_to;
    image->tasks[i] = ImageOf(task);
    image->tasks[i].carried_to = gone_on;
  }
  image->state = record->state;
  image->end_time = record->end_time;
  image->version = record->version;
  image->counts = record->tasks;
  image->num_contributions = record->num_contributions;
}

void StoreMonitor::CheckRound(std::string_view operation, const RoundImage& image, const RoundRecord& record) {
  if (record.state != image.state) {
    journal_.Note("round {}: {} -> {} {}", record.id, Name(image.state), Name(record.state), record.error);
    ++statistics_.round_moves[{image.state, record.state}];
    if (!IsLegalMove(image.state, record.state)) {
      journal_.Break("states move along the table", "{} moved round {} from {} to {}", operation, record.id,
                     Name(image.state), Name(record.state));
    }
  }
  if (IsFinal(image.state)) {
    journal_.Break("what is final stays", "{} changed round {}, which is {}", operation, record.id, Name(image.state));
  }
  if (!HandsOutTasks(record.state) && record.tasks.queued + record.tasks.leased > 0) {
    journal_.Break("a closed round has no open tasks", "{} left {} queued and {} leased tasks of round {}, which is {}",
                   operation, record.tasks.queued, record.tasks.leased, record.id, Name(record.state));
  }
  if (record.broadcast_digest != image.spec.broadcast_digest()) {
    journal_.Break("a round has one broadcast", "{} left round {} with the broadcast \"{}\", and it was given \"{}\"",
                   operation, record.id, record.broadcast_digest, image.spec.broadcast_digest());
  }
  if (absl::AbsDuration(record.deadline_time - image.deadline_time) > kResolution) {
    journal_.Break("a deadline counts from the opening", "{} left round {}, which is {}, with a deadline {} late",
                   operation, record.id, Name(record.state),
                   absl::FormatDuration(record.deadline_time - image.deadline_time));
  }
  if (IsFinal(record.state) && record.end_time == absl::InfiniteFuture()) {
    journal_.Break("what ended has an end", "round {} is {} and has no end time", record.id, Name(record.state));
  }
  const bool has_changed = record.state != image.state || record.tasks != image.counts;
  if (record.version < image.version || (has_changed && record.version == image.version)) {
    journal_.Break("etag", "{} changed round {} and left its version at {}", operation, record.id, record.version);
  }
}

void StoreMonitor::CheckTask(std::string_view operation, const RoundImage& round, const TaskImage& before,
                             const TaskRecord& now) {
  if (now.state != before.state) {
    ++statistics_.task_moves[{before.state, now.state}];
    if (!IsLegalMove(before.state, now.state)) {
      journal_.Break("states move along the table", "{} moved task {} from {} to {}", operation, now.id.ToString(),
                     Name(before.state), Name(now.state));
    }
    const bool was_forgotten = before.state == TaskState::kSucceeded;
    if (was_forgotten && (operation != "Forget" || round.spec.durability() != v1::EPHEMERAL)) {
      journal_.Break("durable is durable", "{} queued task {} again, whose contribution was accepted", operation,
                     now.id.ToString());
    }
    if (was_forgotten) ledger_.OnForgotten(now.origin.value_or(now.id).ToString());
    if (was_forgotten && now.origin) ++statistics_.carried["contributions forgotten"];
    if (was_forgotten && now.state != (now.origin ? TaskState::kCancelled : TaskState::kQueued)) {
      journal_.Break("what is forgotten runs again, but what was carried over", "task {} is {}", now.id.ToString(),
                     Name(now.state));
    }
  } else if (now.state == TaskState::kLeased && now.lease_token != before.token &&
             !(operation == "EndAttempt" && before.second && before.second->token == now.lease_token)) {
    journal_.Break("a task is never held by two live tokens", "{} replaced token {} of task {} by {}", operation,
                   before.token, now.id.ToString(), now.lease_token);
  }
  CheckSecondLease(operation, before, now);
  const bool has_lost_place = before.carried_to && before.carried_to != now.carried_to &&
                              (now.carried_to || !WasDeleted(before.carried_to->round));
  if (before.origin != now.origin || has_lost_place) {
    journal_.Break("a task goes on in one place", "{} changed where task {} comes from or goes to", operation,
                   now.id.ToString());
  }
  if (now.origin && now.state == TaskState::kQueued) {
    journal_.Break("what was carried over is nobody else's", "{} queued task {}", operation, now.id.ToString());
  }
  if (now.state == TaskState::kLeased && (now.lease_token.empty() || now.worker.empty())) {
    journal_.Break("a lease has a holder", "task {} is leased to nobody", now.id.ToString());
  }
  const v1::RetryPolicy& retry = round.spec.retry();
  bool can_run = now.state == TaskState::kQueued || now.state == TaskState::kLeased;
  // The last attempt that may be lost or fail ends no task while another runs, which may end so, too. If that was
  // accepted and a crash forgot it, the task has one more attempt. What was carried over may have come with a second
  // attempt.
  const int extra = round.spec.straggler().speculate() || now.origin ? 1 : 0;
  const bool may_be_forgotten = round.spec.durability() == v1::EPHEMERAL;
  can_run = can_run && !(extra > 0 && (now.state == TaskState::kLeased || may_be_forgotten));
  if (now.num_failed > retry.failed_max() + extra || now.num_lost > retry.lost_max() + extra ||
      (can_run && (now.num_failed >= retry.failed_max() || now.num_lost >= retry.lost_max()))) {
    journal_.Break("attempts within limits", "task {} is {} with {} failed and {} lost attempts, limits {} and {}",
                   now.id.ToString(), Name(now.state), now.num_failed, now.num_lost, retry.failed_max(),
                   retry.lost_max());
  }
}

void StoreMonitor::CheckSecondLease(std::string_view operation, const TaskImage& before, const TaskRecord& now) {
  const bool has_new = now.second_lease && !(before.second && before.second->token == now.second_lease->lease_token);
  if (has_new && now.origin) {
    journal_.Break("what was carried over is nobody else's", "task {} got a second lease", now.id.ToString());
  }
  if (has_new && operation != "LeaseAgain") {
    journal_.Break("two attempts at most", "{} gave task {} a second lease", operation, now.id.ToString());
  }
  if (!now.second_lease) return;
  if (now.state != TaskState::kLeased) {
    journal_.Break("two attempts at most", "task {} is {} and has a second lease", now.id.ToString(), Name(now.state));
  }
  if (now.second_lease->worker == now.worker || now.second_lease->lease_token == now.lease_token) {
    journal_.Break("a second attempt is another worker's", "task {} is leased to {} twice", now.id.ToString(),
                   now.worker);
  }
}

void StoreMonitor::CheckCounts(const RoundRecord& record, const std::vector<TaskRecord>& tasks) {
  TaskCounts counts;
  for (const TaskRecord& task : tasks) {
    counts.queued += task.state == TaskState::kQueued;
    counts.leased += task.state == TaskState::kLeased;
    counts.succeeded += task.state == TaskState::kSucceeded;
    counts.failed += task.state == TaskState::kFailed;
    counts.cancelled += task.state == TaskState::kCancelled;
    counts.buried += task.state == TaskState::kBuried;
  }
  if (counts != record.tasks || record.num_contributions != counts.succeeded) {
    journal_.Break("counts equal a recount",
                   "round {} says {} queued, {} leased, {} succeeded, {} contributions; there are {}, {} and {}",
                   record.id, record.tasks.queued, record.tasks.leased, record.tasks.succeeded,
                   record.num_contributions, counts.queued, counts.leased, counts.succeeded);
  }
}

}  // namespace sheaf::simulation
