#include "storage/postgres/postgres_connection.h"

#include <fmt/format.h>
#include <libpq-fe.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "storage/postgres/postgres_error.h"

namespace sheaf {
namespace {

// As for SQLite: past this something builds texts from values.
constexpr size_t kPreparedMax = 500;

// What a connection string need not say, and may say otherwise. A peer that is gone is found out in half a minute at
// most, also while nothing is sent.
struct Default {
  const char* keyword;
  const char* value;
};
constexpr Default kDefaults[] = {
    {"fallback_application_name", "sheaf"},
    {"connect_timeout", "5"},
    {"keepalives", "1"},
    {"keepalives_idle", "10"},
    {"keepalives_interval", "5"},
    {"keepalives_count", "4"},
    {"tcp_user_timeout", "30000"},
};

// Of each session, whatever the server's own are:
// - plans are made once for values that are not known, and go by index: statistics of a table that was empty when it
//   was looked at last make none that reads all of it, and no plan takes longer than it runs;
// - what was committed has been flushed, here and, where there is a synchronous standby, there;
// - who waits, waits for a bounded time, also for a client that is silent inside of a transaction, or gone.
constexpr char kSettings[] = R"(
    SELECT set_config('client_encoding', 'UTF8', false),
           set_config('plan_cache_mode', 'force_generic_plan', false), set_config('jit', 'off', false),
           set_config('enable_seqscan', 'off', false), set_config('enable_hashjoin', 'off', false),
           set_config('enable_mergejoin', 'off', false),
           set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'remote_apply'
                                              THEN 'remote_apply' ELSE 'on' END, false),
           set_config('statement_timeout', $1, false), set_config('lock_timeout', $2, false),
           set_config('idle_in_transaction_session_timeout', $1, false),
           set_config('client_connection_check_interval', '1s', false))";

class PostgresRow final : public SqlRow {
 public:
  explicit PostgresRow(const PGresult* result) : result_(result) {}
  void Move(int row) { row_ = row; }

  bool IsNull(int column) const override { return PQgetisnull(result_, row_, column) != 0; }
  int64_t Int(int column) const override {
    const std::string_view bytes = Bytes(column);
    SHEAF_CHECK(bytes.size() <= 8, "column {} is no number", column);
    if (bytes.empty()) return 0;
    // Two's complement, the highest byte first, in as many bytes as its type has.
    int64_t number = bytes[0] < 0 ? -1 : 0;
    for (const char byte : bytes)
      number = static_cast<int64_t>(static_cast<uint64_t>(number) << 8 | static_cast<uint8_t>(byte));
    return number;
  }
  std::string_view Bytes(int column) const override {
    return {PQgetvalue(result_, row_, column), static_cast<size_t>(PQgetlength(result_, row_, column))};
  }

 private:
  const PGresult* const result_;
  int row_ = 0;
};

struct ClearResult {
  void operator()(PGresult* result) const { PQclear(result); }
};
using Result = std::unique_ptr<PGresult, ClearResult>;

std::string_view FirstLine(std::string_view sql) { return sql.substr(0, sql.find('\n')); }

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return text;
}

// A statement that changes another number of rows fails: by a division by zero, in the database, so that nothing that
// flies behind it happens.
std::string Counted(std::string_view sql, const PostgresConnection::Change& change, size_t place) {
  const std::string count = fmt::format("SELECT 1 / (count(*) = ${})::integer AS is_right FROM changed", place);
  if (change.returning.empty()) {
    return fmt::format("{}\nWITH changed AS (\n{} RETURNING 1) {}", FirstLine(sql), sql, count);
  }
  // The count is a row also where nothing was changed.
  return fmt::format("{}\nWITH changed AS (\n{} RETURNING {}) SELECT * FROM ({}) AS counted LEFT JOIN changed ON true",
                     FirstLine(sql), sql, change.returning, count);
}
// The same of a question that must find something.
std::string Required(std::string_view sql) {
  return fmt::format("{}\nWITH found AS (\n{}) SELECT 1 / (count(*) > 0)::integer AS is_right FROM found",
                     FirstLine(sql), sql);
}
constexpr std::string_view kDivisionByZero = "22012";

// As a text in SQL.
std::string QuotedText(std::string_view text) {
  std::string quoted = "'";
  for (const char character : text) quoted += character == '\'' ? std::string("''") : std::string(1, character);
  return quoted + "'";
}

