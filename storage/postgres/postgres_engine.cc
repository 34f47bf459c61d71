#include "storage/postgres/postgres_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "storage/arguments.h"
#include "storage/postgres/postgres_migrations.h"
#include "storage/postgres/postgres_place.h"
#include "storage/postgres/postgres_shards.h"
#include "storage/postgres/value_lists.h"
#include "storage/sql/state_names.h"
#include "storage/sql/task_columns.h"

namespace sheaf {

absl::StatusOr<std::vector<ServerRecord>> PostgresEngine::ListServers(const TaskStore::ListServersParams& params) {
  return ReadServers("s.id > $1 ORDER BY s.id LIMIT $2",
                     PostgresValues().Add(SqlText(params.after)).Add(int64_t{params.limit}));
}

absl::StatusOr<ServerRecord> PostgresEngine::SetServerDraining(const TaskStore::SetServerDrainingParams& params) {
  ASSIGN_OR_RETURN(std::vector<ServerRecord> found,
                   ReadServers("s.id = $1", PostgresValues().Add(SqlText(params.server))));
  if (found.empty()) return NoSuchServer(params.server);
  session_.Queue(params.is_draining
                     ? "-- drain_server\nINSERT INTO draining_servers VALUES ($1) ON CONFLICT (id) DO NOTHING"
                     : "-- undrain_server\nDELETE FROM draining_servers WHERE id = $1",
                 PostgresValues().Add(SqlText(params.server)));
  found.front().is_draining = params.is_draining;
  return std::move(found.front());
}

absl::StatusOr<std::vector<ServerRecord>> PostgresEngine::ReadServers(std::string_view which, PostgresValues values) {
  std::vector<ServerRecord> servers;
  RETURN_IF_ERROR(session_.Ask({.sql = fmt::format(R"(-- list_servers
      SELECT s.id, s.address, s.version, (1e6 * extract(epoch FROM n.now - s.start_time))::bigint,
             (1e6 * extract(epoch FROM n.now - greatest(s.heartbeat_time, o.heartbeat_time)))::bigint,
             (EXISTS (SELECT FROM draining_servers d WHERE d.id = s.id))::int::bigint
        FROM (SELECT clock_timestamp() AS now) AS n CROSS JOIN servers s
        LEFT JOIN owners o ON o.population = '' AND o.server = s.id AND o.server_epoch = s.epoch
       WHERE {})",
                                                   which),
                                .values = std::move(values),
                                .on_row = [&](const SqlRow& row) {
                                  servers.push_back({.name = row.String(0),
                                                     .address = row.String(1),
                                                     .version = row.String(2),
                                                     .up_for = absl::Microseconds(row.Int(3)),
                                                     .silent_for = absl::Microseconds(row.Int(4)),
                                                     .is_draining = row.Int(5) != 0});
                                }}));
  RETURN_IF_ERROR(AddShards(servers));
  return servers;
}

