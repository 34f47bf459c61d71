// The conservation laws of the database: each a statement that finds what breaks it.
#include <fmt/format.h>

#include <algorithm>

#include "base/status_macros.h"
#include "storage/directory/verify.h"
#include "storage/records.h"
#include "storage/sql/state_names.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

// Counts rows; `on_row` may add violations.
absl::Status Look(SqlConnection& connection, std::string_view sql, Law& law, SqlConnection::RowCallback on_row) {
  return connection
      .Execute(sql, {},
               [&](const SqlRow& row) {
                 ++law.num_checked;
                 on_row(row);
               })
      .status();
}

absl::StatusOr<Law> CheckPagesAndIndexes(SqlConnection& connection) {
  Law law{.name = "the database is whole, page by page"};
  RETURN_IF_ERROR(connection
                      .Execute("-- integrity_check\nPRAGMA integrity_check", {},
                               [&](const SqlRow& row) {
                                 if (row.Bytes(0) != "ok") law.violations.push_back(row.String(0));
                               })
                      .status());
  RETURN_IF_ERROR(
      connection
          .Execute("-- count_pages\nPRAGMA page_count", {}, [&](const SqlRow& row) { law.num_checked = row.Int(0); })
          .status());
  return law;
}

absl::StatusOr<Law> CheckTasks(SqlConnection& connection) {
  Law law{.name = "assigned = succeeded + failed + cancelled + buried + live"};
  int64_t sums[6] = {};
  RETURN_IF_ERROR(
      Look(connection, R"(-- verify_tasks
      SELECT r.id, r.num_succeeded, r.num_failed, r.num_cancelled, r.num_buried, r.num_queued, r.num_leased,
             count(t.task_key), coalesce(sum(t.state = $TASK_SUCCEEDED), 0), coalesce(sum(t.state = $TASK_FAILED), 0),
             coalesce(sum(t.state = $TASK_CANCELLED OR (t.$IS_OPEN AND r.$HAS_STOPPED)), 0),
             coalesce(sum(t.state = $BURIED), 0),
             coalesce(sum(t.state = $QUEUED AND NOT r.$HAS_STOPPED), 0),
             coalesce(sum(t.state = $LEASED AND NOT r.$HAS_STOPPED), 0),
             coalesce(max(t.task_key) - (r.round_key << 32) + 1, 0)
        FROM rounds r LEFT JOIN tasks t ON t.task_key BETWEEN r.round_key << 32 AND (r.round_key << 32) + 4294967295
       GROUP BY r.round_key)"_sql,
           law, [&](const SqlRow& row) {
             constexpr const char* kNames[] = {"succeeded", "failed", "cancelled", "buried", "queued", "leased"};
             for (int i = 0; i < 6; ++i) {
               if (row.Int(1 + i) == row.Int(8 + i)) continue;
               law.violations.push_back(fmt::format("round {} says that {} of its tasks are {}; {} are", row.String(0),
                                                    row.Int(1 + i), kNames[i], row.Int(8 + i)));
             }
             if (row.Int(7) != row.Int(14)) {
               law.violations.push_back(fmt::format("round {} was given tasks 0 to {}; it has {} of them",
                                                    row.String(0), row.Int(14) - 1, row.Int(7)));
             }
             sums[0] += row.Int(7);
             for (int i = 0; i < 4; ++i) sums[1 + i] += row.Int(8 + i);
             sums[5] += row.Int(12) + row.Int(13);
           }));
  law.sums = fmt::format("{} = {} + {} + {} + {} + {}", sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]);
  return law;
}

absl::StatusOr<Law> CheckContributions(SqlConnection& connection) {
  Law law{.name = "accepted = folded + pending"};
  int64_t accepted = 0;
  int64_t folded = 0;
  int64_t pending = 0;
  RETURN_IF_ERROR(
      Look(connection, R"(-- verify_contributions
      SELECT r.id, r.$HAS_ENDED, r.num_contributions, r.checkpoint_sequence, r.num_clients, r.bytes_up, count(c.sequence),
             coalesce(sum(c.sequence <= r.checkpoint_sequence), 0), coalesce(max(c.sequence), 0),
             coalesce(sum(c.num_clients), 0), coalesce(sum(c.size_bytes), 0), r.num_succeeded
        FROM rounds r LEFT JOIN contributions c ON c.round_key = r.round_key GROUP BY r.round_key)"_sql,
           law, [&](const SqlRow& row) {
             const std::string id = row.String(0);
             const int64_t rows = row.Int(6);
             if (row.Int(2) != rows || row.Int(8) != rows || row.Int(7) != row.Int(3)) {
               law.violations.push_back(fmt::format(
                   "round {} says that {} contributions were accepted and that its checkpoint contains {}; it "
                   "has {} of them, up to number {}, and {} of those in the checkpoint",
                   id, row.Int(2), row.Int(3), rows, row.Int(8), row.Int(7)));
             }
             if (row.Int(4) != row.Int(9) || row.Int(5) != row.Int(10)) {
               law.violations.push_back(
                   fmt::format("round {} says that it combines {} clients in {} bytes; its contributions have {} "
                               "in {}",
                               id, row.Int(4), row.Int(5), row.Int(9), row.Int(10)));
             }
             accepted += row.Int(2);
             const bool has_ended = row.Int(1) != 0;
             folded += has_ended ? rows : row.Int(7);
             pending += has_ended ? 0 : rows - row.Int(7);
           }));
  law.sums = fmt::format("{} = {} + {}", accepted, folded, pending);
  return law;
}

