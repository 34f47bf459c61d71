// What a server asks of a broadcast before it becomes one, and of its header before rows are selected from it.
//
//   ASSIGN_OR_RETURN(auto if_tensors, CheckBroadcast(*upload, limits));     // When its upload is finished.
//   ASSIGN_OR_RETURN(SafetensorsHeader header, ReadSafetensorsHeader(*blob, limits));
//
// Broadcasts are safetensors files; other bytes are stored and handed out as they are, and no rows are selected from
// them. Reads and parses the header only: O(n log n) for the n bytes of it, of which limits.h allows a few million.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregation/wire/safetensors_header.h"
#include "server/core/limits/limits.h"
#include "storage/blob_view.h"

namespace sheaf {

// The header, if the bytes are a safetensors file within the limits; nothing if they do not look like one: no length of
// a header in front, or no '{' behind that. INVALID_ARGUMENT if the header is malformed or does not fit the file;
// RESOURCE_EXHAUSTED over a limit, naming it; the codes of BlobView.
absl::StatusOr<std::optional<SafetensorsHeader>> CheckBroadcast(const BlobView& bytes, const Limits& limits);

// The same codes; INVALID_ARGUMENT also if it is no such file.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const BlobView& bytes, const Limits& limits);

}  // namespace sheaf