absl::Status PostgresEngine::AddShards(std::vector<ServerRecord>& servers) {
  std::string home_schema;
  std::vector<int64_t> used;
  RETURN_IF_ERROR(session_.Ask({.sql = R"(-- used_shards
      SELECT current_schema()::text, numbers.shard FROM generate_series(0, 15) AS numbers(shard)
       WHERE numbers.shard = 0 OR EXISTS (SELECT FROM populations p WHERE p.shard = numbers.shard))",
                                .on_row = [&](const SqlRow& row) {
                                  home_schema = row.String(0);
                                  used.push_back(row.Int(1));
                                }}));
  std::string sql = "-- list_shards";
  for (const int64_t shard : used) {
    const std::string schema = shard == 0 ? "" : ShardSchema(home_schema, static_cast<Shard>(shard)) + ".";
    sql += fmt::format(R"({}
      SELECT {}, o.server, (1e6 * extract(epoch FROM clock_timestamp() - o.take_time))::bigint
        FROM {}owners o JOIN {}servers s ON o.population = '' AND o.server = s.id AND o.server_epoch = s.epoch)",
                       shard == used.front() ? "" : "\n UNION ALL", shard, schema, schema);
  }
  std::map<int64_t, ServerRecord*> owners;
  RETURN_IF_ERROR(session_.Ask({.sql = std::move(sql), .on_row = [&](const SqlRow& row) {
                                  for (ServerRecord& server : servers) {
                                    if (server.name != row.Bytes(1)) continue;
                                    owners[row.Int(0)] = &server;
                                    server.is_owner = true;
                                    // The clock has gone on since the servers were read.
                                    server.owner_for = std::max(
                                        server.owner_for, std::min(server.up_for, absl::Microseconds(row.Int(2))));
                                    ++server.num_shards;
                                  }
                                }}));
  RETURN_IF_ERROR(
      session_.Ask({.sql = R"(-- populations_of_shards
      SELECT used.shard, p.name FROM unnest($1::bigint[]) AS used(shard)
       CROSS JOIN LATERAL (SELECT name FROM populations WHERE shard = used.shard ORDER BY name LIMIT $2) AS p)",
                    .values = PostgresValues().AddInts(used).Add(int64_t{ServerRecord::kPopulationsMax + 1}),
                    .on_row = [&](const SqlRow& row) {
                      const auto owner = owners.find(row.Int(0));
                      if (owner != owners.end()) owner->second->populations.push_back(row.String(1));
                    }}));
  for (ServerRecord& server : servers) {
    std::sort(server.populations.begin(), server.populations.end());
    server.populations.resize(std::min<size_t>(server.populations.size(), ServerRecord::kPopulationsMax + 1));
  }
  return absl::OkStatus();
}

TaskStore::Info PostgresEngine::GetInfo() const {
  return {.engine = "postgresql", .schema_version = PostgresMigrations().back().version, .is_shared = true};
}

// --- Rows ----------------------------------------------------------------------------------------

namespace {

// Of "n.number, ctid" of changed rows, numbered from 1.
PostgresSession::OnRow Keep(std::vector<RowPlace*> places) {
  return [places = std::move(places)](const SqlRow& row) {
    *places[static_cast<size_t>(row.Int(1) - 1)] = PlaceOf(row, 2);
  };
}

}  // namespace

absl::Status PostgresEngine::WriteNotes(const BatchNotes& notes) {
  WriteTasks(notes);
  WriteRenewals(notes);
  WriteAttempts(notes);
  WriteContributions(notes);
  return absl::OkStatus();
}

void PostgresEngine::WriteTasks(const BatchNotes& notes) {
  ValueLists old;
  ValueLists lists;
  for (const auto& [key, noted] : notes.tasks()) {
    if (noted.IsRenewal()) continue;
    const TaskRecord& task = noted.record;
    if (noted.HasOldAttempts()) old.BeginRow().Add(key).Add(int64_t{task.num_attempts} - kAttemptsKept);
    std::optional<int64_t> delayed_until;
    if (noted.is_delayed) delayed_until = ToSql(task.available_time);
    std::optional<int64_t> expire_time;
    if (task.state == TaskState::kLeased) expire_time = ToSql(task.expire_time);
    std::optional<std::string_view> worker;
    if (!task.worker.empty()) worker = task.worker.value();
    lists.BeginRow()
        .Add(key)
        .Add(static_cast<int64_t>(noted.stored_state))
        .Add(int64_t{noted.stored_num_attempts})
        .Add(static_cast<int64_t>(task.state))
        .Add(int64_t{task.num_attempts})
        .Add(int64_t{task.num_failed})
        .Add(int64_t{task.num_lost})
        .Add(ToSql(task.available_time))
        .AddOptional(delayed_until)
        .Add(ToSql(task.end_time))
        .Add(ToSql(task.lease_time))
        .AddOptional(expire_time)
        .Add(ToSql(task.attempt_deadline_time))
        .Add(task.progress)
        .Add(task.poll_id)
        .AddOptional(worker)
        .Add(task.lease_token.value())
        .Add(task.last_error);
  }
  if (!old.empty()) {
    session_.Queue(R"(-- delete_old_attempts
        DELETE FROM attempts a USING unnest($1, $2) AS n (task_key, number)
         WHERE a.task_key = n.task_key AND a.number <= n.number)",
                   old.Values());
  }
  if (lists.empty()) return;
  session_.Queue(lists.num_rows(), R"(-- put_tasks
      UPDATE tasks t SET state = n.state, num_attempts = n.num_attempts, num_failed = n.num_failed,
             num_lost = n.num_lost, available_time = n.available_time, delayed_until = n.delayed_until,
             end_time = n.end_time, lease_time = n.lease_time, expire_time = n.expire_time,
             attempt_deadline_time = n.attempt_deadline_time, progress = n.progress, poll_id = n.poll_id,
             worker = n.worker, lease_token = n.lease_token, last_error = n.last_error
        FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
          AS n (task_key, stored_state, stored_num_attempts, state, num_attempts, num_failed, num_lost, available_time,
                delayed_until, end_time, lease_time, expire_time, attempt_deadline_time, progress, poll_id, worker,
                lease_token, last_error)
       WHERE t.task_key = n.task_key AND t.state = n.stored_state AND t.num_attempts = n.stored_num_attempts)",
                 lists.Values());
}

