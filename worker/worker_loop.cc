#include "worker/worker_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/plural.h"
#include "base/retry_hint.h"
#include "base/utf8.h"
#include "base/version.h"
#include "proto/time.h"

namespace sheaf {
namespace {

// A result is offered for this long after its lease lapsed: the server's clock decides, and says LEASE_LOST if so.
constexpr absl::Duration kDeliveryMargin = absl::Seconds(5);
// What is left undelivered this long after the grace time is left to the leases' expiry.
constexpr absl::Duration kDrainMargin = absl::Seconds(10);
// A refusal that repeating cannot cure is repeated rarely: somebody may repair the server's or this worker's
// configuration.
constexpr absl::Duration kRefusedPauseMin = absl::Seconds(30);
constexpr absl::Duration kRefusedPauseMax = absl::Seconds(60);
// After a pause that is cut short: ten thousand workers see a server come back in one instant.
constexpr absl::Duration kEndPauseWithin = absl::Milliseconds(500);
// After a poll that brought nothing although the server could have kept it: a server that never parks must not be
// hammered.
constexpr absl::Duration kEmptyPollPause = absl::Milliseconds(20);
// How often to ask whether it is back in service, where a call is not parked until it is.
constexpr absl::Duration kDrainedPause = absl::Seconds(10);
// Beyond the time when there is more to offer, so that the next call does not come just before it.
constexpr absl::Duration kOfferMargin = absl::Milliseconds(1);
// As work_service.proto allows.
constexpr int kItemsMax = 256;
// Results of one call together, when there are several.
constexpr size_t kResultBytesMax = 2 << 20;
constexpr size_t kFinishedMax = 1024;
// What a server says is not believed beyond these. A pause: the server's next_call_max, which keeps a million workers that
// do not wait at 70 calls a second.
constexpr absl::Duration kPollPauseMax = absl::Hours(4);
// Names and tokens of a lease: they are kept, and logged.
constexpr size_t kNameBytesMax = 256;
constexpr size_t kLoggedBytesMax = 1024;
// A call of ours has room for this and all else.
constexpr int64_t kInlineBytesMax = 32 << 20;

bool HasNames(const v1::Lease& lease) {
  return lease.lease_token().size() <= kNameBytesMax && lease.task().size() <= kNameBytesMax &&
         lease.round().size() <= kNameBytesMax;
}

// Of what one call may ask for; there is no answer to more.
template <typename Items, typename Use>
void ForFirst(Items& items, Use use) {
  for (int i = 0; i < std::min(items.size(), kItemsMax); ++i) use(items[i]);
}

bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status) ||
         absl::IsUnimplemented(status);
}

}  // namespace

std::string_view WorkerStateName(WorkerState state) {
  switch (state) {
    case WorkerState::kIdle:
      return "idle";
    case WorkerState::kPulling:
      return "pulling";
    case WorkerState::kFetching:
      return "fetching";
    case WorkerState::kRunning:
      return "running";
    case WorkerState::kSubmitting:
      return "submitting";
    case WorkerState::kDrained:
      return "drained";
    case WorkerState::kDraining:
      return "draining";
    case WorkerState::kDone:
      return "done";
  }
  return "unknown";
}

WorkerLoop::WorkerLoop(WorkerOptions options, Parts parts)
    : options_(std::move(options)),
      parts_(std::move(parts)),
      inbox_(std::make_shared<Inbox>(parts_.wake)),
      attempt_parts_{.transport = parts_.transport,
                     .runner = parts_.runner,
                     .cache = parts_.cache,
                     .random = parts_.random,
                     .inbox = inbox_,
                     .call_timeout = options_.call_timeout,
                     .broadcast_bytes_max = options_.broadcast_bytes_max,
                     .contribution_bytes_max = options_.contribution_bytes_max},
      protocol_version_(options_.protocol_version_max) {}

WorkerLoop::~WorkerLoop() {
  inbox_->Close();
  for (const AttemptPtr& attempt : attempts_) attempt->Cancel();
}

