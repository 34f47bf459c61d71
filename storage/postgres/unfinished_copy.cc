#include "storage/postgres/unfinished_copy.h"

#include <fmt/format.h>

#include "absl/time/time.h"

namespace sheaf {

absl::Status CheckNoUnfinishedCopy(PostgresConnection& connection) {
  absl::Status status;
  const absl::Status asked = connection.Run(
      {.sql = "-- unfinished_copy\nSELECT directory, extract(epoch FROM begin_time)::bigint FROM unfinished_copies",
       .on_row = [&](const SqlRow& row) {
         const std::string begun =
             absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(row.Int(1)), absl::UTCTimeZone());
         status = absl::FailedPreconditionError(fmt::format(
             "{} has an unfinished copy of {}, begun at {}: run `sheaf store copy` of that directory into it again, or "
             "make the database anew",
             connection.name(), row.Bytes(0), begun));
       }});
  return asked.ok() ? status : asked;
}

void QueueBeginCopy(PostgresConnection& connection, std::string_view directory) {
  connection.Queue({.sql = "-- forget_copies\nDELETE FROM unfinished_copies"});
  connection.Queue({.sql = "-- begin_copy\n"
                           "INSERT INTO unfinished_copies (directory, begin_time) VALUES ($1, clock_timestamp())",
                    .values = PostgresValues().Add(SqlText(directory))});
}

void QueueEndCopy(PostgresConnection& connection) {
  connection.Queue({.sql = "-- end_copy\nDELETE FROM unfinished_copies",
                    .change = {{.num_rows = 1,
                                .otherwise = absl::AbortedError(
                                    fmt::format("{}: somebody else has begun a copy into it", connection.name()))}}});
}

}  // namespace sheaf
