// A server whose core's thread waits for its disk: whoever called in time meanwhile was in time.
#include <filesystem>
#include <fstream>

#include "base/mutex.h"
#include "proto/methods.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

// More than one batch takes.
constexpr int kWorkers = 240;
constexpr absl::Duration kLease = absl::Seconds(3);

std::string WorkerName(int i) { return fmt::format("w{}", i); }

// The answers to calls that all go on at once.
class Answers {
 public:
  void Take(absl::StatusOr<v1::SyncResponse> response) {
    MutexLock lock(mutex_);
    ++num_;
    if (!response.ok()) error_.Update(response.status());
    if (response.ok() && response->held_size() == 1 && response->held(0).verdict() == v1::LeaseUpdate::HELD)
      ++num_held_;
  }
  int num() const {
    MutexLock lock(mutex_);
    return num_;
  }
  int num_held() const {
    MutexLock lock(mutex_);
    return num_held_;
  }
  absl::Status error() const {
    MutexLock lock(mutex_);
    return error_;
  }

 private:
  mutable Mutex mutex_;
  int num_ GUARDED_BY(mutex_) = 0;
  int num_held_ GUARDED_BY(mutex_) = 0;
  absl::Status error_ GUARDED_BY(mutex_);
};

// What polls are answered that all go on at once.
class Grants {
 public:
  void Take(int i, const absl::StatusOr<v1::SyncResponse>& response) {
    MutexLock lock(mutex_);
    ++num_;
    if (response.ok() && response->leases_size() == 1) leases_[static_cast<size_t>(i)] = response->leases(0);
  }
  int num() const {
    MutexLock lock(mutex_);
    return num_;
  }
  // By worker.
  std::vector<v1::Lease> leases() const {
    MutexLock lock(mutex_);
    return leases_;
  }

 private:
  mutable Mutex mutex_;
  int num_ GUARDED_BY(mutex_) = 0;
  std::vector<v1::Lease> leases_ GUARDED_BY(mutex_) = std::vector<v1::Lease>(kWorkers);
};

TEST_CASE("Leases that were renewed while the server's disk hung are held, however many and however long it hung") {
  const TemporaryDirectory scratch = ScratchDirectory();
  const std::string stall = scratch.path() + "/stall";
  Grants grants;
  Federation federation(
      {.server_wrapper = {"/usr/bin/env", "LD_PRELOAD=" SHEAF_STALLED_FLUSH, "SHEAF_TEST_STALL=" + stall}});
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = kWorkers, .lease = kLease}));
  const absl::Time first_leased = federation.clock().Now();
  // At once: a flush for each, one after the other, could outlast the first lease on a slow disk.
  for (int i = 0; i < kWorkers; ++i) {
    Call(federation.transport(), kSync, APoll(WorkerName(i), "poll", 1), {},
         [&grants, i](const absl::StatusOr<v1::SyncResponse>& response) { grants.Take(i, response); });
  }
  WaitUntil("all polls are answered", absl::Seconds(60), [&] { return grants.num() == kWorkers; });
  const std::vector<v1::Lease> leases = grants.leases();
  for (const v1::Lease& lease : leases) REQUIRE_FALSE(lease.task().empty());

  std::ofstream(stall).put('\n');
  Answers answers;
  const auto renew = [&](int i) {
    v1::SyncRequest request = APoll(WorkerName(i), "", 0);
    AddHeld(leases[static_cast<size_t>(i)], 1, request);
    Call(federation.impatient_transport(), kSync, request, {},
         [&answers](absl::StatusOr<v1::SyncResponse> response) { answers.Take(std::move(response)); });
  };
  // The commit of the first hangs; all others wait behind it.
  for (int i = 0; i < kWorkers; ++i) renew(i);
  REQUIRE(federation.clock().Now() < first_leased + kLease);
  const absl::Time all_expired = federation.clock().Now() + kLease + absl::Seconds(1);
  WaitUntil("every lease has run out", 2 * kLease, [&] { return federation.clock().Now() > all_expired; });
  CHECK(answers.num() == 0);
  std::filesystem::remove(stall);
  WaitUntil("all renewals are answered", absl::Seconds(10), [&] { return answers.num() == kWorkers; });
  CHECK(answers.error() == absl::OkStatus());
  CHECK(answers.num_held() == kWorkers);

  for (int i = 0; i < kWorkers; ++i) {
    v1::SyncRequest result = APoll(WorkerName(i), "", 0);
    AddResult(leases[static_cast<size_t>(i)], result);
    CHECK(VerdictsOf(SyncOnce(federation.transport(), result)) == std::vector<std::string>{"ACCEPTED"});
  }
  CHECK(Await(federation, round).num_lost_attempts() == 0);
  Measured("{} of {} leases held behind a commit that took {}", answers.num_held(), kWorkers,
           absl::FormatDuration(kLease + absl::Seconds(1)));
}

}  // namespace
}  // namespace sheaf