absl::Time WorkerLoop::Step(absl::Time now) {
  for (Inbox::Event& event : inbox_->TakeAll()) event(now);
  if (done_) return absl::InfiniteFuture();
  for (const AttemptPtr& attempt : attempts_) attempt->Step(now);
  ExpireLeases(now);
  SweepEndedAttempts();
  StepDrain(now);
  RunOpened(now);
  if (!done_ && SyncIsDue(now)) SendSync(now);
  return inbox_->is_empty() ? NextStep(now) : now;
}

void WorkerLoop::RequestDrain() {
  inbox_->Post([this](absl::Time now) { StartDrain("it was told to stop", now); });
}

void WorkerLoop::EndPause() {
  inbox_->Post([this](absl::Time now) {
    if (!is_pausing(now)) return;
    backoff_until_ = std::min(backoff_until_, now + parts_.random.Between(absl::ZeroDuration(), kEndPauseWithin));
  });
}

WorkerState WorkerLoop::state() const {
  if (done_) return WorkerState::kDone;
  if (draining_) return WorkerState::kDraining;
  bool is_submitting = false, is_running = false, is_fetching = false;
  for (const AttemptPtr& attempt : attempts_) {
    is_submitting |= attempt->phase() == Attempt::Phase::kUploading || attempt->is_ready();
    is_running |= attempt->phase() == Attempt::Phase::kRunning;
    is_fetching |= attempt->phase() == Attempt::Phase::kPreparing || attempt->phase() == Attempt::Phase::kPrepared ||
                   attempt->phase() == Attempt::Phase::kFetching;
  }
  if (is_submitting) return WorkerState::kSubmitting;
  if (is_running) return WorkerState::kRunning;
  if (is_fetching) return WorkerState::kFetching;
  if (is_drained_) return WorkerState::kDrained;
  return open_syncs_.empty() ? WorkerState::kIdle : WorkerState::kPulling;
}

// --- Leases ---

void WorkerLoop::TakeLease(v1::Lease lease, absl::Time sent, absl::Time now) {
  absl::Duration remaining = FromProto(lease.remaining());
  if (AttemptPtr known = FindAttempt(lease.lease_token())) return known->Extend(sent, remaining);
  if (finished_.contains(lease.lease_token())) return;
  if (!HasNames(lease) || attempts_.size() >= static_cast<size_t>(kItemsMax)) {
    LogWarning("left a lease to its expiry: {}",
               HasNames(lease) ? fmt::format("there are {} already", kItemsMax) : "its names are too long");
    return;
  }
  if (sent + remaining <= now) {
    LogInfo("task {}: its lease expired before the answer arrived", lease.task());
    return;
  }
  ++counters_.leases;
  bool has_room = (lease.announced() ? WantedAhead() : WantedLeases()) > 0;
  if (!has_room) {
    // It waits for the server to hear of it, with what that takes.
    lease.clear_computation();
    lease.clear_payload();
    lease.clear_aggregate();
  }
  auto attempt = std::make_shared<Attempt>(std::move(lease), attempt_parts_);
  attempt->Extend(sent, remaining);
  attempts_.push_back(attempt);
  if (draining_) return attempt->Release("the worker is stopping");
  if (is_drained_) return attempt->Release("the worker was drained");
  if (!has_room) return attempt->Release("the worker got more leases than it asked for");
  LogDebug("task {}: attempt {} of {}", attempt->lease().task(), attempt->lease().attempt(),
           attempt->lease().computation().name());
  attempt->Start(now);
}

WorkerLoop::AttemptPtr WorkerLoop::FindAttempt(const std::string& token) const {
  auto found = std::find_if(attempts_.begin(), attempts_.end(),
                            [&](const AttemptPtr& attempt) { return attempt->token() == token; });
  return found == attempts_.end() ? nullptr : *found;
}

void WorkerLoop::Forget(const std::string& token) {
  std::erase_if(attempts_, [&](const AttemptPtr& attempt) { return attempt->token() == token; });
  if (!finished_.insert(token).second) return;
  finished_order_.push_back(token);
  if (finished_order_.size() <= kFinishedMax) return;
  finished_.erase(finished_order_.front());
  finished_order_.pop_front();
}

