// CheckLog: whether the log (WAL) beside a database is damaged in a way that SQLite would take for its end.
//
//   RETURN_IF_ERROR(CheckLog("/var/lib/sheaf/tasks.db", vfs));   // Before the database is opened.
//
// SQLite reads its log up to the first frame that does not match its checksum, because that is what a crash leaves: the
// frames of one transaction that was not flushed. Where a whole transaction follows the end of that one, both were
// flushed and promised, and it is damage. Frames that earlier crashes and full disks cut off may lie behind. Damage in
// the last transaction, or a log cut short, looks like a crash and is not found.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sheaf {

// DATA_LOSS, naming the log. OK if there is none. `vfs` as for SqliteConnection.
absl::Status CheckLog(const std::string& database, const std::string& vfs);

}  // namespace sheaf