void PostgresEngine::WriteRenewals(const BatchNotes& notes) {
  ValueLists lists;
  for (const auto& [key, noted] : notes.tasks()) {
    if (!noted.IsRenewal()) continue;
    const TaskRecord& task = noted.record;
    lists.BeginRow()
        .Add(key)
        .Add(task.lease_token.value())
        .Add(task.progress)
        .Add(ToSql(task.expire_time))
        .Add(ToSql(task.attempt_deadline_time));
  }
  if (lists.empty()) return;
  session_.Queue(lists.num_rows(), std::string(R"(-- renew_leases
      UPDATE tasks t SET progress = n.progress, expire_time = n.expire_time,
             attempt_deadline_time = n.attempt_deadline_time
        FROM unnest($1, $2, $3, $4, $5) AS n (task_key, lease_token, progress, expire_time, attempt_deadline_time)
       WHERE t.task_key = n.task_key AND t.state = $LEASED AND t.lease_token = n.lease_token)"_sql),
                 lists.Values());
}

void PostgresEngine::WriteAttempts(const BatchNotes& notes) {
  ValueLists lists;
  for (const auto& [key, attempt] : notes.attempts()) {
    lists.BeginRow()
        .Add(key)
        .Add(int64_t{attempt.number})
        .Add(static_cast<int64_t>(attempt.outcome))
        .Add(ToSql(attempt.lease_time))
        .Add(ToSql(attempt.end_time))
        .Add(attempt.bytes_up)
        .Add(attempt.worker.value())
        .Add(attempt.error)
        .Add(attempt.timings);
  }
  if (lists.empty()) return;
  session_.Queue(lists.num_rows(), R"(-- end_attempts
      INSERT INTO attempts (task_key, number, outcome, lease_time, end_time, bytes_up, worker, error, timings)
      SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9))",
                 lists.Values());
}

void PostgresEngine::WriteContributions(const BatchNotes& notes) {
  ValueLists lists;
  for (const auto& [round_key, task_key, c] : notes.contributions()) {
    lists.BeginRow()
        .Add(round_key)
        .Add(c.sequence)
        .Add(task_key)
        .Add(c.size_bytes)
        .Add(c.num_clients)
        .Add(c.payload.segment)
        .Add(c.payload.offset)
        .Add(c.payload.length)
        .Add(int64_t{c.payload.crc})
        .Add(ToSql(c.accept_time))
        .Add(c.worker.value())
        .Add(c.lease_token.value())
        .Add(c.digest);
  }
  if (lists.empty()) return;
  session_.Queue(lists.num_rows(), R"(-- record_contributions
      INSERT INTO contributions (round_key, sequence, task_key, size_bytes, num_clients, spool_segment, spool_offset,
                                 spool_length, spool_crc, accept_time, worker, lease_token, digest)
      SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13))",
                 lists.Values());
}