void WorkerLoop::Stop(Attempt& attempt, std::string_view why) {
  LogInfo("task {}: stopped, because {}", attempt.lease().task(), why);
  ++counters_.stopped;
  attempt.Cancel();
}

void WorkerLoop::ExpireLeases(absl::Time now) {
  // Gone, but not finished: a server that was restarted under another clock may hold the lease for ours still, and
  // send it again.
  std::erase_if(attempts_, [&](const AttemptPtr& attempt) {
    if (attempt->is_ready()) {
      if (now < attempt->deadline() + kDeliveryMargin) return false;
      LogWarning("task {}: its result could not be handed in before its lease was over", attempt->lease().task());
      ++counters_.undelivered;
      attempt->Cancel();
      return true;
    }
    if (attempt->phase() == Attempt::Phase::kEnded || now < attempt->deadline()) return false;
    Stop(*attempt, "its lease lapsed");
    return true;
  });
}

void WorkerLoop::SweepEndedAttempts() {
  std::vector<std::string> ended;
  for (const AttemptPtr& attempt : attempts_) {
    if (attempt->phase() == Attempt::Phase::kEnded) ended.push_back(attempt->token());
  }
  for (const std::string& token : ended) Forget(token);
}

int WorkerLoop::NumRunning() const {
  int running = attempt_parts_.busy;
  for (const AttemptPtr& attempt : attempts_) {
    const bool is_active = !attempt->is_ready() && attempt->phase() != Attempt::Phase::kEnded && !attempt->is_ahead();
    if (is_active && !attempt->is_busy()) ++running;
  }
  return running;
}

int WorkerLoop::NumUnnoticed() const {
  return attempt_parts_.busy -
         static_cast<int>(std::count_if(attempts_.begin(), attempts_.end(), [](const AttemptPtr& attempt) {
           return attempt->is_busy() && !attempt->is_ahead() && !attempt->is_ready() &&
                  attempt->phase() != Attempt::Phase::kEnded;
         }));
}

int WorkerLoop::NumOpened() const {
  return static_cast<int>(std::count_if(attempts_.begin(), attempts_.end(), [](const AttemptPtr& attempt) {
    return attempt->is_ahead() && attempt->is_open();
  }));
}

int WorkerLoop::WantedLeases() const {
  if (draining_ || is_drained_) return 0;
  int limit = options_.concurrency;
  if (suggested_concurrency_ > 0) limit = std::min(limit, suggested_concurrency_);
  // Whose round has opened runs before anything new.
  return std::clamp(limit - NumRunning() - NumOpened(), 0, kItemsMax);
}

int WorkerLoop::WantedAhead() const {
  if (draining_ || is_drained_) return 0;
  // Those that run by now leave their place to others. A prepare that was stopped and has not noticed takes one.
  int taken = attempt_parts_.busy_ahead;
  for (const AttemptPtr& attempt : attempts_) {
    if (attempt->is_ahead() && !attempt->is_busy()) ++taken;
  }
  return std::clamp(options_.prepare_ahead - taken, 0, kItemsMax);
}

void WorkerLoop::RunOpened(absl::Time now) {
  int places = options_.concurrency - NumRunning();
  for (const AttemptPtr& attempt : attempts_) {
    if (places <= 0) return;
    if (attempt->phase() != Attempt::Phase::kPrepared || !attempt->is_open()) continue;
    attempt->GoOn(now);
    --places;
  }
}

void WorkerLoop::ReleaseAhead(std::string_view reason) {
  for (const AttemptPtr& attempt : attempts_) {
    if (attempt->is_ahead() && !attempt->is_open()) attempt->Release(reason);
  }
}

// --- Sync ---

bool WorkerLoop::IsInFlight(const Attempt& attempt) const {
  return std::any_of(open_syncs_.begin(), open_syncs_.end(),
                     [&](const auto& entry) { return entry.second.results.contains(attempt.token()); });
}

bool WorkerLoop::HasUnsentResult() const {
  return std::any_of(attempts_.begin(), attempts_.end(),
                     [&](const AttemptPtr& attempt) { return attempt->is_ready() && !IsInFlight(*attempt); });
}

