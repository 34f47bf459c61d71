// PayloadCopy: the payload files of a directory, as PostgresPayloadStore keeps payloads. Those that no record names,
// and that the next start of a server would delete, are left out.
//
//   PayloadCopy payloads(*rows, "/var/lib/sheaf", *connection);     // `rows`: the directory's database.
//   RETURN_IF_ERROR(payloads.Write());                              // Inside of a transaction, as the next.
//   RETURN_IF_ERROR(payloads.Verify());
//
// Everything is checked as it is read, as the directory's own server would, and read back from the database. A few
// megabytes are in memory at a time, and the names of the files. Both connections must outlive it. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/files/checkpoint_files.h"
#include "storage/files/file_system.h"
#include "storage/files/spool_files.h"
#include "storage/postgres/postgres_connection.h"
#include "storage/postgres/postgres_contents.h"
#include "storage/sql/sql_connection.h"

namespace sheaf {

class PayloadCopy {
 public:
  PayloadCopy(SqlConnection& rows, const std::string& directory, PostgresConnection& to)
      : rows_(rows),
        directory_(directory),
        to_(to),
        spools_(files_, directory + "/spools"),
        checkpoints_(files_, directory + "/checkpoints") {}

  struct Count {
    int64_t number = 0;
    int64_t num_bytes = 0;
  };
  struct Counts {
    Count blobs;
    Count uploads;
    // Accepted contributions that no checkpoint contains yet.
    Count contributions;
    Count checkpoints;
    // Uploads of 0.1, of which nobody knows whose they are. Their senders begin again.
    int64_t num_uploads_left = 0;
  };

  // Into tables that are empty. DATA_LOSS, naming the file, if one that is needed is missing or damaged.
  absl::Status Write();
  // That the database has what was written, and all that the copied rows name. DATA_LOSS.
  absl::Status Verify();
  const Counts& counts() const { return counts_; }

 private:
  class SpoolWriter;
  // An accepted contribution that no checkpoint contains yet.
  struct Pending {
    RoundId round;
    SpoolRef ref;
    int64_t sequence = 0;
    // As it was accepted.
    std::string digest;
    int64_t size_bytes = 0;
  };

  absl::Status WriteBlobs();
  absl::Status WriteUploads();
  absl::Status WriteCheckpoints();
  absl::Status WriteSpools();
  absl::Status WriteSegment(const Pending& pending, const SpoolFiles::Segment& segment);
  // In the order of their rounds, then of their sequence.
  absl::Status ForEachPending(absl::FunctionRef<absl::Status(const Pending& pending)> look);
  absl::Status VerifyPending();
  // DATA_LOSS, as `what` of a round, if the question about the database's rows has an answer.
  absl::Status CheckNone(std::string_view sql, std::string_view what);
  // Stores the bytes that `write` gives, and reads them back.
  absl::StatusOr<PostgresContent> Store(const std::function<absl::Status(const ByteSink& take)>& write);
  absl::StatusOr<PostgresContent> StoreFile(const std::string& path, int64_t bytes_max);

  SqlConnection& rows_;
  const std::string directory_;
  PostgresConnection& to_;
  PosixFileSystem files_;
  SpoolFiles spools_;
  CheckpointFiles checkpoints_;
  Counts counts_;
};

}  // namespace sheaf