// Rows that each batch changes are looked for on the page where the last change has put them, which is a hint. By its
// key a look-up passes all versions of the row that nobody could remove yet. IS NOT DISTINCT FROM is an equation for
// which no index is looked at. To scan the page, and not just to fetch the row, rids it of old versions.
absl::Status PostgresEngine::PutRounds(std::span<const RoundRow> rounds) {
  ValueLists lists;
  std::vector<RowPlace*> places;
  for (const RoundRow& row : rounds) {
    const RoundRecord& r = *row.record;
    lists.BeginRow()
        .Add(row.key)
        .Add(row.stored_version)
        .Add(static_cast<int64_t>(r.state))
        .Add(r.version)
        .Add(ToSql(r.end_time))
        .Add(r.tasks.queued)
        .Add(r.tasks.leased)
        .Add(r.tasks.succeeded)
        .Add(r.tasks.failed)
        .Add(r.tasks.cancelled)
        .Add(r.tasks.buried)
        .Add(r.num_failed_attempts)
        .Add(r.num_lost_attempts)
        .Add(r.num_contributions)
        .Add(r.num_clients)
        .Add(r.bytes_up)
        .Add(r.checkpoint_sequence)
        .Add(ToSql(row.cancel_time))
        .Add(r.checkpoint)
        .Add(r.progress)
        .Add(r.error)
        .Add(BeginOf(*row.place))
        .Add(EndOf(*row.place));
    places.push_back(row.place);
  }
  session_.Queue(lists.num_rows(), R"(-- put_rounds
      UPDATE rounds r SET state = n.state, version = n.version, end_time = n.end_time, num_queued = n.num_queued,
             num_leased = n.num_leased, num_succeeded = n.num_succeeded, num_failed = n.num_failed,
             num_cancelled = n.num_cancelled, num_buried = n.num_buried,
             num_failed_attempts = n.num_failed_attempts, num_lost_attempts = n.num_lost_attempts,
             num_contributions = n.num_contributions, num_clients = n.num_clients, bytes_up = n.bytes_up,
             checkpoint_sequence = n.checkpoint_sequence, cancel_time = n.cancel_time, checkpoint = n.checkpoint,
             progress = n.progress, error = n.error
        FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
                    $22, $23) WITH ORDINALITY
          AS n (round_key, stored_version, state, version, end_time, num_queued, num_leased, num_succeeded, num_failed,
                num_cancelled, num_buried, num_failed_attempts, num_lost_attempts, num_contributions, num_clients,
                bytes_up, checkpoint_sequence, cancel_time, checkpoint, progress, error, page, next_page, number)
       WHERE r.ctid = coalesce((SELECT ctid FROM rounds
                                 WHERE ctid >= n.page AND ctid < n.next_page
                                   AND round_key IS NOT DISTINCT FROM n.round_key),
                               (SELECT ctid FROM rounds WHERE round_key = n.round_key))
         AND r.version = n.stored_version)",
                 lists.Values(), "n.number, r.ctid", Keep(std::move(places)));
  return absl::OkStatus();
}

