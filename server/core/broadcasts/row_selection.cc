#include "server/core/broadcasts/row_selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "base/status_macros.h"

namespace sheaf {
namespace {

// A message may be this many times as large as it should be, if a single row is.
constexpr int64_t kLargeRowFactor = 4;
// Rows copied together.
constexpr int64_t kBatch = 512;
// Pieces of one answer: each takes some hundred bytes beside its rows, and a selection of nothing has one, too.
constexpr int kPiecesMax = 4096;

// One selection and its tensor.
struct Selected {
  const TensorEntry* tensor = nullptr;
  const v1::RowSelection* selection = nullptr;

  int64_t num_rows() const { return selection->all() ? tensor->num_rows() : selection->rows_size(); }
};

// Where the next answer begins: a row (a position, not an index) of a selection.
struct Cursor {
  int32_t selection = 0;
  int64_t row = 0;
};

template <typename Number>
bool ParseWhole(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0;
}

absl::StatusOr<Cursor> ParseCursor(const std::string& text, const std::vector<Selected>& selected) {
  Cursor cursor;
  if (text.empty()) return cursor;
  const size_t colon = text.find(':');
  if (colon == std::string::npos || !ParseWhole(std::string_view(text).substr(0, colon), cursor.selection) ||
      !ParseWhole(std::string_view(text).substr(colon + 1), cursor.row) ||
      cursor.selection >= static_cast<int64_t>(selected.size()) ||
      cursor.row >= std::max<int64_t>(selected[static_cast<size_t>(cursor.selection)].num_rows(), 1)) {
    return absl::InvalidArgumentError(
        "the cursor is not from an answer to this request; start again with an empty one");
  }
  return cursor;
}

absl::StatusOr<Selected> FindTensor(const SafetensorsHeader& header, const v1::RowSelection& selection,
                                    int64_t bytes_max) {
  ASSIGN_OR_RETURN(const TensorEntry* tensor, header.Find(selection.tensor()));
  if (tensor->dtype == v1::DTYPE_UNSPECIFIED) {
    return absl::FailedPreconditionError(
        fmt::format("tensor {} has a dtype of which no rows can be selected; read the blob in ranges", tensor->name));
  }
  if (tensor->row_bytes() / kLargeRowFactor > bytes_max) {
    return absl::ResourceExhaustedError(
        fmt::format("a row of tensor {} has {} bytes, too many for one message; read the blob in ranges", tensor->name,
                    tensor->row_bytes()));
  }
  return Selected{.tensor = tensor, .selection = &selection};
}

// Rows [first, first + count) of the selection.
absl::Status CheckRows(const Selected& selected, int64_t first, int64_t count) {
  if (selected.selection->all()) return absl::OkStatus();
  const int64_t num_rows = selected.tensor->num_rows();
  for (int64_t i = first; i < first + count; ++i) {
    const int64_t row = selected.selection->rows(static_cast<int>(i));
    if (0 <= row && row < num_rows) continue;
    return absl::OutOfRangeError(fmt::format("row {} (at position {}) is not in tensor {}, which has {} rows", row, i,
                                             selected.tensor->name, num_rows));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Selected>> FindTensors(const SafetensorsHeader& header, const v1::SelectRowsRequest& request,
                                                  int64_t bytes_max) {
  std::vector<Selected> selected;
  selected.reserve(static_cast<size_t>(request.selections_size()));
  for (const v1::RowSelection& selection : request.selections()) {
    ASSIGN_OR_RETURN(const Selected found, FindTensor(header, selection, bytes_max));
    selected.push_back(found);
  }
  return selected;
}

// Rows [first, first + count) of the selection, which were checked.
absl::Status FillRows(const Selected& selected, const BlobView& blob, int64_t first, int64_t count, v1::Tensor& rows) {
  const TensorEntry& tensor = *selected.tensor;
  rows.set_dtype(tensor.dtype);
  rows.add_shape(count);
  for (size_t d = 1; d < tensor.shape.size(); ++d) rows.add_shape(tensor.shape[d]);
  const int64_t row_bytes = tensor.row_bytes();
  std::string& data = *rows.mutable_data();
  if (row_bytes == 0 || count == 0) return absl::OkStatus();
  data.reserve(static_cast<size_t>(count * row_bytes));
  if (selected.selection->all()) {
    const ByteRange range = {.offset = tensor.begin + first * row_bytes, .length = count * row_bytes};
    return blob.Append({&range, 1}, data);
  }
  std::array<ByteRange, kBatch> ranges;
  for (int64_t begin = first; begin < first + count; begin += kBatch) {
    const int64_t n = std::min(kBatch, first + count - begin);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = selected.selection->rows(static_cast<int>(begin + i));
      ranges[static_cast<size_t>(i)] = {.offset = tensor.begin + row * row_bytes, .length = row_bytes};
    }
    RETURN_IF_ERROR(blob.Append({ranges.data(), static_cast<size_t>(n)}, data));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::SelectRowsResponse> SelectRowsOf(const SafetensorsHeader& header, const BlobView& blob,
                                                    const v1::SelectRowsRequest& request, int64_t bytes_max) {
  ASSIGN_OR_RETURN(const std::vector<Selected> selected, FindTensors(header, request, bytes_max));
  ASSIGN_OR_RETURN(Cursor cursor, ParseCursor(request.cursor(), selected));
  if (request.cursor().empty()) {
    for (const Selected& each : selected) RETURN_IF_ERROR(CheckRows(each, 0, each.num_rows()));
  }

  v1::SelectRowsResponse response;
  int64_t bytes_left = bytes_max;
  for (; cursor.selection < static_cast<int32_t>(selected.size()); ++cursor.selection, cursor.row = 0) {
    if (response.pieces_size() == kPiecesMax) {
      response.set_next_cursor(fmt::format("{}:{}", cursor.selection, cursor.row));
      break;
    }
    const Selected& current = selected[static_cast<size_t>(cursor.selection)];
    const int64_t left = current.num_rows() - cursor.row;
    const int64_t row_bytes = current.tensor->row_bytes();
    const int64_t fitting = row_bytes == 0 ? left : bytes_left / row_bytes;
    const int64_t count = std::min(left, response.pieces().empty() ? std::max<int64_t>(fitting, 1) : fitting);
    if (count > 0 || left == 0) {
      // A cursor may be anybody's.
      if (!request.cursor().empty()) RETURN_IF_ERROR(CheckRows(current, cursor.row, count));
      v1::SelectRowsResponse::Piece& piece = *response.add_pieces();
      piece.set_selection(cursor.selection);
      piece.set_first_row(cursor.row);
      RETURN_IF_ERROR(FillRows(current, blob, cursor.row, count, *piece.mutable_rows()));
      bytes_left -= count * row_bytes;
    }
    if (count < left) {
      response.set_next_cursor(fmt::format("{}:{}", cursor.selection, cursor.row + count));
      break;
    }
  }
  return response;
}

}  // namespace sheaf
