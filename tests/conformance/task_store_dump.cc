#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "storage/transitions.h"
#include "tests/conformance/task_store_suite.h"

namespace sheaf {
namespace {

std::string At(absl::Time time) {
  return time == absl::InfiniteFuture() ? "never" : fmt::format("{}", absl::ToUnixNanos(time));
}

}  // namespace

std::string Describe(const TaskCounts& t) {
  return fmt::format("{}/{}/{}/{}/{}/{}", t.queued, t.leased, t.succeeded, t.failed, t.cancelled, t.buried);
}

std::string Describe(const RoundRecord& r) {
  return fmt::format(
      "round {} {} v{} population={} job={} request={} spec={} created={} deadline={} end={} broadcast={} "
      "tasks={} failed={} lost={} contributions={} clients={} bytes={} checkpoint={}@{} progress={} "
      "aggregate={} error={} digests={}",
      r.id, Name(r.state), r.version, r.population, r.job, r.request_id, r.spec, At(r.create_time), At(r.deadline_time),
      At(r.end_time), r.broadcast_digest, Describe(r.tasks), r.num_failed_attempts, r.num_lost_attempts,
      r.num_contributions, r.num_clients, r.bytes_up, r.checkpoint, r.checkpoint_sequence, r.progress, r.aggregate,
      r.error, r.task_digests);
}

std::string Describe(const TaskRecord& t) {
  std::string second;
  if (const auto& lease = t.second_lease) {
    second = fmt::format(" second attempt {} worker={} token={} poll={} leased={} expires={} deadline={} progress={}",
                         lease->attempt, lease->worker, lease->lease_token, lease->poll_id, At(lease->lease_time),
                         At(lease->expire_time), At(lease->attempt_deadline_time), lease->progress);
  }
  std::string carried;
  if (t.origin) carried += fmt::format(" origin={} staleness={}", t.origin->ToString(), t.staleness);
  if (t.carried_to) carried += fmt::format(" carried_to={}", t.carried_to->ToString());
  return fmt::format(
      "task {} {} payload={} selector={} requirement={} created={} available={} end={} worker={} token={} poll={} "
      "leased={} expires={} deadline={} progress={} attempt {} of {} failed={} lost={} error={}{}{}",
      t.id.ToString(), Name(t.state), t.payload, t.data_selector, t.requirement, At(t.create_time),
      At(t.available_time), At(t.end_time), t.worker, t.lease_token, t.poll_id, At(t.lease_time), At(t.expire_time),
      At(t.attempt_deadline_time), t.progress, t.attempt, t.num_attempts, t.num_failed, t.num_lost, t.last_error,
      second, carried);
}

std::string Describe(const AttemptRecord& a) {
  return fmt::format("attempt {} {} worker={} leased={} end={} error={} timings={} bytes={}", a.number, Name(a.outcome),
                     a.worker, At(a.lease_time), At(a.end_time), a.error, a.timings, a.bytes_up);
}

std::string Describe(const ContributionRecord& c) {
  return fmt::format(
      "contribution {} of {} worker={} token={} digest={} size={} clients={} spool={}+{}+{}#{} at={} staleness={}",
      c.sequence, c.task.ToString(), c.worker, c.lease_token, c.digest, c.size_bytes, c.num_clients, c.payload.segment,
      c.payload.offset, c.payload.length, c.payload.crc, At(c.accept_time), c.staleness);
}

std::string Describe(const WorkerRecord& w) {
  return fmt::format(
      "worker {} of {} description={} first={} last={} draining={} leased={} succeeded={} failed={} lost={}", w.name,
      w.population, w.description, At(w.first_seen_time), At(w.last_seen_time), w.is_draining, w.num_leased,
      w.num_succeeded, w.num_failed, w.num_lost);
}

std::string Describe(const TokenRecord& t) {
  return fmt::format(
      "token {} request={} name={} hash={} certificate={} roles={} populations={} creator={} created={} "
      "expires={} revoked={}",
      t.id, t.request_id, t.name, t.hash, t.certificate, t.roles, fmt::join(t.populations, ","), t.creator,
      At(t.create_time), At(t.expire_time), At(t.revoke_time));
}

std::string Dump(TaskStore& store, absl::Time now) {
  constexpr int kAll = 1'000'000;
  std::string dump;
  auto add = [&](std::string line) { dump += line + "\n"; };
  auto rounds = store.ListRounds({.limit = kAll});
  SHEAF_CHECK(rounds.ok(), "{}", rounds.status().ToString());
  for (const RoundRecord& round : *rounds) {
    add(Describe(round));
    auto contributions = store.ListContributions(round.id, 0, kAll);
    SHEAF_CHECK(contributions.ok(), "{}", contributions.status().ToString());
    for (const ContributionRecord& contribution : *contributions) add(Describe(contribution));
    auto requirements = store.ListRequirements(round.id);
    SHEAF_CHECK(requirements.ok(), "{}", requirements.status().ToString());
    auto queued = store.CountQueued(round.id);
    SHEAF_CHECK(queued.ok() && queued->size() == requirements->size(), "{}", queued.status().ToString());
    for (size_t i = 0; i < requirements->size(); ++i) {
      add(fmt::format("requirement {} queued={}", (*requirements)[i], (*queued)[i]));
    }
  }
  auto tasks = store.ListTasks({.limit = kAll});
  SHEAF_CHECK(tasks.ok(), "{}", tasks.status().ToString());
  for (TaskRecord& task : *tasks) {
    add(Describe(task));
    task.payload = task.data_selector = "";
    auto state = store.GetTaskState(task.id);
    SHEAF_CHECK(state.ok(), "{}", state.status().ToString());
    SHEAF_CHECK(Describe(*state) == Describe(task), "the state of a task is\n{}\ninstead of\n{}", Describe(*state),
                Describe(task));
    auto attempts = store.ListAttempts(task.id);
    SHEAF_CHECK(attempts.ok(), "{}", attempts.status().ToString());
    for (const AttemptRecord& attempt : *attempts) add(Describe(attempt));
  }
  auto workers = store.ListWorkers({.limit = kAll});
  SHEAF_CHECK(workers.ok(), "{}", workers.status().ToString());
  for (const WorkerRecord& worker : *workers) {
    add(Describe(worker));
    auto leases = store.ListLeases(worker.population, worker.name);
    SHEAF_CHECK(leases.ok(), "{}", leases.status().ToString());
    for (const TaskRecord& task : *leases) add("holds " + task.id.ToString());
  }
  auto tokens = store.ListTokens({.limit = kAll});
  SHEAF_CHECK(tokens.ok(), "{}", tokens.status().ToString());
  for (const TokenRecord& token : *tokens) add(Describe(token));
  auto queue = store.DescribeQueue("", now);
  SHEAF_CHECK(queue.ok(), "{}", queue.status().ToString());
  add(fmt::format("queue {}/{}/{} live={} delayed={} oldest={}", queue->tasks.queued, queue->tasks.leased,
                  queue->tasks.total(), queue->num_live_rounds, queue->num_delayed, At(queue->oldest_available_time)));
  auto due = store.NextDueTime(now);
  SHEAF_CHECK(due.ok(), "{}", due.status().ToString());
  add("due " + At(*due));
  return dump;
}

}  // namespace sheaf
