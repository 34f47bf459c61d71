#include "bench/skip_locked.h"

#include <fmt/format.h>
#include <libpq-fe.h>
#include <poll.h>

#include <atomic>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status_macros.h"

namespace sheaf::bench {
namespace {

constexpr int kTasks = 1'000'000;
constexpr int kResultBytes = 1 << 10;

void Pause(absl::Duration duration) { ::poll(nullptr, 0, static_cast<int>(absl::ToInt64Milliseconds(duration))); }

struct ConnectionCloser {
  void operator()(PGconn* connection) const { PQfinish(connection); }
};
using Connection = std::unique_ptr<PGconn, ConnectionCloser>;
struct ResultCloser {
  void operator()(PGresult* result) const { PQclear(result); }
};
using Result = std::unique_ptr<PGresult, ResultCloser>;

absl::Status Check(PGconn* connection, const PGresult* result) {
  const ExecStatusType status = PQresultStatus(result);
  if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) return absl::OkStatus();
  return absl::InternalError(PQerrorMessage(connection));
}

absl::StatusOr<Connection> Connect(const std::string& conninfo) {
  Connection connection(PQconnectdb(conninfo.c_str()));
  if (PQstatus(connection.get()) != CONNECTION_OK) {
    return absl::UnavailableError(PQerrorMessage(connection.get()));
  }
  return connection;
}

absl::Status Execute(PGconn* connection, const std::string& sql) {
  const Result result(PQexec(connection, sql.c_str()));
  return Check(connection, result.get());
}

// Each is a transaction of its own. Both in one would deadlock: to lock a row that somebody else has just ended waits
// for them, SKIP LOCKED or not.
constexpr char kEnd[] = "UPDATE tasks SET state = 2, result = $2 WHERE id = ANY ($1::bigint[])";
constexpr char kTake[] = R"(
  UPDATE tasks SET state = 1, lease_time = now() + interval '30 seconds'
   WHERE id = ANY (ARRAY(SELECT id FROM tasks WHERE state = 0 ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED))
  RETURNING id)";

class Worker {
 public:
  Worker(Connection connection, int batch) : connection_(std::move(connection)), batch_(std::to_string(batch)) {}

  absl::Status Prepare() {
    for (const auto& [name, sql] : {std::pair("end", kEnd), std::pair("take", kTake)}) {
      const Result result(PQprepare(connection_.get(), name, sql, 0, nullptr));
      RETURN_IF_ERROR(Check(connection_.get(), result.get()));
    }
    return absl::OkStatus();
  }
  // How many tasks were ended.
  absl::StatusOr<int64_t> Cycle() {
    const auto num_ended = static_cast<int64_t>(held_.size());
    if (num_ended > 0) {
      const std::string held = fmt::format("{{{}}}", fmt::join(held_, ","));
      const char* const values[] = {held.c_str(), result_.c_str()};
      const Result ended(PQexecPrepared(connection_.get(), "end", 2, values, nullptr, nullptr, 0));
      RETURN_IF_ERROR(Check(connection_.get(), ended.get()));
    }
    const char* const values[] = {batch_.c_str()};
    const Result taken(PQexecPrepared(connection_.get(), "take", 1, values, nullptr, nullptr, 0));
    RETURN_IF_ERROR(Check(connection_.get(), taken.get()));
    held_.clear();
    for (int row = 0; row < PQntuples(taken.get()); ++row) held_.emplace_back(PQgetvalue(taken.get(), row, 0));
    return num_ended;
  }

 private:
  Connection connection_;
  std::string batch_;
  std::string result_ = std::string(kResultBytes, 'r');
  std::vector<std::string> held_;
};

}  // namespace

absl::StatusOr<LoopResult> RunSkipLocked(const Setup& setup, const std::string& conninfo, int workers, int batch) {
  ASSIGN_OR_RETURN(const Connection owner, Connect(conninfo));
  RETURN_IF_ERROR(Execute(owner.get(), R"(
      CREATE TABLE tasks (id BIGINT PRIMARY KEY, state INTEGER NOT NULL, lease_time TIMESTAMPTZ, result TEXT)
        WITH (fillfactor = 50))"));
  RETURN_IF_ERROR(
      Execute(owner.get(), fmt::format("INSERT INTO tasks SELECT i, 0 FROM generate_series(1, {}) AS i", kTasks)));
  RETURN_IF_ERROR(Execute(owner.get(), "CREATE INDEX tasks_queued ON tasks (id) WHERE state = 0"));
  RETURN_IF_ERROR(Execute(owner.get(), "VACUUM ANALYZE tasks"));
  std::vector<Worker> callers;
  for (int i = 0; i < workers; ++i) {
    ASSIGN_OR_RETURN(Connection connection, Connect(conninfo));
    callers.emplace_back(std::move(connection), batch);
    RETURN_IF_ERROR(callers.back().Prepare());
  }
  std::atomic<bool> is_measuring = false;
  std::atomic<bool> is_over = false;
  std::atomic<int64_t> num_ended = 0;
  std::atomic<int64_t> num_calls = 0;
  Mutex mutex;
  absl::Status status;
  std::vector<std::thread> threads;
  threads.reserve(callers.size());
  for (Worker& caller : callers) {
    threads.emplace_back([&] {
      while (!is_over) {
        const absl::StatusOr<int64_t> ended = caller.Cycle();
        if (!ended.ok()) {
          MutexLock lock(mutex);
          status.Update(ended.status());
          return;
        }
        if (!is_measuring) continue;
        num_ended += *ended;
        ++num_calls;
      }
    });
  }
  const LoopOptions options = {.duration = setup.duration};
  Pause(options.warm_up);
  const absl::Time start = setup.clock.Now();
  is_measuring = true;
  Pause(options.duration);
  is_measuring = false;
  LoopResult result = {.num_calls = num_calls, .num_units = num_ended, .elapsed = setup.clock.Now() - start};
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  RETURN_IF_ERROR(status);
  return result;
}

}  // namespace sheaf::bench
