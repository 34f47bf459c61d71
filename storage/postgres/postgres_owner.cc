#include "storage/postgres/postgres_owner.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "base/log.h"
#include "base/status_macros.h"
#include "storage/postgres/postgres_place.h"

namespace sheaf {
namespace {

// Between two attempts to reach a database that does not serve: soon at first, then twice a second.
constexpr int kPauseMillisecondsMax = 500;
constexpr int64_t kLooksPerBeat = 10;
// How long whoever may take the row waits for a transaction of the owner of whom nothing was heard.
constexpr absl::Duration kPatienceMin = absl::Milliseconds(100);
constexpr absl::Duration kPatienceMax = absl::Seconds(10);
// The time at which the row was taken, which a connection that is made anew leaves as it is.
constexpr std::string_view kTakeMicros = "(extract(epoch FROM take_time) * 1000000)::bigint";
constexpr std::string_view kLongWork = "sheafd at long work";
// The channel that hears of each owner that has given the store back.
constexpr std::string_view kFreedChannel = "sheaf_store_freed";

// A server that listens on all its addresses is reached at `host`.
std::string Reachable(const std::string& address, const std::string& host) {
  const size_t colon = address.rfind(':');
  const std::string given = address.substr(0, colon);
  const bool is_all = given == "0.0.0.0" || given == "[::]" || given == "*" || given.empty();
  return is_all && colon != std::string::npos ? host + address.substr(colon) : address;
}

}  // namespace

PostgresConnection::Statement PostgresOwner::Tenure::Ask(std::string_view name, std::string_view lock) const {
  return {.sql = fmt::format("-- {}\nSELECT FROM owners WHERE population = '' AND server = $1 AND server_epoch = $2 "
                             "AND {} = $3{}",
                             name, kTakeMicros, lock),
          .values = PostgresValues().Add(SqlText(server_)).Add(server_epoch_).Add(take_micros_),
          .if_no_row = absl::AbortedError(
              fmt::format("the store is no longer that of this process of {}: another one has taken it", server_))};
}

PostgresConnection::Statement PostgresOwner::Tenure::Check() const { return Ask("still_owner", ""); }

PostgresConnection::Statement PostgresOwner::Tenure::Hold() const { return Ask("hold_owner", " FOR SHARE"); }

PostgresConnection::Statement PostgresOwner::Tenure::Beat() const {
  return {.sql = "-- beat\nUPDATE servers SET heartbeat_time = clock_timestamp() WHERE id = $1 AND epoch = $2",
          .values = PostgresValues().Add(SqlText(server_)).Add(server_epoch_)};
}

absl::StatusOr<std::unique_ptr<PostgresOwner>> PostgresOwner::Take(PostgresConnection& connection,
                                                                   const Options& options) {
  std::unique_ptr<PostgresOwner> owner(new PostgresOwner(connection, options));
  RETURN_IF_ERROR(owner->Join());
  // Before the first look: whoever frees the store later than that is heard.
  if (options.wait) RETURN_IF_ERROR(owner->Listen());
  absl::Status status = owner->TryToTake();
  for (int64_t num_looks = 1; (absl::IsNotFound(status) || absl::IsUnavailable(status)) && options.wait &&
                              options.wait({.why = status, .owner = owner->owner_});
       ++num_looks) {
    connection.AwaitNotice(options.look_interval).IgnoreError();
    const bool was_connected = connection.is_connected();
    status = owner->TryToTake();
    // It broke since the look before, which only an attempt to use it may tell.
    if (was_connected && !connection.is_connected()) status = owner->TryToTake();
    // Whoever lists the servers sees that it lives.
    if (absl::IsNotFound(status) && num_looks % kLooksPerBeat == 0) owner->Beat().IgnoreError();
  }
  if (!status.ok() && connection.is_connected()) owner->Leave().IgnoreError();
  if (absl::IsNotFound(status)) return absl::FailedPreconditionError(status.message());
  RETURN_IF_ERROR(status);
  return owner;
}

absl::Status PostgresOwner::TryToTake() {
  if (!connection_.is_connected()) {
    RETURN_IF_ERROR(connection_.Connect());
    RETURN_IF_ERROR(Listen());
  }
  // Many may wait for long: what locks the row would hold up its owner's commits each time.
  RETURN_IF_ERROR(CheckFree());
  if (!options_.may_take()) return absl::NotFoundError("this server drains, and another one is to take the store");
  const auto is_locked = [this](const absl::Status& status) {
    return absl::IsUnavailable(status) && connection_.is_connected();
  };
  absl::Status status = TakeRow(std::clamp(options_.takeover_after / 4, kPatienceMin, kPatienceMax));
  if (is_locked(status)) {
    // The lock's holder, of whom nothing was heard for long, is ended if it stands still in the middle of a flight.
    RETURN_IF_ERROR(EndOldConnection(Ending::kIfItsClientIsSilent));
    status = TakeRow(kPatienceMax);
  }
  if (is_locked(status)) {
    // No commit takes so long.
    RETURN_IF_ERROR(EndOldConnection(Ending::kAnyhow));
    status = TakeRow(kPatienceMax);
  }
  return status;
}

absl::Status PostgresOwner::Listen() {
  return connection_.Run({.sql = fmt::format("-- listen\nLISTEN {}", kFreedChannel)});
}

absl::Status PostgresOwner::Leave() {
  return connection_.Run({.sql = "-- leave\nDELETE FROM servers WHERE id = $1 AND epoch = $2",
                          .values = PostgresValues().Add(SqlText(options_.server)).Add(server_epoch_)});
}

absl::Status PostgresOwner::Join() {
  // Who ended without leaving is shown as silent for so long.
  RETURN_IF_ERROR(connection_.Run({.sql = R"(-- forget_servers
      DELETE FROM servers WHERE heartbeat_time < clock_timestamp() - interval '1 day'
         AND id NOT IN (SELECT server FROM owners))"}));
  const std::string host = connection_.local_host();
  return connection_.Run({.sql = R"(-- join
      INSERT INTO servers (id, epoch, heartbeat_time, start_time, version, address, peer_address, peer_certificate,
                           peer_secret)
      VALUES ($1, 1 + coalesce((SELECT max(server_epoch) FROM owners WHERE server = $1), 0), clock_timestamp(),
              clock_timestamp() - $7 * interval '1 microsecond', $2, $3, $4, $5, $6)
      ON CONFLICT (id) DO UPDATE
        SET epoch = servers.epoch + 1, heartbeat_time = excluded.heartbeat_time, start_time = excluded.start_time,
            version = excluded.version, address = excluded.address, peer_address = excluded.peer_address,
            peer_certificate = excluded.peer_certificate, peer_secret = excluded.peer_secret
      RETURNING epoch)",
                          .values = PostgresValues()
                                        .Add(SqlText(options_.server))
                                        .Add(SqlText(options_.version))
                                        .Add(SqlText(Reachable(options_.address, host)))
                                        .Add(SqlText(Reachable(options_.peer.address, host)))
                                        .Add(SqlText(options_.peer.certificate))
                                        .Add(SqlText(options_.peer.secret))
                                        .Add(absl::ToInt64Microseconds(options_.up_for)),
                          .on_row = [this](const SqlRow& row) { server_epoch_ = row.Int(0); }});
}

absl::Status PostgresOwner::TakeRow(absl::Duration patience) {
  bool is_taken = false;
  connection_.Queue({.sql = R"(-- patience
      SELECT set_config('lock_timeout', least($1, setting::bigint)::text, true)
        FROM pg_settings WHERE name = 'lock_timeout')",
                     .values = PostgresValues().Add(absl::ToInt64Milliseconds(patience))});
  RETURN_IF_ERROR(connection_.Run({.sql = fmt::format(R"(-- take
      INSERT INTO owners (population, server, server_epoch, epoch, batch, take_time, heartbeat_time, backend_pid,
                          backend_start)
      VALUES ('', $1, $2, 1, 0, clock_timestamp(), clock_timestamp(), pg_backend_pid(),
              (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()))
      ON CONFLICT (population) DO UPDATE
        SET server = excluded.server, server_epoch = excluded.server_epoch, epoch = owners.epoch + 1,
            take_time = excluded.take_time, heartbeat_time = excluded.heartbeat_time, backend_pid = excluded.backend_pid,
            backend_start = excluded.backend_start
        WHERE owners.server = excluded.server
           OR greatest(owners.heartbeat_time, (SELECT s.heartbeat_time FROM servers s
                                                WHERE s.id = owners.server AND s.epoch = owners.server_epoch))
                + $3 * interval '1 microsecond' <= clock_timestamp()
      RETURNING epoch, batch, {})",
                                                      kTakeMicros),
                                   .values = PostgresValues()
                                                 .Add(SqlText(options_.server))
                                                 .Add(server_epoch_)
                                                 .Add(absl::ToInt64Microseconds(options_.takeover_after)),
                                   .on_row = [&](const SqlRow& row) {
                                     is_taken = true;
                                     epoch_ = row.Int(0);
                                     batch_ = row.Int(1);
                                     take_micros_ = row.Int(2);
                                   }}));
  // Somebody was quicker.
  return is_taken ? absl::OkStatus() : absl::NotFoundError("another server has just taken the store");
}