std::string Milliseconds(absl::Duration duration) { return std::to_string(absl::ToInt64Milliseconds(duration)); }

}  // namespace

// --- Connecting ----------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<PostgresConnection>> PostgresConnection::Open(const Options& options) {
  std::unique_ptr<PostgresConnection> connection(new PostgresConnection(options));
  RETURN_IF_ERROR(connection->Connect());
  return connection;
}

PostgresConnection::~PostgresConnection() { PQfinish(connection_); }

absl::Status PostgresConnection::Connect() {
  PQfinish(std::exchange(connection_, nullptr));
  prepared_.clear();
  is_connected_ = false;

  char* error = nullptr;
  PQconninfoOption* parsed = PQconninfoParse(options_.conninfo.c_str(), &error);
  PQfreemem(error);  // It may quote a password.
  if (parsed == nullptr) {
    return absl::InvalidArgumentError(
        "the connection string of the database is not one that libpq understands: give "
        "postgresql://USER@HOST:PORT/DATABASE or \"host=HOST dbname=DATABASE user=USER\", and the password in a "
        "password file (PGPASSFILE)");
  }
  PQconninfoFree(parsed);

  std::vector<const char*> keywords;
  std::vector<const char*> values;
  for (const Default& row : kDefaults) {
    keywords.push_back(row.keyword);
    values.push_back(row.value);
  }
  // Of a keyword that is there twice, the last counts.
  keywords.insert(keywords.end(), {"dbname", nullptr});
  values.insert(values.end(), {options_.conninfo.c_str(), nullptr});
  connection_ = PQconnectdbParams(keywords.data(), values.data(), /*expand_dbname=*/1);
  if (connection_ == nullptr) return absl::ResourceExhaustedError("no memory for a database connection");
  const auto said = [](const char* text) { return std::string_view(text != nullptr ? text : ""); };
  name_ = fmt::format("postgresql://{}@{}:{}/{}", said(PQuser(connection_)), said(PQhost(connection_)),
                      said(PQport(connection_)), said(PQdb(connection_)));
  if (PQstatus(connection_) != CONNECTION_OK) {
    // libpq tells the SQLSTATE of a refused connection to nobody; the server's own words name the cause.
    const std::string message = fmt::format("{}: {}", name_, Trimmed(PQerrorMessage(connection_)));
    if (message.find("authentication failed") != std::string::npos ||
        message.find("pg_hba.conf") != std::string::npos) {
      return PostgresError("28000", message);
    }
    if (message.find("database \"") != std::string::npos && message.find("does not exist") != std::string::npos) {
      return PostgresError("3D000", message);
    }
    if (message.find("too many c") != std::string::npos || message.find("connection slots") != std::string::npos) {
      return PostgresError("53300", message);
    }
    return PostgresError("", message);
  }
  if (PQenterPipelineMode(connection_) != 1 || PQsetnonblocking(connection_, 1) != 0) {
    return absl::InternalError(fmt::format("{}: {}", name_, Trimmed(PQerrorMessage(connection_))));
  }
  // Warnings would go to stderr.
  PQsetNoticeProcessor(
      connection_, [](void*, const char*) {}, nullptr);
  is_connected_ = true;
  return Configure();
}

absl::Status PostgresConnection::Configure() {
  std::vector<Statement> waiting = std::exchange(queue_, {});
  const std::string timeout = Milliseconds(options_.timeout);
  // The server gives up first: an answer is worth more than a broken connection.
  const std::string lock_timeout = Milliseconds(std::min(options_.lock_timeout, options_.timeout / 2));
  std::string sql = std::string("-- configure\n") + kSettings;
  // Settings are text, which PostgresValues has none of.
  for (const auto& [place, text] : {std::pair("$1", &timeout), std::pair("$2", &lock_timeout)}) {
    for (size_t at = sql.find(place); at != std::string::npos; at = sql.find(place))
      sql.replace(at, 2, "'" + *text + "'");
  }
  if (!options_.schema.empty()) {
    sql += fmt::format(", set_config('search_path', {}, false)", QuotedText(options_.schema));
  }
  absl::Status status = Run({.sql = std::move(sql)});
  --num_flights_;
  queue_ = std::move(waiting);
  return status;
}

int PostgresConnection::backend_pid() const { return connection_ != nullptr ? PQbackendPID(connection_) : 0; }

