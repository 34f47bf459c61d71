// What the store keeps, as plain structs. Specs, aggregates, timings and metrics are opaque bytes
// here: only server/core knows what is in them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "storage/ids.h"

namespace sheaf {

enum class RoundState { kAnnounced = 1, kCollecting = 2, kSealing = 3, kSucceeded = 4, kFailed = 5, kCancelled = 6 };
enum class TaskState { kQueued = 1, kLeased = 2, kSucceeded = 3, kFailed = 4, kCancelled = 5, kBuried = 6 };
enum class AttemptOutcome { kRunning = 0, kSucceeded = 1, kFailed = 2, kLost = 3, kReleased = 4, kCancelled = 5 };

// Tasks of a round (or a queue) by state.
struct TaskCounts {
  int64_t queued = 0;
  int64_t leased = 0;
  int64_t succeeded = 0;
  int64_t failed = 0;
  int64_t cancelled = 0;
  int64_t buried = 0;

  int64_t total() const { return queued + leased + succeeded + failed + cancelled + buried; }
  friend bool operator==(const TaskCounts&, const TaskCounts&) = default;
};

struct RoundRecord {
  RoundId id;
  std::string population;
  std::string job;
  // Of the call that created it; unique.
  std::string request_id;
  // Opaque: the serialised spec, without its listed tasks.
  std::string spec;
  RoundState state = RoundState::kCollecting;
  // Grows with every change to this record: the etag.
  int64_t version = 1;
  absl::Time create_time;
  absl::Time deadline_time;
  // Infinite future while it runs.
  absl::Time end_time = absl::InfiniteFuture();
  // Empty when there is none. Keeps the blob alive while the round does.
  std::string broadcast_digest;
  TaskCounts tasks;
  int64_t num_failed_attempts = 0;
  int64_t num_lost_attempts = 0;
  // Accepted contributions; also the sequence number of the newest.
  int64_t num_contributions = 0;
  int64_t num_clients = 0;
  int64_t bytes_up = 0;
  // Name of the newest checkpoint (empty: none) and the sequence number up to
  // which it contains every contribution.
  std::string checkpoint;
  int64_t checkpoint_sequence = 0;
  // Opaque: the core's sums of attempt timings, metrics and bytes down, kept with every contribution.
  std::string progress;
  // Opaque: what was released, set with kSucceeded.
  std::string aggregate;
  // Why it failed or was cancelled.
  std::string error;
  // Opaque, from the core, written once: what tells its tasks from others without looking at them.
  std::string task_digests;
};

// A second lease of a task that is LEASED, for a speculative attempt beside the one that runs (docs/adr/0040). The
// task's first lease lies in the task's own fields, which are the same.
struct SecondLease {
  WorkerName worker;
  LeaseToken lease_token;
  std::string poll_id;
  absl::Time lease_time;
  absl::Time expire_time;
  absl::Time attempt_deadline_time;
  int64_t progress = 0;
  int32_t attempt = 0;

