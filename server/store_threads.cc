#include "server/store_threads.h"

#include <unistd.h>

#include <string>

#include "base/cpu_time.h"
#include "base/log.h"

namespace sheaf {
namespace {

// Beside the core: folds and checkpoints are long, and wait for the disk; receptions are short, and each of them has a
// worker waiting. All of them together leave the operating system to share the machine's cores fairly with the core's
// thread.
constexpr int kFoldThreads = 2;
constexpr int kReceptionThreads = 4;
// The last checkpoints take no longer: with all else a stop has to do this is well within the 30 s that a service
// manager gives it (deploy/systemd). What is not saved then is in the spool, or asked for again.
constexpr absl::Duration kLastCheckpointsMax = absl::Seconds(10);

// Without destructors: they might write.
void EndProcess(const absl::Status& status) {
  if (absl::IsAborted(status)) {
    LogError(
        "stopping at once, because the store is no longer this server's: {}; start it again, and it takes the store "
        "when that is free",
        std::string(status.message()));
  } else {
    LogError("stopping at once, because what is on disk is not known: {}; restart the server when the disk works again",
             status.ToString());
  }
  _exit(1);
}

}  // namespace

StoreThreads::StoreThreads(const Clock& its_clock, absl::Duration idle_max)
    : clock(its_clock), core(its_clock, EndProcess, idle_max), folds(kFoldThreads), receptions(kReceptionThreads) {}

Core::Options StoreThreads::CoreOptions(Core::Options options) {
  options.parallel = &aggregation;
  options.folds = &folds;
  options.receptions = &receptions;
  options.watch = MonotonicTime;
  return options;
}

absl::Status StoreThreads::BeginDrain(Core& drained) {
  return core.RunInBatch([&](absl::Time now) { drained.BeginDrain(now); });
}

absl::Status StoreThreads::Finish(Core& finished) {
  const absl::Status status = core.RunInBatch([&](absl::Time now) { finished.CheckpointAll(now); });
  FinishFolds(kLastCheckpointsMax);
  Stop();
  return status;
}

void StoreThreads::Stop() {
  receptions.Stop();
  folds.Stop();
  core.Stop();
}

void StoreThreads::FinishFolds(absl::Duration timeout) {
  const absl::Time end = clock.Now() + timeout;
  for (bool is_idle = false; !is_idle && clock.Now() < end;) {
    if (!folds.WaitUntilIdle(clock, end - clock.Now())) return;
    // What it posted may give it more to do.
    if (!core.RunInBatch([](absl::Time) {}).ok()) return;
    is_idle = folds.WaitUntilIdle(clock, absl::ZeroDuration());
  }
}

}  // namespace sheaf