absl::Time WorkerLoop::NextRenewal() const {
  absl::Time next = absl::InfiniteFuture();
  for (const AttemptPtr& attempt : attempts_) {
    if (attempt->phase() != Attempt::Phase::kEnded) next = std::min(next, attempt->renew_time());
  }
  return next;
}

bool WorkerLoop::SyncIsDue(absl::Time now) const {
  if (now < backoff_until_) return false;
  if (now >= NextRenewal()) return true;
  bool is_open = open_syncs_.contains(newest_sync_);
  // An open call is waited for, unless it is parked: the server ends it when a newer one comes.
  if (is_open && !open_syncs_.at(newest_sync_).may_park()) return false;
  if (HasUnsentResult()) return true;
  if (draining_ && !drain_announced_) return !is_open || !open_syncs_.at(newest_sync_).draining;
  return !is_open && (WantsPoll() || is_drained_) && now >= next_poll_;
}

void WorkerLoop::SendSync(absl::Time now) {
  OpenSync sync{.sent = now,
                .protocol_version = protocol_version_,
                .draining = draining_,
                .renews_only = renews_first_ && HasUnsentResult()};
  v1::SyncRequest request;
  request.set_protocol_version(protocol_version_);
  request.set_worker(options_.worker);
  request.set_population(options_.population);
  request.set_software_version(options_.software_version);
  for (v1::OfferedComputation& offer : parts_.runner.Offers()) *request.add_computations() = std::move(offer);
  request.mutable_labels()->insert(options_.labels.begin(), options_.labels.end());
  request.set_draining(draining_);
  if (!sync.renews_only) AddResults(now, request, sync);
  AddHeld(now, request, sync);
  if (!sync.renews_only) AddPoll(now, request, sync);

  ++counters_.syncs;
  int64_t id = ++newest_sync_;
  CallOptions call{.timeout = FromProto(request.wait()) + options_.call_timeout};
  open_syncs_.emplace(id, std::move(sync));
  Call(parts_.transport, kSync, request, call, [this, inbox = inbox_, id](absl::StatusOr<v1::SyncResponse> response) {
    // Events only run inside Step, so `this` is alive when they do.
    // Shared, because an event is copyable and an answer should not be copied.
    auto shared = std::make_shared<absl::StatusOr<v1::SyncResponse>>(std::move(response));
    inbox->Post([this, id, shared](absl::Time when) { OnSyncDone(id, std::move(*shared), when); });
  });
}

void WorkerLoop::AddResults(absl::Time now, v1::SyncRequest& request, OpenSync& sync) const {
  size_t bytes = 0;
  for (const AttemptPtr& attempt : attempts_) {
    if (!attempt->is_ready() || IsInFlight(*attempt) || request.results_size() == kItemsMax) continue;
    bytes += attempt->result().contribution().size();
    if (request.results_size() > 0 && bytes > kResultBytesMax) break;
    *request.add_results() = attempt->HandIn(now);
    sync.results.insert(attempt->token());
  }
}

void WorkerLoop::AddHeld(absl::Time now, v1::SyncRequest& request, const OpenSync& sync) {
  for (const AttemptPtr& attempt : attempts_) {
    if (sync.results.contains(attempt->token()) || attempt->phase() == Attempt::Phase::kEnded) continue;
    if (request.held_size() == kItemsMax) break;
    v1::HeldLease* held = request.add_held();
    held->set_task(attempt->lease().task());
    held->set_lease_token(attempt->token());
    held->set_progress(attempt->progress());
    held->set_announced(!attempt->is_open());
  }
  // Where runs that were stopped go on in all places, what has opened may run elsewhere when its lease is over.
  const bool has_place = NumUnnoticed() < options_.concurrency;
  for (const AttemptPtr& attempt : attempts_) attempt->NoteRenewalSent(now, has_place);
}