absl::Status PostgresEngine::PutWorkers(std::span<const WorkerRow> workers) {
  ValueLists added;
  ValueLists changed;
  std::vector<RowPlace*> places;
  for (const WorkerRow& row : workers) {
    const WorkerRecord& w = *row.record;
    ValueLists& lists = row.is_stored ? changed : added;
    lists.BeginRow()
        .Add(w.name.value())
        .Add(w.population)
        .Add(w.description)
        .Add(ToSql(w.last_seen_time))
        .Add(int64_t{w.is_draining})
        .Add(w.num_leased)
        .Add(w.num_succeeded)
        .Add(w.num_failed)
        .Add(w.num_lost);
    if (row.is_stored) {
      lists.Add(BeginOf(*row.place)).Add(EndOf(*row.place));
      places.push_back(row.place);
    } else {
      lists.Add(ToSql(w.first_seen_time));
    }
  }
  if (!added.empty()) {
    session_.Queue(added.num_rows(), R"(-- add_workers
      INSERT INTO workers (name, population, description, last_seen_time, is_draining, num_leased, num_succeeded,
                           num_failed, num_lost, first_seen_time)
      SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS n (name, population)
       WHERE NOT EXISTS (SELECT FROM workers w WHERE w.name = n.name AND w.population = n.population))",
                   added.Values());
  }
  if (changed.empty()) return absl::OkStatus();
  session_.Queue(changed.num_rows(), R"(-- put_workers
      UPDATE workers w SET description = n.description, last_seen_time = n.last_seen_time, is_draining = n.is_draining,
             num_leased = n.num_leased, num_succeeded = n.num_succeeded, num_failed = n.num_failed,
             num_lost = n.num_lost
        FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) WITH ORDINALITY
          AS n (name, population, description, last_seen_time, is_draining, num_leased, num_succeeded, num_failed,
                num_lost, page, next_page, number)
       WHERE w.ctid = coalesce(
               (SELECT ctid FROM workers
                 WHERE ctid >= n.page AND ctid < n.next_page
                   AND name IS NOT DISTINCT FROM n.name AND population IS NOT DISTINCT FROM n.population),
               (SELECT ctid FROM workers WHERE name = n.name AND population = n.population)))",
                 changed.Values(), "n.number, w.ctid", Keep(std::move(places)));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TaskStore::WorkerAge>> PostgresEngine::DeleteWorkers(
    std::span<const TaskStore::WorkerAge> workers) {
  std::vector<TaskStore::WorkerAge> deleted;
  if (workers.empty()) return deleted;
  ValueLists lists;
  for (const TaskStore::WorkerAge& worker : workers) {
    lists.BeginRow()
        .Add(lists.num_rows())
        .Add(worker.name.value())
        .Add(worker.population)
        .Add(ToSql(worker.last_seen_time));
  }
  RETURN_IF_ERROR(session_.Ask(
      {.sql = R"(-- delete_workers
      WITH deleted AS (
        DELETE FROM workers w USING unnest($1, $2, $3, $4) AS n (place, name, population, last_seen_time)
         WHERE w.name = n.name AND w.population = n.population AND w.last_seen_time = n.last_seen_time
        RETURNING n.place)
      SELECT place FROM deleted ORDER BY place)",
       .values = lists.Values(),
       .on_row = [&](const SqlRow& row) { deleted.push_back(workers[static_cast<size_t>(row.Int(0) - 1)]); }}));
  return deleted;
}

absl::Status PostgresEngine::InsertTasks(const NewTasks& tasks) {
  ValueLists requirements;
  for (const NewRequirement& requirement : tasks.requirements) {
    requirements.BeginRow().Add(requirement.number).Add(requirement.text);
  }
  if (!requirements.empty()) {
    PostgresValues values = requirements.Values();
    values.Add(tasks.round_key);
    session_.Queue(requirements.num_rows(), R"(-- create_requirements
        INSERT INTO round_requirements (number, requirement, round_key)
        SELECT n.number, n.requirement, $3 FROM unnest($1, $2) AS n (number, requirement))",
                   std::move(values));
  }
  if (tasks.tasks.empty()) return absl::OkStatus();
  ValueLists inputs;
  for (size_t i = 0; i < tasks.tasks.size(); ++i) {
    const TaskStore::NewTask& task = tasks.tasks[i];
    if (task.payload.empty() && task.data_selector.empty()) continue;
    inputs.BeginRow().Add(tasks.first_key + static_cast<int64_t>(i)).Add(task.payload).Add(task.data_selector);
  }
  session_.Queue(static_cast<int64_t>(tasks.tasks.size()), std::string(R"(-- create_tasks
      INSERT INTO tasks (task_key, round_key, requirement, state, available_time)
      SELECT $1 + n.place - 1, $2, n.requirement, $QUEUED, $3
        FROM unnest($4) WITH ORDINALITY AS n (requirement, place))"_sql),
                 PostgresValues()
                     .Add(tasks.first_key)
                     .Add(tasks.round_key)
                     .Add(ToSql(tasks.create_time))
                     .AddInts(tasks.requirement_numbers));
  if (inputs.empty()) return absl::OkStatus();
  session_.Queue(inputs.num_rows(), R"(-- create_task_inputs
      INSERT INTO task_inputs (task_key, payload, data_selector) SELECT * FROM unnest($1, $2, $3))",
                 inputs.Values());
  return absl::OkStatus();
}