absl::StatusOr<Law> CheckAcceptedTasks(SqlConnection& connection) {
  Law law{.name = "a task succeeded if and only if its one contribution was accepted"};
  RETURN_IF_ERROR(Look(connection, R"(-- verify_accepted
      SELECT r.id, t.task_key & 4294967295, t.state, t.lease_token = min(c.lease_token), t.worker = min(c.worker),
             count(c.sequence)
        FROM rounds r JOIN tasks t ON t.task_key BETWEEN r.round_key << 32 AND (r.round_key << 32) + 4294967295
        LEFT JOIN contributions c ON c.task_key = t.task_key GROUP BY t.task_key)",
                       law, [&](const SqlRow& row) {
                         const bool has_succeeded = static_cast<TaskState>(row.Int(2)) == TaskState::kSucceeded;
                         const int64_t num_contributions = row.Int(5);
                         if (num_contributions != (has_succeeded ? 1 : 0)) {
                           law.violations.push_back(
                               fmt::format("task {}/{} {}, and has {} contributions", row.String(0), row.Int(1),
                                           has_succeeded ? "SUCCEEDED" : "has not succeeded", num_contributions));
                         } else if (has_succeeded && (row.Int(3) == 0 || row.Int(4) == 0)) {
                           law.violations.push_back(fmt::format(
                               "task {}/{} SUCCEEDED under another lease than its contribution was accepted under",
                               row.String(0), row.Int(1)));
                         }
                       }));
  return law;
}

absl::StatusOr<Law> CheckAttempts(SqlConnection& connection) {
  Law law{.name = "every lease is an attempt, running or ended"};
  RETURN_IF_ERROR(Look(
      connection, R"(-- verify_attempts
      SELECT r.id, t.task_key & 4294967295, t.num_attempts, t.state = $LEASED, count(a.number), coalesce(min(a.number), 1),
             coalesce(max(a.number), 0), coalesce(sum(a.outcome = $ATTEMPT_SUCCEEDED), 0), t.state = $TASK_SUCCEEDED,
             coalesce(s.attempt, 0), coalesce(s.first_attempt, t.num_attempts),
             coalesce(sum(a.number IN (s.first_attempt, s.attempt)), 0), s.task_key IS NOT NULL
        FROM rounds r JOIN tasks t ON t.task_key BETWEEN r.round_key << 32 AND (r.round_key << 32) + 4294967295
        LEFT JOIN second_leases s ON s.task_key = t.task_key
        LEFT JOIN attempts a ON a.task_key = t.task_key GROUP BY t.task_key)"_sql,
      law, [&](const SqlRow& row) {
        const int64_t first = row.Int(3) != 0 ? row.Int(10) : 0, second = row.Int(9);
        const int64_t num_running = (first > 0 ? 1 : 0) + (second > 0 ? 1 : 0);
        // A first attempt may be older than all that are kept.
        const bool is_old = first > 0 && first < row.Int(5);
        const int64_t kept = row.Int(4), deleted = kept == 0 ? 0 : row.Int(5) - 1 - (is_old ? 1 : 0);
        const int64_t newest = std::max({row.Int(6), first, second});
        const bool is_short = deleted > 0 && kept + num_running < kAttemptsKept;
        if (row.Int(12) != 0 && row.Int(3) == 0) {
          law.violations.push_back(
              fmt::format("task {}/{} has a second lease, and is not leased", row.String(0), row.Int(1)));
        } else if (row.Int(2) != deleted + kept + num_running || row.Int(2) != newest || row.Int(11) > 0 || is_short) {
          law.violations.push_back(fmt::format("task {}/{} was leased {} times; {} attempts ended and {} runs",
                                               row.String(0), row.Int(1), row.Int(2), kept, num_running));
        } else if (row.Int(7) != row.Int(8)) {
          law.violations.push_back(fmt::format("task {}/{} has {} attempts that succeeded, and {}", row.String(0),
                                               row.Int(1), row.Int(7),
                                               row.Int(8) != 0 ? "SUCCEEDED" : "has not succeeded"));
        }
      }));
  return law;
}