  friend bool operator==(const SecondLease&, const SecondLease&) = default;
};

struct TaskRecord {
  TaskId id;
  TaskState state = TaskState::kQueued;
  // Opaque, from the submitter.
  std::string payload;
  std::string data_selector;
  // Canonical text of the labels a worker must carry; empty: none.
  std::string requirement;
  absl::Time create_time;
  // kQueued: not before this.
  absl::Time available_time;
  absl::Time end_time = absl::InfiniteFuture();
  // The holder (kLeased) or the one whose contribution was accepted (kSucceeded).
  WorkerName worker;
  // kLeased, and kSucceeded (the token under which it was accepted).
  LeaseToken lease_token;
  // kLeased: the poll that was given this lease.
  std::string poll_id;
  // kLeased: when this lease began, when it ends unless renewed, and when the attempt must end.
  absl::Time lease_time;
  absl::Time expire_time;
  absl::Time attempt_deadline_time;
  // Highest progress reported under this lease.
  int64_t progress = 0;
  // Number of the attempt that this lease is: the newest, unless a second lease was given since. 0 if not kLeased.
  int32_t attempt = 0;
  // kLeased only: always another worker's.
  std::optional<SecondLease> second_lease;
  int32_t num_attempts = 0;
  // Since it was created or last requeued by an operator.
  int32_t num_failed = 0;
  int32_t num_lost = 0;
  std::string last_error;
  // Carried over from another round (TaskStore::CarryOver): the task that its worker was given, and through how many
  // rounds it came. Nothing, and 0, of all others.
  std::optional<TaskId> origin;
  int32_t staleness = 0;
  // kCancelled, because it was carried over: what it became.
  std::optional<TaskId> carried_to;
};

// Of each task, the newest, the one that runs included. A task may be given back any number of times.
inline constexpr int32_t kAttemptsKept = 1000;

struct AttemptRecord {
  // 1 for the first.
  int32_t number = 0;
  WorkerName worker;
  absl::Time lease_time;
  absl::Time end_time = absl::InfiniteFuture();
  AttemptOutcome outcome = AttemptOutcome::kRunning;
  std::string error;
  // Opaque: where the worker says its time went.
  std::string timings;
  int64_t bytes_up = 0;
};

// Where a contribution's bytes lie until a checkpoint covers them.
struct SpoolRef {
  // Segment of the round's spool; 0 means the bytes were never spooled (EPHEMERAL).
  int64_t segment = 0;
  int64_t offset = 0;
  int64_t length = 0;
  uint32_t crc = 0;

  friend bool operator==(const SpoolRef&, const SpoolRef&) = default;
};

struct ContributionRecord {
  TaskId task;
  // 1 for the round's first accepted contribution, then without gaps.
  int64_t sequence = 0;
  WorkerName worker;
  LeaseToken lease_token;
  // SHA-256 of the bytes, hex.
  std::string digest;
  int64_t size_bytes = 0;
  int64_t num_clients = 1;
  SpoolRef payload;
  absl::Time accept_time;
  // Of its task.
  int32_t staleness = 0;
};

struct WorkerRecord {
  WorkerName name;
  std::string population;
  // Opaque: versions, computations and labels as last reported.
  std::string description;
  absl::Time first_seen_time;
  absl::Time last_seen_time;
  bool is_draining = false;
  int64_t num_leased = 0;  // Leases it was ever given; the rest count how attempts ended.
  int64_t num_succeeded = 0;
  int64_t num_failed = 0;
  int64_t num_lost = 0;
};

// Who shows the secret of which `hash` is the SHA-256 may do what `roles` say.
struct TokenRecord {
  TokenId id;
  // Of the call that created it; unique.
  std::string request_id;
  // Whose it is; tokens of one name are one identity.
  std::string name;
  // SHA-256, hex; unique. The secret itself is never stored.
  std::string hash;
  // The name in a client certificate that stands for the secret; empty: none.
  std::string certificate;
  // Bits; only server/core knows their meaning.
  int64_t roles = 0;
  // Sorted, each once. Empty: all.
  std::vector<std::string> populations;
  std::string creator;
  absl::Time create_time;
  absl::Time expire_time = absl::InfiniteFuture();
  absl::Time revoke_time = absl::InfiniteFuture();
};

// A server on a store that several share. Times are the store's own, so that no two clocks are compared.
struct ServerRecord {
  std::string name;
  // Where callers reach it.
  std::string address;
  std::string version;
  // Since its process began.
  absl::Duration up_for;
  // It writes the store, or some of its shards: for how long one of them.
  bool is_owner = false;
  absl::Duration owner_for;
  // How many, and their populations, in the order of their names: kPopulationsMax of them, and one more if there are
  // more. None where all populations are the one server's.
  static constexpr int kPopulationsMax = 20;
  int num_shards = 0;
  std::vector<std::string> populations;
  // Since the store heard of it.
  absl::Duration silent_for;
  // It takes nothing while others are there, and gives away what it has.
  bool is_draining = false;
};

}  // namespace sheaf
