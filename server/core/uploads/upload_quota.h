// UploadQuota: room for uploads that are under way: how many, and of how many bytes, on disk and in memory, of all
// identities and of one.
//
//   RETURN_IF_ERROR(CheckUploadQuota(payloads, {.id = id, .size_bytes = 5, .is_in_memory = false}, caller, limits));
//
// Reads the payload store only; thread-safe as far as that is.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "server/core/access/identity.h"
#include "server/core/limits/limits.h"
#include "storage/payload_store.h"

namespace sheaf {

struct NewUpload {
  UploadId id;
  int64_t size_bytes = 0;
  // Of a contribution to an EPHEMERAL round.
  bool is_in_memory = false;
};

// RESOURCE_EXHAUSTED, naming the limit and with a retry hint, if there is no room for it. OK for one that is under way:
// it takes no more than it has.
absl::Status CheckUploadQuota(PayloadStore& payloads, const NewUpload& upload, const Identity& caller,
                              const Limits& limits);

}  // namespace sheaf