absl::StatusOr<Law> CheckCarried(SqlConnection& connection) {
  Law law{.name = "what was carried over has left its round, and waits for nobody"};
  RETURN_IF_ERROR(Look(connection, R"(-- verify_carried
      SELECT r.id, t.task_key & 4294967295, t.state IN ($QUEUED, $TASK_FAILED, $BURIED),
             f.task_key IS NOT NULL AND f.state <> $TASK_CANCELLED, c.task_key IS NOT NULL, t.requirement < 0
        FROM rounds r JOIN tasks t ON t.task_key BETWEEN r.round_key << 32 AND (r.round_key << 32) + 4294967295
        LEFT JOIN carried_tasks c ON c.task_key = t.task_key LEFT JOIN tasks f ON f.task_key = c.from_key)"_sql,
                       law, [&](const SqlRow& row) {
                         if (row.Int(4) == 0 && row.Int(5) == 0) return;
                         if (row.Int(4) != row.Int(5)) {
                           law.violations.push_back(fmt::format(
                               "task {}/{} was carried over, and nothing says from where", row.String(0), row.Int(1)));
                         } else if (row.Int(2) != 0) {
                           law.violations.push_back(fmt::format("task {}/{} was carried over, and could run again",
                                                                row.String(0), row.Int(1)));
                         } else if (row.Int(3) != 0) {
                           law.violations.push_back(fmt::format(
                               "task {}/{} was carried over, and has not left its round", row.String(0), row.Int(1)));
                         }
                       }));
  return law;
}

absl::StatusOr<Law> CheckStates(SqlConnection& connection) {
  Law law{.name = "no round that ended has live tasks, and only ended rounds have an end"};
  RETURN_IF_ERROR(
      Look(connection, R"(-- verify_states
      SELECT id, state, num_queued + num_leased, end_time < 9223372036854775807,
             (SELECT aggregate_digest FROM round_texts x WHERE x.round_key = r.round_key)
        FROM rounds r)",
           law, [&](const SqlRow& row) {
             const auto state = static_cast<RoundState>(row.Int(1));
             if ((state >= RoundState::kSealing && row.Int(2) > 0) || IsFinal(state) != (row.Int(3) != 0)) {
               law.violations.push_back(
                   fmt::format("round {} is in state {}, with {} live tasks", row.String(0), row.Int(1), row.Int(2)));
             }
             if (row.IsNull(4)) law.violations.push_back(fmt::format("round {} has no spec", row.String(0)));
             if (state != RoundState::kSucceeded && !row.Bytes(4).empty()) {
               law.violations.push_back(fmt::format("round {} did not succeed, and has an aggregate", row.String(0)));
             }
           }));
  return law;
}

absl::StatusOr<Law> CheckOwners(SqlConnection& connection) {
  Law law{.name = "no row is without the round or task it belongs to"};
  struct Child {
    const char* table;
    const char* sql;
  };
  // Rows of deleted rounds go a little at a time.
  constexpr Child kChildren[] = {
      {"tasks",
       "-- verify_task_owners\nSELECT count(*) FROM tasks WHERE task_key >> 32 <> round_key OR round_key NOT IN "
       "(SELECT round_key FROM rounds UNION ALL "
       "SELECT round_key FROM deleted_rounds)"},
      {"contributions",
       "-- verify_contribution_owners\nSELECT count(*) FROM contributions c WHERE NOT EXISTS (SELECT 1 FROM tasks t "
       "WHERE "
       "t.task_key = c.task_key AND t.round_key = c.round_key)"},
      {"attempts",
       "-- verify_attempt_owners\nSELECT count(*) FROM attempts a WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE "
       "t.task_key = "
       "a.task_key)"},
      {"task_inputs",
       "-- verify_input_owners\nSELECT count(*) FROM task_inputs i WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE "
       "t.task_key = "
       "i.task_key)"},
      {"second_leases",
       "-- verify_second_lease_owners\nSELECT count(*) FROM second_leases s WHERE NOT EXISTS (SELECT 1 FROM tasks t "
       "WHERE "
       "t.task_key = s.task_key)"},
      {"carried_tasks",
       "-- verify_carried_owners\nSELECT count(*) FROM carried_tasks c WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE "
       "t.task_key = c.task_key)"},
      {"round_texts",
       "-- verify_text_owners\nSELECT count(*) FROM round_texts WHERE round_key NOT IN (SELECT round_key FROM rounds)"},
      {"round_requirements",
       "-- verify_requirement_owners\nSELECT count(*) FROM round_requirements WHERE round_key NOT IN (SELECT round_key "
       "FROM rounds UNION ALL SELECT round_key FROM deleted_rounds)"},
      {"token_populations",
       "-- verify_population_owners\nSELECT count(*) FROM token_populations WHERE token_id NOT IN (SELECT id FROM "
       "tokens)"}};
  for (const Child& child : kChildren) {
    RETURN_IF_ERROR(Look(connection, child.sql, law, [&](const SqlRow& row) {
      if (row.Int(0) == 0) return;
      law.violations.push_back(fmt::format("{} rows of {} belong to nothing", row.Int(0), child.table));
    }));
  }
  return law;
}

}  // namespace

absl::StatusOr<std::vector<Law>> VerifyDatabase(SqlConnection& connection) {
  std::vector<Law> laws;
  for (const auto check : {CheckPagesAndIndexes, CheckTasks, CheckContributions, CheckAcceptedTasks, CheckAttempts,
                           CheckCarried, CheckStates, CheckOwners}) {
    ASSIGN_OR_RETURN(Law law, check(connection));
    laws.push_back(std::move(law));
  }
  return laws;
}

}  // namespace sheaf