std::string PostgresConnection::local_host() const {
  constexpr char kThisMachine[] = "127.0.0.1";
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> host = {};
  if (::getsockname(PQsocket(connection_), reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      address.ss_family == AF_UNIX ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host.data(), host.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0) {
    return kThisMachine;
  }
  return address.ss_family == AF_INET6 ? fmt::format("[{}]", host.data()) : host.data();
}

// --- Flights -------------------------------------------------------------------------------------

void PostgresConnection::Queue(Statement statement) {
  if (statement.change) {
    statement.values.Add(statement.change->num_rows);
    statement.sql = Counted(statement.sql, *statement.change, statement.values.size());
  }
  if (statement.if_no_row) {
    SHEAF_CHECK(!statement.change && !statement.on_row, "what must find a row tells nothing of it: {}", statement.sql);
    statement.sql = Required(statement.sql);
  }
  queue_.push_back(std::move(statement));
}

bool PostgresConnection::Send(const Statement& statement) {
  std::string key = statement.sql;
  for (const unsigned type : statement.values.types()) key += fmt::format("/{}", type);
  auto found = prepared_.find(key);
  if (found == prepared_.end()) {
    SHEAF_CHECK(prepared_.size() < kPreparedMax, "too many different statements: {}", statement.sql);
    found = prepared_.emplace(std::move(key), Prepared{.name = fmt::format("s{}", prepared_.size())}).first;
  }
  Prepared& prepared = found->second;
  const auto num_values = static_cast<int>(statement.values.size());
  sent_prepares_.push_back(nullptr);
  if (!prepared.is_prepared) {
    if (PQsendPrepare(connection_, prepared.name.c_str(), statement.sql.c_str(), num_values,
                      statement.values.types().data()) != 1) {
      return false;
    }
    prepared.is_prepared = true;
    sent_prepares_.back() = &prepared;
  }
  const std::vector<const char*> addresses = statement.values.Addresses();
  const std::vector<int> lengths = statement.values.Lengths();
  const std::vector<int> are_binary(statement.values.size(), 1);
  return PQsendQueryPrepared(connection_, prepared.name.c_str(), num_values, addresses.data(), lengths.data(),
                             are_binary.data(), /*resultFormat=*/1) == 1;
}

absl::Status PostgresConnection::Fly() {
  if (queue_.empty()) return absl::OkStatus();
  const std::vector<Statement> flight = std::exchange(queue_, {});
  if (!is_connected_) return absl::UnavailableError(fmt::format("{}: the connection is broken", name_));
  ++num_flights_;
  sent_prepares_.clear();
  for (const Statement& statement : flight) {
    if (!Send(statement)) return Broken(FirstLine(statement.sql));
  }
  if (PQpipelineSync(connection_) != 1) return Broken("-- sync");
  // Behind the first that failed, the database skips all others.
  absl::Status first_error;
  for (size_t i = 0; i < flight.size(); ++i) {
    if (Prepared* prepared = sent_prepares_[i]) {
      absl::Status status = Receive({.sql = flight[i].sql}, !first_error.ok());
      if (!is_connected_) return status;
      if (!status.ok() || !first_error.ok()) prepared->is_prepared = false;
      if (first_error.ok()) first_error = status;
    }
    absl::Status status = Receive(flight[i], !first_error.ok());
    if (!is_connected_) return status;
    if (first_error.ok()) first_error = status;
  }
  ASSIGN_OR_RETURN(pg_result * sync, NextResult());
  const Result owned(sync);
  if (PQresultStatus(sync) != PGRES_PIPELINE_SYNC) return Broken("-- sync");
  return first_error;
}

absl::Status PostgresConnection::Receive(const Statement& statement, bool has_failed) {
  absl::Status status;
  while (true) {
    ASSIGN_OR_RETURN(pg_result * next, NextResult());
    if (next == nullptr) return status;
    const Result result(next);
    const ExecStatusType kind = PQresultStatus(next);
    if (kind == PGRES_PIPELINE_ABORTED) continue;
    if (kind != PGRES_COMMAND_OK && kind != PGRES_TUPLES_OK) {
      // What the server says last of a connection that it ends, or libpq of one that broke.
      if (PQstatus(connection_) != CONNECTION_OK) return Broken(FirstLine(statement.sql));
      if (status.ok() && !has_failed) status = Error(statement, next);
      continue;
    }
    if (has_failed) continue;
    if (statement.num_rows != nullptr) {
      const char* changed = PQcmdTuples(next);
      *statement.num_rows = *changed != '\0' ? std::stoll(changed) : 0;
    }
    if (!statement.on_row) continue;
    PostgresRow row(next);
    for (int i = 0; i < PQntuples(next); ++i) {
      row.Move(i);
      statement.on_row(row);
    }
  }
}

absl::StatusOr<pg_result*> PostgresConnection::NextResult() {
  while (PQisBusy(connection_) == 1) RETURN_IF_ERROR(Wait());
  return PQgetResult(connection_);
}

absl::Status PostgresConnection::Wait() {
  // In both directions at once: a database that has to get rid of answers before it reads on, and a client that has to
  // get rid of statements before it reads, would wait for each other.
  const int unsent = PQflush(connection_);
  if (unsent < 0) return Broken("-- flush");
  pollfd socket{.fd = PQsocket(connection_), .events = POLLIN, .revents = 0};
  if (unsent > 0) socket.events |= POLLOUT;
  const int64_t milliseconds = std::clamp<int64_t>(absl::ToInt64Milliseconds(options_.timeout), 1, INT32_MAX);
  const int ready = poll(&socket, 1, static_cast<int>(milliseconds));
  if (ready < 0 && errno != EINTR) return Broken(std::strerror(errno));
  if (ready == 0) return Broken(fmt::format("no answer within {}", absl::FormatDuration(options_.timeout)));
  // Also where it can only be written: reading nothing is harmless.
  if (PQconsumeInput(connection_) != 1) return Broken("-- receive");
  return absl::OkStatus();
}

absl::Status PostgresConnection::AwaitNotice(absl::Duration timeout) {
  const auto milliseconds =
      static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(timeout), 0, std::numeric_limits<int>::max()));
  if (!is_connected_) {
    poll(nullptr, 0, milliseconds);
    return absl::OkStatus();
  }
  // What they say is what they are: something has happened.
  const auto take_notices = [this] {
    bool were_there = false;
    for (; PGnotify* const notice = PQnotifies(connection_); were_there = true) PQfreemem(notice);
    return were_there;
  };
  // They may have come with the answers before.
  if (take_notices()) return absl::OkStatus();
  pollfd socket{.fd = PQsocket(connection_), .events = POLLIN, .revents = 0};
  // Before the end of a connection come the database's last words.
  for (int ready = poll(&socket, 1, milliseconds); ready > 0; ready = poll(&socket, 1, 0)) {
    if (PQconsumeInput(connection_) != 1) return Broken("-- notice");
    take_notices();
  }
  return absl::OkStatus();
}

