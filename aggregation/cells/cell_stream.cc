#include "aggregation/cells/cell_stream.h"

#include <algorithm>

#include "aggregation/cells/make_cells.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

std::unique_ptr<CellVector> MakeChunk(const CellType& type) {
  std::unique_ptr<CellVector> chunk = MakeCells(type, {.size_hint = kCellChunk});
  chunk->Resize(kCellChunk);
  return chunk;
}

}  // namespace

CellStreamWriter::CellStreamWriter(const CellType& type, StateWriter& out) : out_(out), chunk_(MakeChunk(type)) {}

void CellStreamWriter::Append(const CellVector& cells, int64_t at, int64_t count) {
  while (count > 0) {
    const int n = static_cast<int>(std::min<int64_t>(count, kCellChunk - filled_));
    if (n == kCellChunk) {
      cells.WriteChunk(at, n, out_);
    } else {
      cells.AddTo(*chunk_, filled_, at, n);
      filled_ += n;
      if (filled_ == kCellChunk) Finish();
    }
    at += n, count -= n;
  }
}

void CellStreamWriter::Finish() {
  if (filled_ == 0) return;
  chunk_->WriteChunk(0, filled_, out_);
  chunk_->Clear();
  filled_ = 0;
}

CellStreamReader::CellStreamReader(const CellType& type, int64_t total, StateOrigin origin, StateReader& in)
    : in_(in), origin_(origin), left_(total), chunk_(MakeChunk(type)) {}

absl::Status CellStreamReader::Take(int64_t count, CellVector& cells, int64_t at) {
  while (count > 0) {
    if (taken_ == in_chunk_) {
      SHEAF_CHECK(left_ > 0, "more cells are taken than were written");
      chunk_->Clear();
      in_chunk_ = static_cast<int>(std::min<int64_t>(kCellChunk, left_));
      left_ -= in_chunk_;
      taken_ = 0;
      RETURN_IF_ERROR(chunk_->ReadChunk(0, in_chunk_, in_, origin_));
    }
    const int n = static_cast<int>(std::min<int64_t>(count, in_chunk_ - taken_));
    cells.AddFrom(at, *chunk_, taken_, n);
    taken_ += n, at += n, count -= n;
  }
  return absl::OkStatus();
}

absl::Status ReadCells(CellVector& cells, int64_t count, StateReader& in, StateOrigin origin) {
  for (int64_t at = 0; at < count; at += kCellChunk) {
    RETURN_IF_ERROR(cells.ReadChunk(at, static_cast<int>(std::min<int64_t>(kCellChunk, count - at)), in, origin));
  }
  return absl::OkStatus();
}

}  // namespace sheaf