void WorkerLoop::AddPoll(absl::Time now, v1::SyncRequest& request, OpenSync& sync) {
  // Back in time for the next renewal, so that a parked call need not be overtaken for it.
  // And when there is more to offer, which the server hears with the next call.
  const absl::Duration wait =
      std::min({options_.poll_wait, (NextRenewal() - now) * 0.8, parts_.runner.offer_pause() + kOfferMargin});
  if (is_drained_ && !draining_) {
    // Only to hear that it is wanted again.
    request.set_drained(true);
    if (!parks_drained_) return;
    *request.mutable_wait() = ToProto(wait);
    sync.wait = wait;
    return;
  }
  const int want = WantedLeases();
  const int want_announced = WantsPoll() ? WantedAhead() : 0;
  auto newest = open_syncs_.find(newest_sync_);
  bool supersedes_poll = newest != open_syncs_.end() && !newest->second.poll_id.empty();
  if (want + want_announced == 0 || (now < next_poll_ && !supersedes_poll && request.results_size() == 0)) return;
  if (poll_id_.empty()) poll_id_ = parts_.random.Token(16);
  request.set_want(want);
  request.set_want_announced(want_announced);
  request.set_poll_id(poll_id_);
  *request.mutable_wait() = ToProto(wait);
  sync.poll_id = poll_id_;
  sync.wait = wait;
}

void WorkerLoop::OnSyncDone(int64_t id, absl::StatusOr<v1::SyncResponse> response, absl::Time now) {
  auto found = open_syncs_.find(id);
  if (found == open_syncs_.end() || done_) return;
  OpenSync sync = std::move(found->second);
  open_syncs_.erase(found);
  bool is_newest = id == newest_sync_;
  if (response.ok()) return OnAnswer(sync, *response, is_newest, now);
  ++counters_.failed_syncs;
  // When an overtaken call fails, the newer one tells how the server is; its results go into the next.
  if (is_newest || absl::IsFailedPrecondition(response.status())) OnSyncFailed(sync, response.status(), now);
}

void WorkerLoop::OnSyncFailed(const OpenSync& sync, const absl::Status& status, absl::Time now) {
  // Perhaps it is another one when it is back.
  parks_drained_ = true;
  if (absl::IsFailedPrecondition(status)) return OnVersionRefused(sync, status);
  if (IsRefusal(status)) {
    // Somebody is about to mend it, or else the leases are lost: a token is replaced in a file and revoked, in one
    // order or the other.
    const bool is_urgent = RetryAfter(status).has_value() || !attempts_.empty();
    if (!is_urgent || backoff_.failures() == 0) {
      LogError("the server refused this worker, which tries again {}: {}", is_urgent ? "soon" : "in a minute",
               status.ToString());
    }
    const absl::Duration pause = backoff_.Next(status, parts_.random);
    backoff_until_ = now + (is_urgent ? pause : parts_.random.Between(kRefusedPauseMin, kRefusedPauseMax));
    return;
  }
  // More than once: there may be no room for its results for longer than the leases last, theirs and the others'.
  renews_first_ = absl::IsResourceExhausted(status) && !sync.results.empty() && backoff_.failures() > 0;
  // Said once per outage.
  if (backoff_.failures() == 0) LogWarning("no answer, trying again: {}", status.ToString());
  backoff_until_ = now + backoff_.Next(status, parts_.random);
}

void WorkerLoop::OnVersionRefused(const OpenSync& sync, const absl::Status& status) {
  // Of a call that was overtaken: its successor says a lower one already.
  if (sync.protocol_version > protocol_version_) return;
  if (protocol_version_ == kProtocolVersionMin) return Finish(status);
  // 0.1 refuses whoever also speaks later ones; those after it answer in their highest.
  --protocol_version_;
  LogInfo("the server does not serve protocol {}; trying {}", sync.protocol_version, protocol_version_);
}

