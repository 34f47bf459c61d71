// Whether a contribution is still wanted, asked before any of its bytes travel.
//
//   ASSIGN_OR_RETURN(const UploadWish wish,
//                    AskForUpload(store, rounds, {.task = id, .token = token, .size_bytes = 5}, caller));
//   const bool may_send = wish == UploadWish::kToDisk || wish == UploadWish::kToMemory;
//
// The answer is true now; what is uploaded is judged again when it is handed in.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/core/access/identity.h"
#include "server/core/rounds/live_rounds.h"
#include "storage/task_store.h"

namespace sheaf {

enum class UploadWish {
  // It is wanted, and spooled there: of an EPHEMERAL round nothing individual reaches the disk.
  kToDisk,
  kToMemory,
  // The round has enough, or the contribution is known already.
  kNotNeeded,
  kLeaseLost,
};

struct OfferedUpload {
  TaskId task;
  LeaseToken token;
  int64_t size_bytes = 0;
};

// NOT_FOUND if there is no such task; RESOURCE_EXHAUSTED if the round takes none so large.
absl::StatusOr<UploadWish> AskForUpload(TaskStore& store, LiveRounds& rounds, const OfferedUpload& offered,
                                        const Identity& caller);

}  // namespace sheaf