absl::Status PostgresEngine::ReadInputs(std::span<const int64_t> task_keys, size_t num_wanted, int64_t bytes_max,
                                        SqlConnection::RowCallback on_row) {
  return session_.Ask(
      {.sql = R"(-- read_inputs
      SELECT task_key, payload, data_selector FROM (
        SELECT n.task_key, i.payload, i.data_selector, n.place,
               sum(coalesce(octet_length(i.payload) + octet_length(i.data_selector), 0)) OVER (ORDER BY n.place) AS bytes
          FROM unnest($1) WITH ORDINALITY AS n (task_key, place) LEFT JOIN task_inputs i ON i.task_key = n.task_key) AS read
       WHERE place <= $2 OR bytes <= $3)",
       .values = PostgresValues().AddInts(task_keys).Add(static_cast<int64_t>(num_wanted)).Add(bytes_max),
       .on_row = [on_row](const SqlRow& row) { on_row(row); }});
}

// --- Texts ---------------------------------------------------------------------------------------

namespace {

// For each round, in the order of their ids, no more tasks than all rounds may have together: a page of a round of a
// million tasks reads no more of them than it shows.
constexpr std::string_view kOfEachRound = R"(rounds r CROSS JOIN LATERAL (
        SELECT * FROM tasks t
         WHERE t.task_key > (r.round_key << 32) + CASE r.id WHEN $1 THEN $2 ELSE -1 END
           AND t.task_key <= (r.round_key << 32) + CASE r.id WHEN $3 THEN $4 ELSE 2147483647 END)";
constexpr std::string_view kBetween = "r.id >= $5 AND r.id <= $6 AND ($7 = '' OR r.population = $8)";

}  // namespace

const SqlEngine::Texts& PostgresEngine::texts() const {
  static const std::string load_leases = fmt::format(R"(-- load_leases
      SELECT {}, r.population FROM rounds r
        JOIN tasks t ON t.task_key BETWEEN (r.round_key << 32) AND (r.round_key << 32) + 2147483647
        JOIN round_requirements q ON q.round_key = t.round_key AND q.number = t.requirement
        LEFT JOIN task_inputs i ON i.task_key = t.task_key {}
       WHERE r.$IS_LIVE AND r.$HANDS_OUT_TASKS AND r.num_leased > 0 AND t.state = $LEASED)"_sql,
                                                     kTaskColumns, kTaskCarried);
  // The condition is kTaskState's bit among those of $9.
  static const std::string list_tasks = fmt::format(R"(-- list_tasks
      SELECT {} FROM {}
           AND (($9 >> ({})) & 1) = 1 AND ($10 = '' OR (NOT (r.$HAS_STOPPED AND t.$IS_OPEN) AND (t.worker = $11 OR EXISTS (
               SELECT 1 FROM second_leases s WHERE s.task_key = t.task_key AND s.worker = $12))))
         ORDER BY t.task_key LIMIT $13) t
        JOIN round_requirements q ON q.round_key = t.round_key AND q.number = t.requirement
        LEFT JOIN task_inputs i ON i.task_key = t.task_key {}
       WHERE {} ORDER BY r.id, t.task_key LIMIT $13)"_sql,
                                                    kTaskColumns, kOfEachRound, kTaskState, kTaskCarried, kBetween);
  static const std::string skip_tasks = fmt::format(R"(-- skip_tasks
      SELECT r.id, t.task_key FROM {}
         ORDER BY t.task_key LIMIT $9 + 1) t
       WHERE {} ORDER BY r.id, t.task_key LIMIT 1 OFFSET $9)",
                                                    kOfEachRound, kBetween);
  static const Texts texts = {.load_leases = load_leases,
                              // No index has what is QUEUED: each lease would change it.
                              .load_waiting = R"(-- load_waiting
      SELECT task_key, requirement, available_time, num_attempts, num_failed, num_lost, last_error FROM tasks
       WHERE round_key = ? AND task_key BETWEEN ? AND ? AND state = $QUEUED ORDER BY requirement, task_key)"_sql,
                              .list_tasks = list_tasks,
                              .skip_tasks = skip_tasks};
  return texts;
}

}  // namespace sheaf