void WorkerLoop::OnAnswer(const OpenSync& sync, v1::SyncResponse& response, bool is_newest, absl::Time now) {
  // Renewals tell nothing of whether there is room again.
  if (!sync.renews_only) {
    if (backoff_.failures() > 0) LogInfo("the server answers again");
    backoff_.Reset();
  }
  renews_first_ = false;
  backoff_until_ = absl::InfinitePast();
  // Another server may be there since.
  if (response.protocol_version_max() > 0) {
    protocol_version_ = std::clamp(response.protocol_version_max(), kProtocolVersionMin, options_.protocol_version_max);
  }
  if (response.inline_bytes_max() > 0) {
    attempt_parts_.inline_bytes_max = std::min(response.inline_bytes_max(), kInlineBytesMax);
  }
  suggested_concurrency_ = response.suggested_concurrency();
  has_announced_ = response.has_announced();
  if (sync.draining) drain_announced_ = true;

  ForFirst(response.verdicts(), [&](const v1::ResultVerdict& verdict) { OnVerdict(verdict); });
  // A result the answer passed over would be offered for ever.
  for (const std::string& token : sync.results) {
    if (AttemptPtr attempt = FindAttempt(token)) {
      LogWarning("task {}: the server said nothing of its result; forgetting it", attempt->lease().task());
      Forget(token);
    }
  }
  ForFirst(response.held(), [&](const v1::LeaseUpdate& update) { OnLeaseUpdate(update, sync.sent); });
  SweepEndedAttempts();
  // What an overtaken call was told may be older than what the newer one was.
  const bool was_drained = is_drained_;
  if (is_newest) OnServiceChanged(response.drain(), now);
  ForFirst(*response.mutable_leases(), [&](v1::Lease& lease) {
    const std::string token = lease.lease_token();
    TakeLease(std::move(lease), sync.sent, now);
    const AttemptPtr attempt = FindAttempt(token);
    if (attempt != nullptr && response.has_grant_time()) attempt->NoteGrant(response.grant_time());
  });

  // A poll is over when leases came for it, or when its last repetition was answered.
  if (sync.poll_id == poll_id_ && (is_newest || response.leases_size() > 0)) poll_id_.clear();
  if (!is_newest) return;
  const auto pause = [](const google::protobuf::Duration& said) {
    return std::clamp(FromProto(said), absl::ZeroDuration(), kPollPauseMax);
  };
  absl::Duration pause_min = pause(response.next_min());
  absl::Duration pause_max = pause(response.next_max());
  bool has_nothing = response.leases_size() == 0 && response.verdicts_size() == 0 && response.held_size() == 0;
  // Servers before 0.2 do not park the calls of a drained worker, but do park them when it is in service again, and
  // leave it there.
  const bool could_wait = response.leases_size() == 0 && response.verdicts_size() == 0 &&
                          std::all_of(response.held().begin(), response.held().end(),
                                      [](const auto& update) { return update.verdict() == v1::LeaseUpdate::HELD; });
  if (is_drained_ && was_drained && could_wait && now - sync.sent < sync.wait / 2) parks_drained_ = false;
  if (is_drained_ && !parks_drained_) {
    pause_min = std::max(pause_min, kDrainedPause / 2);
    pause_max = std::max(pause_max, kDrainedPause);
  }
  if (has_nothing && now - sync.sent < sync.wait / 2) pause_max = std::max(pause_max, kEmptyPollPause);
  // To be found waiting when it is wanted again, or to go on at once.
  if (is_drained_ != was_drained) pause_min = pause_max = absl::ZeroDuration();
  next_poll_ = now + (pause_max > pause_min ? parts_.random.Between(pause_min, pause_max) : pause_min);
}

void WorkerLoop::OnVerdict(const v1::ResultVerdict& verdict) {
  using V = v1::ResultVerdict;
  const AttemptPtr attempt = FindAttempt(verdict.lease_token());
  if (attempt == nullptr) return;
  ++counters_.verdicts[verdict.verdict()];
  switch (verdict.verdict()) {
    case V::REJECTED:
      LogWarning("task {}: the server rejected the result: {}", attempt->lease().task(),
                 CutUtf8(verdict.message(), kLoggedBytesMax));
      break;
    case V::LEASE_LOST:
      LogWarning("task {}: the lease was lost before its result arrived", attempt->lease().task());
      break;
    case V::UNKNOWN_TASK:
      LogWarning("task {}: the server does not know it any more", attempt->lease().task());
      break;
    case V::LATE:
      LogInfo("task {}: the round ended before its result arrived", attempt->lease().task());
      break;
    case V::NOT_NEEDED:
      LogInfo("task {}: the round had enough before its result arrived", attempt->lease().task());
      break;
    default:
      LogDebug("task {}: {}", attempt->lease().task(), V::Verdict_Name(verdict.verdict()));
  }
  Forget(verdict.lease_token());
}

