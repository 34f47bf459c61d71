// PostgresOwner: one server's right to write a store, which the database itself holds it to (docs/adr/0032).
//
//   ASSIGN_OR_RETURN(auto owner, PostgresOwner::Take(*connection, {.server = "server-1", .address = "10.0.0.1:7433"}));
//   connection->Queue({.sql = "-- begin\nBEGIN"});
//   connection->Queue(owner->Fence());          // Nothing behind it happens if somebody else has taken over.
//   connection->Queue({.sql = "-- commit\nCOMMIT"});
//   if (connection->Fly().ok()) owner->Committed();
//
// The row of the store in `owners` names its server, and has two numbers: `epoch`, which grows whenever a connection
// takes the row, and `batch`, which each commit raises by one. The fence raises `batch` where both are what the owner
// knows, and holds the row's lock until the commit: a takeover waits for that, and what comes later finds another
// epoch.
//
// A COMMIT whose answer was lost is settled by taking the row again on a new connection. That waits for the old one's
// transaction if it runs, and shuts it out if it has not begun; then `batch` says what became of it.
//
// Once the row is another's, all that writes returns ABORTED: the store is over, and is opened anew. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/postgres/peer_address.h"
#include "storage/postgres/postgres_connection.h"
#include "storage/sql/row_place.h"

namespace sheaf {

class PostgresOwner {
 public:
  struct Owner {
    std::string server;
    PeerAddress peer;
  };
  // One process's time as the owner: what it says of itself beside its batches, on any connection and thread.
  class Tenure {
   public:
    // When it began, in microseconds, by the database's clock: a server that stopped well may have an epoch again.
    Tenure(std::string server, int64_t server_epoch, int64_t take_micros)
        : server_(std::move(server)), server_epoch_(server_epoch), take_micros_(take_micros) {}

    // The last statement of a transaction, which fails with ABORTED, and with it all of the transaction, if somebody
    // has taken over before. Locks nothing. Whatever the statements before it met had been committed by then; if that
    // was a later owner's, this one finds that owner.
    PostgresConnection::Statement Check() const;
    // The first statement of a short transaction, ABORTED likewise: nobody takes over before its end. It waits for the
    // owner's batch that is under way, and the next batch for it.
    PostgresConnection::Statement Hold() const;
    // Says that this process lives, where it commits nothing.
    PostgresConnection::Statement Beat() const;

   private:
    PostgresConnection::Statement Ask(std::string_view name, std::string_view lock) const;

    std::string server_;
    int64_t server_epoch_;
    int64_t take_micros_;
  };
  struct Waiting {
    // NOT_FOUND while another server owns the store, UNAVAILABLE while the database does not serve; in a sentence.
    absl::Status why;
    // The one that does; none while that is not known.
    std::optional<Owner> owner;
  };
  struct Options {
    // The same after a restart, and no other server's.
    std::string server;
    // Of its software; for people.
    std::string version;
    // Where callers reach it; for people. Here and in `peer`, a host that stands for all addresses becomes this
    // machine's towards the database.
    std::string address;
    // Where other servers do.
    PeerAddress peer;
    // An owner that has not been heard of for so long, by the database's clock, is taken over. Of one that lives, its
    // commits and Beat are what is heard.
    absl::Duration takeover_after = absl::Seconds(4);
    // Who waits for its turn: called after each look that found no turn, and says whether to look again. Without it
    // Take returns at once.
    std::function<bool(const Waiting&)> wait;
    // Who waits, and may not take the store now, goes on waiting, free or not. Asked before each look.
    std::function<bool()> may_take = [] { return true; };
    // Since its process began: for people.
    absl::Duration up_for = absl::ZeroDuration();
    // Who waits looks again after so long, or at once when the owner gives the store back.
    absl::Duration look_interval = absl::Milliseconds(100);
    // How often a lost connection is made again before the store is given up, some half a second apart.
    int attempts_max = 60;
  };
  // Of a database with its schema. FAILED_PRECONDITION, naming the owner, while there is one that lives and is another,
  // if `wait` does not wait for it.
  // A server that starts again is its own successor: what is left of its former process is shut out.
  static absl::StatusOr<std::unique_ptr<PostgresOwner>> Take(PostgresConnection& connection, const Options& options);

