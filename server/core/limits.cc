#include "server/core/limits.h"

namespace sheaf {

std::map<std::string, int64_t> Limits::ByName() const {
  return {
      {"request_bytes_max", request_bytes_max},
      {"inline_bytes_max", inline_bytes_max},
      {"chunk_bytes_max", chunk_bytes_max},
      {"sync_items_max", sync_items_max},
      {"page_size_max", page_size_max},
      {"tasks_per_round_max", tasks_per_round_max},
      {"outputs_per_round_max", outputs_per_round_max},
      {"task_payload_bytes_max", task_payload_bytes_max},
      {"data_selector_bytes_max", data_selector_bytes_max},
      {"contribution_bytes_max", contribution_bytes_max},
      {"broadcast_bytes_max", broadcast_bytes_max},
      {"accumulator_bytes_max", accumulator_bytes_max},
      {"metrics_max", metrics_max},
      {"live_rounds_max", live_rounds_max},
      {"tokens_max", tokens_max},
      {"lease_default_ms", absl::ToInt64Milliseconds(lease_default)},
      {"round_deadline_default_ms", absl::ToInt64Milliseconds(round_deadline_default)},
      {"poll_wait_max_ms", absl::ToInt64Milliseconds(poll_wait_max)},
      {"retry_backoff_base_ms", absl::ToInt64Milliseconds(retry_backoff_base)},
      {"retry_backoff_max_ms", absl::ToInt64Milliseconds(retry_backoff_max)},
      {"unreferenced_keep_ms", absl::ToInt64Milliseconds(unreferenced_keep)},
      {"ended_keep_ms", absl::ToInt64Milliseconds(ended_keep)},
      {"ended_rounds_max", ended_rounds_max},
      {"broadcast_linger_ms", absl::ToInt64Milliseconds(broadcast_linger)},
      {"failed_attempts_max", failed_attempts_max},
      {"lost_attempts_max", lost_attempts_max},
      {"checkpoint_spool_bytes", checkpoint_spool_bytes},
      {"checkpoint_contributions", checkpoint_contributions},
  };
}

}  // namespace sheaf
