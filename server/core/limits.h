// Limits: everything has one, with a name and a reason. Shown by `sheaf server info`.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"

namespace sheaf {

struct Limits {
  // --- Messages ---
  // One request: several inline results of a Sync, or a round of many small tasks. It is held in memory whole.
  int64_t request_bytes_max = 8 << 20;
  // Results up to this size travel inside Sync: one RPC per task for most sparse updates, well under gRPC's
  // default receive limit of 4 MiB with a few results in a call.
  int64_t inline_bytes_max = 1 << 20;
  // 1-2 MiB is where gRPC moves bytes fastest (measured: 3.4-8.5 GB/s; one 64 MiB message only 1.5).
  int64_t chunk_bytes_max = 2 << 20;
  // Results, held leases and wanted leases of one Sync: bounds the work of one call.
  int64_t sync_items_max = 256;
  // Page size of lists.
  int64_t page_size_max = 1000;

  // --- Rounds ---
  // Tasks of one round: they are created in one transaction.
  int64_t tasks_per_round_max = 100'000;
  int64_t outputs_per_round_max = 256;
  // Payload of a task and config of a computation: larger things belong into a broadcast.
  int64_t task_payload_bytes_max = 64 << 10;
  int64_t data_selector_bytes_max = 1 << 10;
  // Largest contribution a round may ask for.
  int64_t contribution_bytes_max = int64_t{1} << 30;
  // Largest broadcast.
  int64_t broadcast_bytes_max = int64_t{16} << 30;
  // Memory for the accumulators of one round: estimated for dense outputs when it is created; once it is exceeded, the
  // round takes no more contributions.
  int64_t accumulator_bytes_max = int64_t{8} << 30;
  // Names of metrics in one contribution: they are summed per name for as long as the round lives.
  int64_t metrics_max = 64;
  // Tokens, void ones of the last 30 days included: all are kept in memory.
  int64_t tokens_max = 10'000;
  // Rounds that have not ended.
  int64_t live_rounds_max = 10'000;

  // --- Time ---
  // A worker that makes no progress for this long loses its task, unless the round says otherwise.
  absl::Duration lease_default = absl::Seconds(30);
  absl::Duration round_deadline_default = absl::Hours(1);
  // Longest long poll: shorter than the idle timeouts of common proxies and NATs.
  absl::Duration poll_wait_max = absl::Seconds(60);
  // Backoff of failed attempts: full jitter below base * 2^(n-1), capped.
  absl::Duration retry_backoff_base = absl::Seconds(1);
  absl::Duration retry_backoff_max = absl::Minutes(1);
  // Uploads and blobs that nothing refers to are kept this long.
  absl::Duration unreferenced_keep = absl::Hours(1);
  // Rounds that ended, with their tasks and aggregates, and workers that were not seen, are kept this long: a month to
  // look back,
  absl::Duration ended_keep = absl::Hours(24 * 30);
  // and no more rounds than this: the store stays as large as it is, however long the training.
  int64_t ended_rounds_max = 2000;
  // A broadcast outlives the last round that used it by this much, so that the next round may name it again.
  absl::Duration broadcast_linger = absl::Seconds(10);

  // --- Attempts ---
  int32_t failed_attempts_max = 4;
  int32_t lost_attempts_max = 16;

  // --- Checkpoints ---
  // A checkpoint is due after this many spooled bytes, or twice the accumulator's own size, whichever is more: writing
  // checkpoints never costs more than writing contributions did.
  int64_t checkpoint_spool_bytes = 64 << 20;
  int64_t checkpoint_contributions = 4096;

  // Name to value (durations in milliseconds).
  std::map<std::string, int64_t> ByName() const;
};

}  // namespace sheaf