absl::Status PostgresOwner::EndOldConnection(Ending ending) {
  return connection_.Run(
      {.sql = fmt::format(R"(-- end_old_connection
      SELECT pg_terminate_backend(a.pid, 5000) FROM owners o
        JOIN pg_stat_activity a ON a.pid = o.backend_pid AND a.backend_start = o.backend_start
        LEFT JOIN servers s ON s.id = o.server AND s.epoch = o.server_epoch
       WHERE o.population = ''
         AND (o.server = $1 OR greatest(o.heartbeat_time, s.heartbeat_time) + $2 * interval '1 microsecond'
                <= clock_timestamp())
         AND ({} OR a.state LIKE 'idle in transaction%' OR a.wait_event_type = 'Client')
         AND NOT (a.application_name = '{}' AND a.state = 'active' AND a.wait_event_type IS DISTINCT FROM 'Client'))",
                          ending == Ending::kAnyhow, kLongWork),
       .values =
           PostgresValues().Add(SqlText(options_.server)).Add(absl::ToInt64Microseconds(options_.takeover_after))});
}

absl::Status PostgresOwner::CheckFree() {
  absl::Status status;
  owner_.reset();
  RETURN_IF_ERROR(connection_.Run(
      {.sql = R"(-- owner
      SELECT server, address, extract(epoch FROM silent)::bigint, peer_address, peer_certificate, peer_secret
        FROM (SELECT o.server, s.address, s.peer_address, s.peer_certificate, s.peer_secret,
                     clock_timestamp() - greatest(o.heartbeat_time,
                                                  CASE WHEN s.epoch = o.server_epoch THEN s.heartbeat_time END) AS silent
                FROM owners o JOIN servers s ON s.id = o.server
               WHERE o.population = '' AND o.server <> $1) AS other
       WHERE silent < $2 * interval '1 microsecond')",
       .values = PostgresValues().Add(SqlText(options_.server)).Add(absl::ToInt64Microseconds(options_.takeover_after)),
       .on_row = [&](const SqlRow& row) {
         owner_ = {.server = row.String(0),
                   .peer = {.address = row.String(3), .certificate = row.String(4), .secret = row.String(5)}};
         status = absl::NotFoundError(fmt::format(
             "{}: server {}{} owns the store, and was heard of {} s ago; it is taken over {} after "
             "it was heard of last",
             connection_.name(), row.Bytes(0), row.Bytes(1).empty() ? "" : fmt::format(" at {}", row.Bytes(1)),
             row.Int(2), absl::FormatDuration(options_.takeover_after)));
       }}));
  return status;
}