void WorkerLoop::OnLeaseUpdate(const v1::LeaseUpdate& update, absl::Time sent) {
  AttemptPtr attempt = FindAttempt(update.lease_token());
  if (attempt == nullptr) return;
  switch (update.verdict()) {
    case v1::LeaseUpdate::CANCELLED:
      // Of a finished attempt the verdict on its result decides: it may have been accepted by an answer that got lost.
      if (!attempt->is_ready()) Stop(*attempt, "it is not needed any more");
      break;
    case v1::LeaseUpdate::LOST:
      if (!attempt->is_ready()) Stop(*attempt, "the server took its lease away");
      break;
    case v1::LeaseUpdate::OPENED:
      attempt->Open(update.broadcast_digest());
      attempt->Extend(sent, FromProto(update.remaining()));
      break;
    default:
      attempt->Extend(sent, FromProto(update.remaining()));
  }
}

// --- Out of service, and back ---

void WorkerLoop::OnServiceChanged(bool is_drained, absl::Time now) {
  if (is_drained && options_.exit_when_drained) return StartDrain("the server said so", now);
  if (is_drained == is_drained_) return;
  is_drained_ = is_drained;
  parks_drained_ = true;
  if (is_drained) {
    LogInfo("drained by an operator: finishing what it holds ({}), and waiting to be taken back into service",
            Counted(static_cast<int64_t>(attempts_.size()), "lease"));
    ReleaseAhead("the worker was drained");
  } else {
    LogInfo("taken back into service");
  }
}

// --- Stopping ---

void WorkerLoop::StartDrain(std::string_view why, absl::Time now) {
  if (draining_) return;
  LogInfo("stopping, because {}; it holds {}", why, Counted(static_cast<int64_t>(attempts_.size()), "lease"));
  draining_ = true;
  grace_end_ = now + options_.grace;
  ReleaseAhead("the worker is stopping");
}

void WorkerLoop::StepDrain(absl::Time now) {
  if (!draining_) return;
  if (now >= grace_end_) {
    for (const AttemptPtr& attempt : attempts_) {
      if (!attempt->is_ready()) attempt->Release("the worker is stopping");
    }
  }
  bool server_knows = drain_announced_ || backoff_.failures() > 0;
  if ((attempts_.empty() && server_knows) || now >= grace_end_ + kDrainMargin) Finish(absl::OkStatus());
}

void WorkerLoop::Finish(absl::Status status) {
  for (const AttemptPtr& attempt : attempts_) attempt->Cancel();
  attempts_.clear();
  exit_status_ = std::move(status);
  done_ = true;
}

absl::Time WorkerLoop::NextStep(absl::Time now) const {
  if (done_) return absl::InfiniteFuture();
  if (SyncIsDue(now)) return now;
  // The next call: for a renewal, a poll or a result, but not during a backoff.
  absl::Time sync = NextRenewal();
  bool is_open = open_syncs_.contains(newest_sync_);
  if (!is_open && (WantsPoll() || is_drained_)) sync = std::min(sync, next_poll_);
  if (HasUnsentResult() || (draining_ && !drain_announced_)) sync = is_open ? sync : now;
  absl::Time next = std::max(sync, backoff_until_);
  for (const AttemptPtr& attempt : attempts_) {
    next = std::min(next, attempt->next_time());
    next = std::min(next, attempt->is_ready() ? attempt->deadline() + kDeliveryMargin : attempt->deadline());
  }
  if (draining_) next = std::min(next, now < grace_end_ ? grace_end_ : grace_end_ + kDrainMargin);
  return next;
}

}  // namespace sheaf
