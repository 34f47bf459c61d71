// The columns of a round in SQL, and their reader. `r` is rounds, `x` round_texts. Changes of rounds must have been
// flushed.
#pragma once

#include "storage/records.h"
#include "storage/sql/sql_connection.h"

namespace sheaf {

inline constexpr char kRoundColumns[] =
    "r.id, r.population, r.job, r.request_id, r.create_time, r.deadline_time, r.broadcast_digest, r.state, r.version, "
    "r.end_time, r.num_queued, r.num_leased, r.num_succeeded, r.num_failed, r.num_cancelled, r.num_buried, "
    "r.num_failed_attempts, r.num_lost_attempts, r.num_contributions, r.num_clients, r.bytes_up, r.checkpoint, "
    "r.checkpoint_sequence, r.progress, r.error, x.spec, x.aggregate, x.task_digests";
inline constexpr int kNumRoundColumns = 28;
RoundRecord ReadRound(const SqlRow& row);

}  // namespace sheaf