PostgresConnection::Statement PostgresOwner::Fence() {
  // Where the row lies is a hint; whose it is, is said by its numbers, which are compared when its lock is held.
  return {.sql = R"(-- fence
      UPDATE owners SET batch = $1, heartbeat_time = clock_timestamp()
       WHERE ctid = coalesce((SELECT ctid FROM owners
                               WHERE ctid >= $3 AND ctid < $4 AND population IS NOT DISTINCT FROM ''),
                             (SELECT ctid FROM owners WHERE population = ''))
         AND epoch = $2 AND batch = $1 - 1)",
          .values = PostgresValues().Add(batch_ + 1).Add(epoch_).Add(BeginOf(place_)).Add(EndOf(place_)),
          .change = {{.num_rows = 1, .otherwise = absl::AbortedError("the fence"), .returning = "ctid"}},
          .on_row = [this](const SqlRow& row) { place_ = PlaceOf(row, 1); }};
}

absl::Status PostgresOwner::BeginLongWork() {
  return connection_.Run({.sql = fmt::format("-- begin_long_work\nSET application_name = '{}'", kLongWork)});
}

absl::Status PostgresOwner::EndLongWork() {
  return connection_.Run({.sql = "-- end_long_work\nRESET application_name"});
}

PostgresConnection::Statement PostgresOwner::LateBeat() const {
  return {.sql =
              "-- late_beat\nUPDATE owners SET heartbeat_time = clock_timestamp() "
              "WHERE population = '' AND epoch = $1",
          .values = PostgresValues().Add(epoch_)};
}

void PostgresOwner::Failed(const absl::Status& status) {
  if (absl::IsAborted(status)) Lose("another server has taken over").IgnoreError();
}

