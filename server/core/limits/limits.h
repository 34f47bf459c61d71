// Limits: everything has one, with a name and a reason. Shown by `sheaf server info`.
//
//   const Limits limits{.page_size_max = 10};      // The others keep their defaults.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"

namespace sheaf {

struct Limits {
  // --- Shares ---
  // What all populations share (rounds, tasks, waiting calls, workers, disk for results), and what identities share of
  // uploads and of the room for calls and requests: one may have so many percent of what the others leave. The rest is
  // for whoever comes next.
  int64_t population_percent_max = 90;

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
  // Leases of one Sync's answer, sent again or new: half of what a gRPC client takes in a message unless it is told
  // otherwise (4 MiB), so that the rest of the answer has room too. One lease goes whatever its size; what does not fit
  // comes with the next call.
  int64_t sync_leases_bytes_max = 2 << 20;
  // Leases of all answers that wait for one commit.
  int64_t batch_leases_bytes_max = 64 << 20;
  // What each lease and each view of a round repeats: its spec, without the tasks.
  int64_t round_spec_bytes_max = 512 << 10;
  // Page size of lists,
  int64_t page_size_max = 1000;
  // and about how many bytes a page has: workers with many labels, or tasks with long errors, make shorter ones.
  int64_t page_bytes_max = 1 << 20;
  // Messages and listed strings in one request: each takes some hundred bytes once it is parsed, but two on the wire.
  // Twice what a round of as many tasks as there may be needs, with four labels each.
  int64_t request_parts_max = 1 << 20;

  // --- Load ---
  // A crowd that waits for the core's thread: once the first of them has waited this long, further calls are refused
  // with a time to come back.
  absl::Duration queue_wait_max = absl::Milliseconds(200);
  // And no more than so many wait, however short.
  int64_t queued_calls_max = 2048;
  // The same for inspection, which has a queue of its own: people and dashboards.
  int64_t queued_inspections_max = 256;
  // Bytes of all requests that are being answered.
  int64_t open_request_bytes_max = 512 << 20;
  // Bytes of all answers that are being made, or that their clients have not taken yet: many slow links, or a few
  // clients that do not read. Divided between workers' calls, lists and reads of files, connections and identities: see
  // answer_books.h.
  int64_t open_answer_bytes_max = 512 << 20;
  // How long a read or a list waits for its share of them: short against its client's patience.
  absl::Duration answer_wait_max = absl::Seconds(5);
  // And how many wait.
  int64_t waiting_answers_max = 1024;
  // An answer that is not taken in this time is cut off: a chunk has passed a link of 140 kbit/s. A quarter of it, if
  // the room is needed; then chunks are an eighth as large, too.
  absl::Duration answer_time_max = absl::Minutes(2);
  // Threads for calls that move bytes, hash, flush, or have much to parse, apart from those that receive: enough to
  // keep a disk and some cores busy. One client has all but one of them at most.
  int64_t call_threads_max = 4;
  // Bytes that gRPC may hold of what is arriving, on all connections, of strangers too: it gathers a request whole
  // before anybody can look at it. Beyond this it cuts calls off.
  int64_t receive_bytes_max = int64_t{1} << 30;
  // Calls of one identity: no single one can take all there is. Lower it where each worker has a token of its own.
  int64_t calls_per_second_max = 100'000;
  // Open calls of one connection; further ones wait at the client. A proxy opens another connection.
  int64_t calls_per_connection_max = 1000;
  // Whoever connects and does not get as far as an HTTP/2 connection in this time is hung up on.
  absl::Duration handshake_timeout = absl::Seconds(20);
  // Connections without calls for this long are closed; clients connect again when they have one.
  absl::Duration connection_idle_max = absl::Minutes(10);
  // Streams that ask to be told when the server's health changes, and streams of reflection: whoever holds one, of the
  // first kind any stranger, holds some 20 KiB.
  int64_t health_watches_max = 1000;
  int64_t reflection_streams_max = 64;
  // Polls that wait for work, at 10 KiB each; further ones are answered at once, and told to come back later.
  int64_t parked_polls_max = 50'000;
  // A poll with more bytes is never parked: it would keep them.
  int64_t parked_poll_bytes_max = 64 << 10;
  // GetRound calls that wait for a change.
  int64_t watches_max = 10'000;