absl::Status PostgresConnection::Broken(std::string_view what) {
  is_connected_ = false;
  const std::string_view said = Trimmed(PQerrorMessage(connection_));
  absl::Status status = absl::UnavailableError(
      fmt::format("{} ({}): the connection broke{}{}", name_, what, said.empty() ? "" : ": ", said));
  // At once, so that the server need not find it out.
  PQfinish(std::exchange(connection_, nullptr));
  return status;
}

absl::Status PostgresConnection::Error(const Statement& statement, const pg_result* result) const {
  const char* sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  if (sqlstate != nullptr && sqlstate == kDivisionByZero) {
    if (statement.change) return statement.change->otherwise;
    if (statement.if_no_row) return *statement.if_no_row;
  }
  const char* message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
  return PostgresError(sqlstate != nullptr ? sqlstate : "",
                       fmt::format("{} ({}): {}", name_, FirstLine(statement.sql),
                                   message != nullptr ? message : Trimmed(PQresultErrorMessage(result))));
}

absl::Status PostgresConnection::RunScript(const std::string& sql) {
  SHEAF_CHECK(queue_.empty(), "a script flies alone");
  if (!is_connected_) return absl::UnavailableError(fmt::format("{}: the connection is broken", name_));
  // Several statements in one text need the simple protocol, which a pipeline does not have.
  if (PQexitPipelineMode(connection_) != 1) return Broken("-- script");
  ++num_flights_;
  if (PQsendQuery(connection_, sql.c_str()) != 1) return Broken("-- script");
  absl::Status status = Receive({.sql = "-- script"}, /*has_failed=*/false);
  if (is_connected_ && PQenterPipelineMode(connection_) != 1) return Broken("-- script");
  return status;
}

}  // namespace sheaf
