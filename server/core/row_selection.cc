#include "server/core/row_selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "base/status_macros.h"

namespace sheaf {
namespace {

// A message may be this many times as large as it should be, if a single row is.
constexpr int64_t kLargeRowFactor = 4;

// One selection, checked.
struct Selected {
  const TensorView* tensor = nullptr;
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
      cursor.row >= selected[static_cast<size_t>(cursor.selection)].num_rows()) {
    return absl::InvalidArgumentError(
        "the cursor is not from an answer to this request; start again with an empty one");
  }
  return cursor;
}

absl::StatusOr<Selected> CheckSelection(const SafetensorsView& tensors, const v1::RowSelection& selection,
                                        int64_t bytes_max) {
  Selected selected = {.selection = &selection};
  ASSIGN_OR_RETURN(selected.tensor, tensors.Find(selection.tensor()));
  const TensorView& tensor = *selected.tensor;
  if (tensor.row_bytes() / kLargeRowFactor > bytes_max) {
    return absl::ResourceExhaustedError(
        fmt::format("a row of tensor {} has {} bytes, too many for one message; read the blob in ranges", tensor.name,
                    tensor.row_bytes()));
  }
  if (selection.all()) return selected;
  for (int i = 0; i < selection.rows_size(); ++i) {
    if (selection.rows(i) < 0 || selection.rows(i) >= tensor.num_rows()) {
      return absl::OutOfRangeError(fmt::format("row {} (at position {}) is not in tensor {}, which has {} rows",
                                               selection.rows(i), i, tensor.name, tensor.num_rows()));
    }
  }
  return selected;
}

absl::StatusOr<std::vector<Selected>> CheckSelections(const SafetensorsView& tensors,
                                                      const v1::SelectRowsRequest& request, int64_t bytes_max) {
  std::vector<Selected> selected;
  for (const v1::RowSelection& selection : request.selections()) {
    ASSIGN_OR_RETURN(Selected checked, CheckSelection(tensors, selection, bytes_max));
    selected.push_back(checked);
  }
  return selected;
}

// Rows [first, first + count) of the selection.
void FillRows(const Selected& selected, int64_t first, int64_t count, v1::Tensor& rows) {
  const TensorView& tensor = *selected.tensor;
  rows.set_dtype(tensor.dtype);
  rows.add_shape(count);
  for (size_t d = 1; d < tensor.shape.size(); ++d) rows.add_shape(tensor.shape[d]);
  const auto row_bytes = static_cast<size_t>(tensor.row_bytes());
  std::string& data = *rows.mutable_data();
  if (selected.selection->all()) {
    data.assign(tensor.data.substr(static_cast<size_t>(first) * row_bytes, static_cast<size_t>(count) * row_bytes));
    return;
  }
  if (row_bytes == 0) return;
  data.reserve(static_cast<size_t>(count) * row_bytes);
  for (int64_t i = first; i < first + count; ++i) {
    const auto row = static_cast<size_t>(selected.selection->rows(static_cast<int>(i)));
    data.append(tensor.data.substr(row * row_bytes, row_bytes));
  }
}

}  // namespace

absl::StatusOr<v1::SelectRowsResponse> SelectRowsOf(const SafetensorsView& tensors,
                                                    const v1::SelectRowsRequest& request, int64_t bytes_max) {
  ASSIGN_OR_RETURN(const std::vector<Selected> selected, CheckSelections(tensors, request, bytes_max));
  ASSIGN_OR_RETURN(Cursor cursor, ParseCursor(request.cursor(), selected));

  v1::SelectRowsResponse response;
  int64_t bytes_left = bytes_max;
  for (; cursor.selection < static_cast<int32_t>(selected.size()); ++cursor.selection, cursor.row = 0) {
    const Selected& current = selected[static_cast<size_t>(cursor.selection)];
    const int64_t left = current.num_rows() - cursor.row;
    const int64_t row_bytes = current.tensor->row_bytes();
    const int64_t fitting = row_bytes == 0 ? left : bytes_left / row_bytes;
    const int64_t count = std::min(left, response.pieces().empty() ? std::max<int64_t>(fitting, 1) : fitting);
    if (count > 0 || left == 0) {
      v1::SelectRowsResponse::Piece& piece = *response.add_pieces();
      piece.set_selection(cursor.selection);
      piece.set_first_row(cursor.row);
      FillRows(current, cursor.row, count, *piece.mutable_rows());
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
