// PostgresConnection: one connection to a PostgreSQL database. Statements are queued, and travel together: a flight is
// one round trip, however many statements it has (libpq's pipeline mode).
//
//   ASSIGN_OR_RETURN(auto connection, PostgresConnection::Open({.conninfo = "host=db1,db2 dbname=sheaf"}));
//   connection->Queue({.sql = "-- begin\nBEGIN"});
//   connection->Queue({.sql = "-- add\nUPDATE counters SET n = n + $1 WHERE key = $2",
//                      .values = PostgresValues().Add(1).Add(key),
//                      .change = {{.num_rows = 1, .otherwise = absl::DataLossError("a counter is gone")}}});
//   connection->Queue({.sql = "-- commit\nCOMMIT"});
//   absl::Status status = connection->Fly();
//
// A statement that fails, that changes another number of rows than it must, or that finds no row where it must, ends
// its flight: what was queued behind it does not happen. If a flight began no transaction, it is one.
//
// Fly and Connect return within bounded time, whatever the database does: it has Options::timeout for each next byte. A
// connection that broke stays so until Connect is called again (`is_connected`); then it is not known what became of
// the last flight's COMMIT, where it had one. As long as it stands, a flight that failed has changed nothing that an
// open transaction can still commit.
//
// Each text is prepared once, and planned for values that are not known; so its plan is by index, whatever the
// statistics say. The session's settings: see kSettings in the source. Behind a pooler it needs a connection of its own
// (a pool of "sessions", not of "transactions").
//
// Codes: those of postgres_error.h; INVALID_ARGUMENT for a connection string that libpq does not understand, which is
// not repeated, as a password may stand in it. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/postgres/postgres_values.h"
#include "storage/sql/sql_connection.h"

struct pg_conn;
struct pg_result;

namespace sheaf {

class PostgresConnection {
 public:
  struct Options {
    // As libpq takes it, `key=value` or URL: several hosts, sslmode, service and password files are libpq's business.
    std::string conninfo;
    // Where its tables are, as an identifier in SQL. Empty: where the database looks first.
    std::string schema = {};
    // How long the database may be silent; also the server's limit for one statement.
    absl::Duration timeout = absl::Seconds(30);
    // How long one waits there for what another transaction has locked; at most half of `timeout`.
    absl::Duration lock_timeout = absl::Seconds(10);
  };
  static absl::StatusOr<std::unique_ptr<PostgresConnection>> Open(const Options& options);
  ~PostgresConnection();
  PostgresConnection(const PostgresConnection&) = delete;
  PostgresConnection& operator=(const PostgresConnection&) = delete;

  struct Change {
    int64_t num_rows = 0;
    // What Fly returns if it was another number; where it is.
    absl::Status otherwise;
    // Of each changed row, what its statement's RETURNING may name: columns of on_row behind one of no interest.
    std::string returning;
  };
  struct Statement {
    // Begins with "-- its_name\n", which errors name. `$1` marks the place of the first value.
    std::string sql;
    PostgresValues values;
    // For an INSERT, UPDATE or DELETE without RETURNING of its own.
    std::optional<Change> change;
    // For a SELECT that is asked only whether it finds a row: what Fly returns if it does not.
    std::optional<absl::Status> if_no_row;
    // Called for each row of the answer, if nothing before failed. Columns are bigint, integer, smallint, boolean,
    // bytea, text or tid.
    std::function<void(const SqlRow& row)> on_row;
    // If not null: set to the number of rows that were changed, or read.
    int64_t* num_rows = nullptr;
  };
  void Queue(Statement statement);
  size_t num_queued() const { return queue_.size(); }
  // Forgets what is queued.
  void Drop() { queue_.clear(); }
  // Sends what is queued and waits for all answers. The first error of them. Nothing is queued afterwards.
  absl::Status Fly();
  // Queue and Fly.
  absl::Status Run(Statement statement) {
    Queue(std::move(statement));
    return Fly();
  }
  // Several statements without values, as one transaction unless they say otherwise. A round trip of its own.
  absl::Status RunScript(const std::string& sql);
  // Returns when somebody tells a channel to which this connection listens (LISTEN, NOTIFY), and after `timeout`, also
  // where there is no connection. UNAVAILABLE if it breaks meanwhile.
  absl::Status AwaitNotice(absl::Duration timeout);

  bool is_connected() const { return is_connected_; }
  // Ends the connection, if there is one, and makes a new one. What is queued stays so.
  absl::Status Connect();
  // Round trips since it was opened, those of Connect not counted.
  int64_t num_flights() const { return num_flights_; }
  // "postgresql://user@host:port/database", of the newest connection; no password. For messages.
  const std::string& name() const { return name_; }
  // Of the newest connection: the process of the database that serves it.
  int backend_pid() const;
  // This machine's address towards the database, as a host of HOST:PORT; 127.0.0.1, if the two are on one machine.
  std::string local_host() const;

 private:
  explicit PostgresConnection(const Options& options) : options_(options) {}

  absl::Status Configure();
  // Queues the connection's own messages for one statement.
  bool Send(const Statement& statement);
  // Waits until the socket can be read, writing what is still to be written. UNAVAILABLE after `timeout` without
  // either.
  absl::Status Wait();
  // The next answer; null at the end of a statement's.
  absl::StatusOr<pg_result*> NextResult();
  // Takes the answers of one statement.
  absl::Status Receive(const Statement& statement, bool has_failed);
  absl::Status Broken(std::string_view what);
  absl::Status Error(const Statement& statement, const pg_result* result) const;

  const Options options_;
  pg_conn* connection_ = nullptr;
  bool is_connected_ = false;
  std::string name_;
  int64_t num_flights_ = 0;
  std::vector<Statement> queue_;
  // By text and types; the names are those of this connection.
  struct Prepared {
    std::string name;
    bool is_prepared = false;
  };
  std::unordered_map<std::string, Prepared> prepared_;
  // Of the flight in the air: which of its statements begin with a PREPARE.
  std::vector<Prepared*> sent_prepares_;
};

}  // namespace sheaf
