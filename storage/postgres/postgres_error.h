// What PostgreSQL's errors mean to a store: the codes of storage/task_store.h.
//
//   return PostgresError("53100", "could not extend file ...");   // RESOURCE_EXHAUSTED
//
// | SQLSTATE                                | code               | because                                         |
// |-----------------------------------------|--------------------|-------------------------------------------------|
// | 53100, 53200, 53000                     | RESOURCE_EXHAUSTED | disk or memory is full; nothing changed         |
// | 53300, 53400, 08*, 57*, none            | UNAVAILABLE        | connections, shutdown, time: another may serve  |
// | 40*, 55P03                              | UNAVAILABLE        | rolled back for somebody else; it may be redone |
// | 25006                                   | UNAVAILABLE        | a standby; the primary is elsewhere             |
// | 23*, XX001, XX002, 58P01                | DATA_LOSS          | what is stored cannot be true                   |
// | 28*, 42501                              | PERMISSION_DENIED  | the role may not                                |
// | 3D000                                   | FAILED_PRECONDITION| there is no such database                       |
// | all others                              | INTERNAL           | I/O errors, and what we did wrong               |
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sheaf {

// `sqlstate` is empty where the connection broke. The message is kept as it is, followed by what to do about it where
// that is known.
absl::Status PostgresError(std::string_view sqlstate, std::string_view message);

}  // namespace sheaf