  Tenure tenure() const { return {options_.server, server_epoch_, take_micros_}; }
  // OK as long as nobody has taken over, as far as this server has heard.
  const absl::Status& status() const { return status_; }
  // The first statement of each transaction that writes.
  PostgresConnection::Statement Fence();
  // Between the two, a transaction may last for longer than others wait for the row, as long as the database works on
  // it; they see it in pg_stat_activity, by the connection's application_name.
  absl::Status BeginLongWork();
  absl::Status EndLongWork();
  // The last statement of a transaction that may last for longer than takeover_after, with nothing heard meanwhile.
  PostgresConnection::Statement LateBeat() const;
  // The transaction of the last fence was committed.
  void Committed() { ++batch_; }
  // Its flight failed, and the connection stands: tells whether it was the fence, in status().
  void Failed(const absl::Status& status);
  // The connection broke in its COMMIT. True if the batch is there. Waits until the database serves again, within
  // attempts_max; ABORTED if it does not, or if somebody has taken over. DATA_LOSS if the database lacks commits that
  // it had acknowledged.
  absl::StatusOr<bool> Settle();
  // The connection broke elsewhere: makes it anew. Waits as Settle does; UNAVAILABLE if the database does not serve.
  absl::Status Reconnect();
  // Says that this server lives, where it commits nothing. A round trip.
  absl::Status Beat();
  // Gives the row back: whoever waits need not wait for takeover_after. All that writes returns ABORTED from here on.
  absl::Status Release();

 private:
  PostgresOwner(PostgresConnection& connection, Options options)
      : connection_(connection), options_(std::move(options)) {}

  // And forgets servers that nobody has heard of for long.
  absl::Status Join();
  absl::Status Leave();
  // To owners that give the store back.
  absl::Status Listen();
  // NOT_FOUND, naming it, if another server owns the row and lives, or if this one may not take it.
  absl::Status TryToTake();
  // The same, without a name. UNAVAILABLE if somebody holds its lock for longer than `patience`.
  absl::Status TakeRow(absl::Duration patience);
  // The same of a look, which locks nothing.
  absl::Status CheckFree();
  // The row is this process's: takes it again for the connection that is there now, and reads `batch`.
  absl::StatusOr<int64_t> TakeAgain();
  enum class Ending { kIfItsClientIsSilent, kAnyhow };
  // Ends the connection of an owner of whom nothing was heard for long, or of this server's former process, that holds
  // the row's lock for longer than one waits for it, unless it is at long work. That of
  // a server that stands still in the middle of long work waits for its client, and is ended, too.
  absl::Status EndOldConnection(Ending ending);
  // The same on a new connection.
  absl::StatusOr<int64_t> ConnectAndTakeAgain();
  // The same as soon as there is one; the last attempt's error after attempts_max. Logs why it waits.
  absl::StatusOr<int64_t> TakeAgainOnceItServes();
  absl::Status Lose(std::string_view why);
  // The database has `batch`, which this process has not written.
  absl::Status LoseAsOther(int64_t batch);

  PostgresConnection& connection_;
  const Options options_;
  absl::Status status_;
  // As the newest look found it.
  std::optional<Owner> owner_;
  // Of this process among those of the same server.
  int64_t server_epoch_ = 0;
  // When it took the row.
  int64_t take_micros_ = 0;
  int64_t epoch_ = 0;
  // The last that was committed.
  int64_t batch_ = 0;
  // Of the row. Each fence makes a new version of it.
  RowPlace place_;
};

}  // namespace sheaf
