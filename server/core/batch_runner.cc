#include "server/core/batch_runner.h"

#include <utility>

#include "base/check.h"
#include "server/core/core.h"

namespace sheaf {

absl::Status BatchRunner::Run(std::vector<Executor::Event> events, absl::Time now, BatchControl& control) {
  SHEAF_CHECK(deferred_.empty(), "something is deferred to a batch that has not begun");
  if (const absl::Status begun = store_.BeginBatch(); !begun.ok()) {
    if (absl::IsAborted(begun)) return begun;
    return absl::InternalError("the store cannot begin a batch: " + begun.ToString());
  }
  Executor& executor = core_.context().executor;
  // 1. The events. They change the store and what the core assumes of it, and answer nobody: each answer is deferred.
  size_t num_run = 0;
  while (num_run < events.size() && (num_run == 0 || control.MayGoOn())) {
    executor.NoteWork("an event");
    events[num_run++](now);
  }
  control.TakeBack(std::span(events).subspan(num_run));
  // 2. What time brings, behind the events: a renewal or result in this batch counts before its lease runs out.
  core_.Tick(now, control.ReadUntil(now));
  control.OnWorked();
  // 3. All of it becomes durable at once, or nothing of it has happened. A crash before this leaves the store as it was
  // before the batch, and nobody was told otherwise; one behind it leaves answers that were not sent, which the callers
  // ask for again.
  executor.NoteWork("the commit");
  absl::Status commit = Commit(control);
  control.OnCommitted();
  // 4. The core drops what it assumed from a batch that failed, before anybody who was deferred looks at it.
  const absl::Status reread = commit.ok() ? commit : core_.OnRollback(now);
  // 5. Now everybody hears. What is deferred may defer no more; what it posts goes into the next batch.
  executor.NoteWork("what waited for the commit");
  // A store that is another server's now is no error of theirs: that server takes the same calls.
  const absl::Status told = absl::IsAborted(commit) ? absl::UnavailableError(commit.message()) : commit;
  for (const Executor::Deferred& deferred : std::exchange(deferred_, {})) deferred(told);
  if (reread.ok() || absl::IsAborted(commit)) return commit;
  if (absl::IsAborted(reread)) return reread;
  return absl::InternalError("after a batch that failed the store cannot be read: " + reread.ToString());
}

absl::Status BatchRunner::Commit(BatchControl& control) {
  // The bytes before the record that promises them: a crash between the two leaves bytes that no record names, and
  // never a record without its bytes. A flush that failed is not tried again: what the disk has is not known after it,
  // and the process ends.
  absl::Status synced = payloads_.SyncSpools();
  control.OnFlushed();
  if (!synced.ok()) {
    store_.RollbackBatch();
    return synced;
  }
  return store_.CommitBatch();
}

}  // namespace sheaf
