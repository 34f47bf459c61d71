// SelectRowsOf: rows of a broadcast's tensors, a message at a time.
//
//   v1::SelectRowsRequest request = ...;
//   do {
//     ASSIGN_OR_RETURN(v1::SelectRowsResponse page, SelectRowsOf(tensors, request, limits.chunk_bytes_max));
//     request.set_cursor(page.next_cursor());
//   } while (!request.cursor().empty());
//
// Every selection is answered by at least one piece, also if it is empty, so that the asker learns dtype and shape.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "aggregation/safetensors.h"
#include "sheaf/v1/blob_service.pb.h"

namespace sheaf {

// About `bytes_max` of rows from the cursor on, but one row at least. The whole request is checked before anything is
// copied: NOT_FOUND if there is no such tensor; OUT_OF_RANGE if a row is not in it; RESOURCE_EXHAUSTED if a row alone
// is larger than four times `bytes_max`; INVALID_ARGUMENT if the cursor is not one of this request.
absl::StatusOr<v1::SelectRowsResponse> SelectRowsOf(const SafetensorsView& tensors,
                                                    const v1::SelectRowsRequest& request, int64_t bytes_max);

}  // namespace sheaf