  // --- Workers ---
  // Workers that called within the last ten minutes: each is remembered.
  int64_t workers_max = 200'000;
  // Workers per identity: a fleet may share a token, but not take all the room.
  int64_t workers_per_identity_max = 100'000;
  // Records of workers in the store, whenever they called: those not seen for the longest are forgotten first. Not
  // fewer than workers_max.
  int64_t worker_records_max = 400'000;
  // What a worker says of itself, its computations and labels: it is kept, and stored.
  int64_t worker_bytes_max = 8 << 10;
  // Leases of one worker: as many as it can name in one Sync.
  int64_t leases_per_worker_max = 256;

  // --- Rounds ---
  // Tasks of one round.
  int64_t tasks_per_round_max = 100'000;
  // One of more is stored over several batches of so many tasks each, some 5 ms of the core's thread.
  int64_t tasks_per_batch_max = 1000;
  int64_t outputs_per_round_max = 256;
  // Payload of a task and config of a computation: larger things belong into a broadcast.
  int64_t task_payload_bytes_max = 64 << 10;
  int64_t data_selector_bytes_max = 1 << 10;
  // Payloads and data selectors of all tasks of a round together: open slots repeat one for each.
  int64_t round_payload_bytes_max = 64 << 20;
  // Tasks of all rounds that have not ended: a row each.
  int64_t live_tasks_max = 2'000'000;
  // Largest contribution a round may ask for.
  int64_t contribution_bytes_max = int64_t{1} << 30;
  // Rows and keys of one contribution's sparse and keyed outputs: some 50 bytes of memory each while it is checked.
  int64_t contribution_entries_max = 1 << 26;
  // Memory for contributions that are being checked or wait to be folded, of all rounds: two of the largest. Who brings
  // more comes back.
  int64_t unfolded_bytes_max = int64_t{2} << 30;
  // String keys, and other parts, of one contribution: some 100 bytes each once it is parsed.
  int64_t contribution_parts_max = 1 << 22;
  // Contributions on disk that no checkpoint covers yet, of all rounds: then each round writes a checkpoint first.
  int64_t spool_bytes_max = int64_t{256} << 30;
  // Uploads under way, by their announced sizes, of all identities, on disk,
  int64_t upload_bytes_max = int64_t{256} << 30;
  // in memory, those for EPHEMERAL rounds: several of the largest contribution,
  int64_t memory_upload_bytes_max = int64_t{4} << 30;
  // how many: each is an open file,
  int64_t uploads_max = 4096;
  // and how many of them one identity may have.
  int64_t uploads_per_identity_max = 1024;
  // Largest broadcast.
  int64_t broadcast_bytes_max = int64_t{16} << 30;
  // Its header, if it is a safetensors file: the largest models have some ten thousand tensors, which a header of a
  // megabyte or two describes. One of this size takes some 50 ms to parse, once for each blob.
  int64_t safetensors_header_bytes_max = 4 << 20;
  // Tensors, and entries of metadata, of one such file: some 200 bytes of memory each.
  int64_t safetensors_tensors_max = 1 << 15;
  // Names are the paths of a model's parts.
  int64_t safetensors_name_bytes_max = 1024;
  // Memory for the parsed headers of the broadcasts that were read last: some of the largest.
  int64_t open_header_bytes_max = 64 << 20;
  // Memory for the accumulators of one round: estimated for dense outputs when it is created; once it is exceeded, the
  // round takes no more contributions.
  int64_t accumulator_bytes_max = int64_t{8} << 30;
  // Names of metrics in one round: they are summed per name for as long as it lives.
  int64_t metrics_max = 64;
  int64_t metric_name_bytes_max = 128;
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
