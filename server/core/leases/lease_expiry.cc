#include "server/core/leases/lease_expiry.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "server/core/leases/straggler_policy.h"
#include "server/core/rounds/round_states.h"
#include "storage/second_lease.h"

namespace sheaf {
namespace {

// Taken back in one batch: each takes some 20 us, and those who wait behind are waiting for work.
constexpr int kPage = 256;

}  // namespace

void LeaseExpiry::Sweep(absl::Time now, absl::Time read_until) {
  SHEAF_CHECK(read_until <= now, "calls were read up to a time that has not come");
  if (read_until < due_.time()) return;
  // Those that are spared stay in front of the list. So many more are asked for, or they alone could fill each page,
  // and leases behind them would never run out.
  const absl::StatusOr<std::vector<TaskRecord>> expired =
      context_.store.ListExpired(read_until, kPage + in_reception_.size());
  if (!expired.ok()) return;  // The batch fails with it, and the next sweep finds the same.
  for (const TaskRecord& found : *expired) {
    LiveRound* round = rounds_.Find(found.id.round);
    // Its leases were cancelled with it, in this batch.
    if (round == nullptr || !HandsOutTasks(round->state)) continue;
    if (in_reception_.Spare(found.lease_token)) continue;
    TaskRecord task = found;
    if (task.second_lease) {
      // The other lease may have ended just now, and was counted.
      absl::StatusOr<TaskRecord> state = context_.store.GetTaskState(found.id);
      if (!state.ok()) return;
      task = AsHeldUnder(*std::move(state), found.lease_token);
    }
    const bool is_overdue = task.attempt_deadline_time <= read_until;
    const absl::Duration limit = AttemptLimitOf(*round, task);
    const bool is_too_slow = RunsSince(*round, task) + limit <= read_until;
    SHEAF_CHECK(is_overdue || task.expire_time <= read_until, "the lease of task {} has not run out",
                task.id.ToString());
    std::string error = is_too_slow
                            ? fmt::format(
                                  "the attempt did not end within {}, as long as stragglers may take: {:g} times the "
                                  "{:g} quantile of the {} attempts that succeeded",
                                  absl::FormatDuration(absl::Trunc(limit, absl::Milliseconds(1))),
                                  round->spec.straggler().deadline_factor(), round->spec.straggler().quantile(),
                                  round->progress.run_times.count())
                        : is_overdue ? fmt::format("the attempt did not end within {}",
                                                   absl::FormatDuration(task.attempt_deadline_time - task.lease_time))
                                     : fmt::format("worker {} made no progress until its lease expired", task.worker);
    const absl::Status ended =
        attempts_.End(*round, task, {.outcome = AttemptOutcome::kLost, .error = std::move(error), .now = now});
    if (!ended.ok()) LogError("task {} cannot be taken back: {}", task.id.ToString(), ended.ToString());
  }
  rounds_.work().LookForDue(now);
  // The next time comes from the store, which knows all leases: also those from before a restart, or of a batch that
  // failed. Where a page was full there may be more that have run out, and the next batch goes on.
  const absl::StatusOr<absl::Time> next = context_.store.NextDueTime(read_until);
  due_.Set(!next.ok() || expired->size() >= kPage ? read_until : *next);
}

}  // namespace sheaf
