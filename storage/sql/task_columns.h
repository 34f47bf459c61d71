// The columns of a task in SQL, and their reader. `t` is tasks, `r` rounds, `i` task_inputs, `q` round_requirements;
// what kTaskCarried joins says where the task came from, and what became of it. Changes of rounds must have been
// flushed.
#pragma once

#include "storage/records.h"
#include "storage/sql/sql_connection.h"

namespace sheaf {

inline constexpr char kTaskColumns[] =
    "r.id, t.task_key, t.state, i.payload, i.data_selector, q.requirement, r.create_time, t.available_time, "
    "t.end_time, t.worker, t.lease_token, t.poll_id, t.lease_time, t.expire_time, t.attempt_deadline_time, "
    "t.progress, t.num_attempts, t.num_failed, t.num_lost, t.last_error, r.state, r.cancel_time, c.origin_round, "
    "c.origin_index, c.staleness, nr.id, n.task_key";
inline constexpr int kNumTaskColumns = 27;
inline constexpr char kTaskCarried[] =
    "LEFT JOIN carried_tasks c ON c.task_key = t.task_key LEFT JOIN carried_tasks n ON n.from_key = t.task_key "
    "LEFT JOIN rounds nr ON nr.round_key = n.task_key >> 32";
TaskRecord ReadTask(const SqlRow& row);

// QUEUED and LEASED tasks have become CANCELLED.
inline bool HasStopped(RoundState state) { return state >= RoundState::kSealing; }

}  // namespace sheaf