absl::Status PostgresOwner::Lose(std::string_view why) {
  if (status_.ok()) {
    status_ = absl::AbortedError(fmt::format("{}: server {}: {}; what this process holds of the store is void",
                                             connection_.name(), options_.server, why));
  }
  return status_;
}

absl::StatusOr<int64_t> PostgresOwner::TakeAgain() {
  bool is_taken = false;
  int64_t batch = 0;
  // The server, its epoch and the time tell that the row is this process's, whichever of its connections took it last:
  // an answer to this very statement may have been lost, too.
  RETURN_IF_ERROR(
      connection_.Run({.sql = fmt::format(R"(-- take_again
      UPDATE owners SET epoch = epoch + 1, heartbeat_time = clock_timestamp(), backend_pid = pg_backend_pid(),
             backend_start = (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())
       WHERE population = '' AND server = $1 AND server_epoch = $2 AND {} = $3 RETURNING epoch, batch)",
                                          kTakeMicros),
                       .values = PostgresValues().Add(SqlText(options_.server)).Add(server_epoch_).Add(take_micros_),
                       .on_row = [&](const SqlRow& row) {
                         is_taken = true;
                         epoch_ = row.Int(0);
                         batch = row.Int(1);
                       }}));
  if (!is_taken) return Lose("another server has taken over");
  return batch;
}

absl::StatusOr<int64_t> PostgresOwner::TakeAgainOnceItServes() {
  RETURN_IF_ERROR(status_);
  absl::Status last;
  for (int attempt = 0; attempt < options_.attempts_max; ++attempt) {
    if (attempt > 0) ::poll(nullptr, 0, std::min(10 << std::min(attempt, 10), kPauseMillisecondsMax));
    absl::StatusOr<int64_t> batch = ConnectAndTakeAgain();
    RETURN_IF_ERROR(status_);
    if (batch.ok()) {
      if (!last.ok()) LogInfo("the store goes on: {} serves again", connection_.name());
      return batch;
    }
    // The reason may change: a database that starts refuses connections first, and then says that it starts.
    if (batch.status() != last) LogWarning("the store waits for its database: {}", batch.status().ToString());
    last = batch.status();
  }
  return last;
}

absl::StatusOr<int64_t> PostgresOwner::ConnectAndTakeAgain() {
  RETURN_IF_ERROR(connection_.Connect());
  absl::StatusOr<int64_t> batch = TakeAgain();
  if (absl::IsUnavailable(batch.status()) && connection_.is_connected()) {
    // The old connection holds the lock: it got part of the flight, and still waits for the rest.
    if (EndOldConnection(Ending::kAnyhow).ok()) batch = TakeAgain();
  }
  return batch;
}

absl::StatusOr<bool> PostgresOwner::Settle() {
  const absl::StatusOr<int64_t> batch = TakeAgainOnceItServes();
  RETURN_IF_ERROR(status_);
  if (!batch.ok()) {
    return Lose(fmt::format("what became of batch {} is not known ({})", batch_ + 1, batch.status().ToString()));
  }
  if (*batch == batch_ || *batch == batch_ + 1) return *batch > batch_;
  return LoseAsOther(*batch);
}

absl::Status PostgresOwner::Reconnect() {
  ASSIGN_OR_RETURN(const int64_t batch, TakeAgainOnceItServes());
  return batch == batch_ ? absl::OkStatus() : LoseAsOther(batch);
}

absl::Status PostgresOwner::LoseAsOther(int64_t batch) {
  Lose("the database has gone back or on by itself").IgnoreError();
  return absl::DataLossError(
      fmt::format("{} has batch {}, where {} was committed last: a standby without the newest commits was made the "
                  "primary, or a backup was restored",
                  connection_.name(), batch, batch_));
}

absl::Status PostgresOwner::Beat() {
  RETURN_IF_ERROR(status_);
  return connection_.Run(tenure().Beat());
}

absl::Status PostgresOwner::Release() {
  RETURN_IF_ERROR(status_);
  Lose("has given the store back").IgnoreError();
  // No server has the epoch 0, so that no heartbeat keeps the row.
  connection_.Queue({.sql = "-- release\nUPDATE owners SET epoch = epoch + 1, server_epoch = 0, "
                            "heartbeat_time = to_timestamp(0) WHERE population = '' AND epoch = $1",
                     .values = PostgresValues().Add(epoch_)});
  connection_.Queue({.sql = fmt::format("-- tell\nNOTIFY {}", kFreedChannel)});
  return Leave();
}

}  // namespace sheaf
