// SelectRowsOf: rows of a broadcast's tensors, a message at a time.
//
//   do {
//     ASSIGN_OR_RETURN(v1::SelectRowsResponse page, SelectRowsOf(header, blob, request, limits.chunk_bytes_max));
//     request.set_cursor(page.next_cursor());
//   } while (!request.cursor().empty());
//
// Every selection is answered by at least one piece, also if it is empty, so that the asker learns dtype and shape. A
// page also ends with some thousand pieces: those of very many selections of nothing would be large without it.
//
// A page takes time for its own bytes, and for its request's: the rows of a request are checked with its first page,
// and after that only those that a page copies.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "aggregation/wire/safetensors_header.h"
#include "sheaf/v1/blob_service.pb.h"
#include "storage/blob_view.h"

namespace sheaf {

// About `bytes_max` of rows from the cursor on, but one row at least. The whole request is checked before anything is
// copied for its first page: NOT_FOUND if there is no such tensor; FAILED_PRECONDITION if its dtype is not known here;
// OUT_OF_RANGE if a row is not in it; RESOURCE_EXHAUSTED if a row alone is larger than four times `bytes_max`;
// INVALID_ARGUMENT if the cursor is not one of this request. The codes of BlobView. `header` is that of `blob`.
absl::StatusOr<v1::SelectRowsResponse> SelectRowsOf(const SafetensorsHeader& header, const BlobView& blob,
                                                    const v1::SelectRowsRequest& request, int64_t bytes_max);

}  // namespace sheaf
