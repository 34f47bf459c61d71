#include "cli/commands/selftest.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "cli/terminal/errors.h"
#include "probe/one_hot.h"
#include "proto/methods.h"
#include "proto/time.h"
#include "sdk/cpp/client/http_proxy.h"
#include "sdk/cpp/client/round_client.h"
#include "sdk/cpp/client/server_address.h"

namespace sheaf {
namespace {

// Least urgent: what the deployment is there for goes first.
constexpr int kPriority = 5;
// So that the faults alone never bury a task.
constexpr int kAttemptsMax = 10'000;
// A round that nobody watches any more ends by itself.
constexpr absl::Duration kRoundDeadline = absl::Minutes(2);
constexpr absl::Duration kLookEvery = absl::Milliseconds(50);
constexpr absl::Duration kStepMax = absl::Milliseconds(50);
constexpr absl::Duration kShortCall = absl::Seconds(2);

// In leases.
constexpr int kFaultyTime = 8;
constexpr int kLateBy = 3;
// How long a round may take without faults; connections that break are found by then.
constexpr absl::Duration kQuietTime = absl::Seconds(30);

}  // namespace

absl::StatusOr<std::unique_ptr<Selftest>> Selftest::Start(Session& session, const SelftestOptions& options) {
  auto selftest = std::unique_ptr<Selftest>(new Selftest(session, options));
  const GlobalOptions& global = session.options();
  // Says what is wrong with the server or with us, in peace.
  RETURN_IF_ERROR(session.patient_transport().status());
  // It stands between us and whatever we would connect to.
  ASSIGN_OR_RETURN(const ServerAddress server, ParseServerAddress(global.server));
  ASSIGN_OR_RETURN(selftest->network_,
                   FaultyNetwork::Start(FirstHop(server), session.host().clock, selftest->random_.Bits()));
  for (int i = 0; i < options.num_workers; ++i) {
    Seat seat;
    ASSIGN_OR_RETURN(seat.wire, session.host().connect(global.server, {.security = global.security,
                                                                       .own_connection = true,
                                                                       .via = selftest->network_->address()}));
    seat.recording = std::make_unique<RecordingTransport>(*seat.wire, selftest->history_);
    seat.calls = std::make_unique<FaultyCalls>(*seat.recording, session.host().timer, selftest->random_.Bits(),
                                               CallFaults{.late_by = kLateBy * options.lease});
    seat.worker = std::make_unique<ProtocolWorker>(ProtocolWorker::Options{.name = selftest->NewName(),
                                                                           .population = global.population,
                                                                           .lease = options.lease,
                                                                           .num_tasks = options.num_tasks},
                                                   *seat.calls, selftest->queue_, selftest->random_, *selftest);
    selftest->seats_.push_back(std::move(seat));
  }
  return selftest;
}

Selftest::~Selftest() = default;

const SelftestReport& Selftest::report() {
  report_.network_faults = network_->counts();
  report_.call_faults = 0;
  for (const Seat& seat : seats_) report_.call_faults += seat.calls->num_faults();
  return report_;
}

std::string Selftest::NewName() { return fmt::format("selftest-{}-{}", name_, ++num_names_); }

v1::RoundSpec Selftest::Spec() {
  v1::RoundSpec spec;
  spec.set_population(session_.options().population);
  spec.set_job("selftest");
  spec.mutable_computation()->set_name(kSelftestComputation);
  *spec.mutable_aggregate() = OneHotAggregate(options_.num_tasks);
  for (int i = 0; i < options_.num_tasks; ++i) spec.mutable_listed()->add_tasks()->set_payload(std::to_string(i));
  // Some rounds have enough before all of their tasks are done: then results come that must not be counted.
  if (random_.Chance(0.5)) spec.set_goal((3 * options_.num_tasks + 3) / 4);
  spec.set_priority(kPriority);
  spec.mutable_retry()->set_failed_max(kAttemptsMax);
  spec.mutable_retry()->set_lost_max(kAttemptsMax);
  *spec.mutable_lease_duration() = ToProto(options_.lease);
  *spec.mutable_deadline() = ToProto(kRoundDeadline);
  return spec;
}

absl::StatusOr<v1::Round> Selftest::CreateTwice(const v1::RoundSpec& spec) {
  const std::string request_id = session_.NewRequestId();
  ASSIGN_OR_RETURN(Transport * server, session_.patient_transport());
  ASSIGN_OR_RETURN(v1::Round round, CreateRound(*server, request_id, spec));
  ASSIGN_OR_RETURN(const v1::Round again, CreateRound(*server, request_id, spec));
  if (again.id() == round.id()) return round;
  Cancel(round.id());
  Cancel(again.id());
  return absl::AbortedError(fmt::format("one request_id created two rounds, {} and {}", round.id(), again.id()));
}

void Selftest::SetFaults(bool are_on) {
  const bool are_wanted = are_on && options_.has_faults;
  network_->SetFaults(are_wanted ? NetworkFaults{.calm_max = 2 * options_.lease, .outage_max = options_.lease}
                                 : NetworkFaults());
  for (const Seat& seat : seats_) {
    seat.calls->SetFaults(are_wanted
                              ? CallFaults{.twice = 0.05, .repeated_late = 0.05, .late = 0.02, .answer_lost = 0.05}
                              : CallFaults());
  }
}

absl::StatusOr<RoundTrial> Selftest::RunRound() {
  const Clock& clock = session_.host().clock;
  const absl::Time start = clock.Now();
  abandoned_.clear();
  ASSIGN_OR_RETURN(const v1::Round round, CreateTwice(Spec()));
  RoundTrial trial{.round = round.id()};
  SetFaults(true);
  const absl::Time faults_end = clock.Now() + (options_.has_faults ? kFaultyTime : 0) * options_.lease;
  const absl::Status driven = Drive(round.id(), faults_end, faults_end + (kLateBy + 1) * options_.lease + kQuietTime);
  SetFaults(false);
  trial.took = clock.Now() - start;
  if (!driven.ok()) {
    Cancel(round.id());
    if (!absl::IsDeadlineExceeded(driven)) return driven;
    report_.stuck_rounds.push_back(round.id());
    trial.history = history_.CheckWithoutAggregate(round.id());
  } else {
    ASSIGN_OR_RETURN(Transport * server, session_.patient_transport());
    ASSIGN_OR_RETURN(const std::string file, ReadAggregate(*server, round.id()));
    ASSIGN_OR_RETURN(const std::vector<int64_t> counts, OneHotCounts(file, OneHotForm::kAlone));
    trial.history = history_.Check(round.id(), counts);
    trial.is_released = true;
    ++report_.num_released;
  }
  report_.history.Add(trial.history);
  return trial;
}

absl::Status Selftest::Drive(const std::string& round, absl::Time faults_end, absl::Time until) {
  const Clock& clock = session_.host().clock;
  ASSIGN_OR_RETURN(Transport * server, session_.transport());
  v1::GetRoundRequest look;
  look.set_round(round);
  absl::Time next_look = clock.Now();
  absl::Time next_vanishing = clock.Now() + random_.Between(absl::ZeroDuration(), options_.lease);
  for (absl::Time now = clock.Now(); now < until; now = clock.Now()) {
    if (options_.is_interrupted()) return absl::CancelledError("interrupted");
    if (!refusal_.ok()) return refusal_;
    if (now >= faults_end && faults_end != absl::InfinitePast()) {
      SetFaults(false);
      faults_end = absl::InfinitePast();
    }
    if (now >= next_vanishing && now < faults_end) {
      seats_[random_.Below(seats_.size())].worker->Vanish(now, NewName());
      ++report_.num_vanished;
      next_vanishing = now + random_.Between(absl::ZeroDuration(), options_.lease);
    }
    if (now >= next_look) {
      // The deployment may be restarted meanwhile: then one looks again.
      const auto seen = BlockingCall(*server, kGetRound, look, {.timeout = kShortCall});
      if (absl::IsNotFound(seen.status())) return seen.status();
      if (seen.ok() && IsFinal(seen->round().state())) {
        if (seen->round().state() == v1::SUCCEEDED) return absl::OkStatus();
        return absl::AbortedError(fmt::format("round {} ended without a result: {}", round, seen->round().error()));
      }
      next_look = clock.Now() + kLookEvery;
    }
    absl::Time next = next_look;
    for (const Seat& seat : seats_) next = std::min(next, seat.worker->Step(now));
    queue_.RunFor(clock, std::clamp(next - clock.Now(), absl::ZeroDuration(), kStepMax));
  }
  return absl::DeadlineExceededError(fmt::format("round {} did not end", round));
}

void Selftest::Cancel(const std::string& round) {
  const absl::StatusOr<Transport*> server = session_.patient_transport();
  v1::CancelRoundRequest request;
  request.set_request_id(session_.NewRequestId());
  request.set_round(round);
  request.set_reason("the selftest ended before it did");
  absl::Status status = server.status();
  if (status.ok()) status = BlockingCall(**server, kCancelRound, request).status();
  if (!status.ok() && !absl::IsFailedPrecondition(status)) {
    session_.err() << fmt::format("round {} is still there, and ends by itself within {}: {}\n", round,
                                  absl::FormatDuration(kRoundDeadline), std::string(status.message()));
  }
}

void Selftest::OnLease(const v1::Lease& lease, absl::Time now) {
  const auto found = abandoned_.find(lease.task());
  if (found == abandoned_.end() || found->second.lease_token == lease.lease_token()) return;
  report_.reruns.push_back(now - found->second.time);
  abandoned_.erase(found);
}

void Selftest::OnRecovered(absl::Duration after) { report_.recoveries.push_back(after); }

void Selftest::OnRefused(const absl::Status& status) { refusal_.Update(status); }

void Selftest::OnAbandoned(const std::string& task, const std::string& lease_token, absl::Time now) {
  abandoned_[task] = {.lease_token = lease_token, .time = now};
}

}  // namespace sheaf
