#include "server/core/batch_runner.h"

#include <utility>

#include "server/core/core.h"

namespace sheaf {

absl::Status BatchRunner::Run(std::vector<Executor::Event> events, absl::Time now, BatchControl& control) {
  if (const absl::Status begun = store_.BeginBatch(); !begun.ok()) {
    return absl::InternalError("the store cannot begin a batch: " + begun.ToString());
  }
  Executor& executor = core_.context().executor;
  size_t num_run = 0;
  while (num_run < events.size() && (num_run == 0 || control.MayGoOn())) {
    executor.NoteWork("an event");
    events[num_run++](now);
  }
  control.TakeBack(std::span(events).subspan(num_run));
  core_.Tick(now, control.ReadUntil(now));
  control.OnWorked();
  executor.NoteWork("the commit");
  const absl::Status commit = Commit();
  const absl::Status reread = commit.ok() ? commit : core_.OnRollback(now);
  executor.NoteWork("what waited for the commit");
  // What is deferred may defer no more; what it posts goes into the next batch.
  for (const Executor::Deferred& deferred : std::exchange(deferred_, {})) deferred(commit);
  if (reread.ok()) return commit;
  return absl::InternalError("after a batch that failed the store cannot be read: " + reread.ToString());
}

absl::Status BatchRunner::Commit() {
  // The bytes before the record that promises them.
  absl::Status synced = payloads_.SyncSpools();
  if (!synced.ok()) {
    store_.RollbackBatch();
    return synced;
  }
  return store_.CommitBatch();
}

}  // namespace sheaf
