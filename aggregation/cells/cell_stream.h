// CellStreamWriter: cells of any number of vectors, one after the other in the order of the caller, as canonical bytes:
// chunks of kCellChunk whatever the vectors' own lengths.
//
//   CellStreamWriter written(type, out);
//   written.Append(cells, 0, 100);             // And others, of this vector or another.
//   written.Finish();
//
//   CellStreamReader read(type, 100, origin, in);
//   RETURN_IF_ERROR(read.Take(100, cells, 0));
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "aggregation/cells/cell_type.h"
#include "aggregation/cells/cell_vector.h"

namespace sheaf {

class CellStreamWriter {
 public:
  CellStreamWriter(const CellType& type, StateWriter& out);
  void Append(const CellVector& cells, int64_t at, int64_t count);
  // After the last cell.
  void Finish();

 private:
  StateWriter& out_;
  std::unique_ptr<CellVector> chunk_;
  int filled_ = 0;
};

class CellStreamReader {
 public:
  // `total` cells were written.
  CellStreamReader(const CellType& type, int64_t total, StateOrigin origin, StateReader& in);
  // Takes the next cells into cells at, at + 1, ... of a vector. DATA_LOSS as CellVector::ReadChunk.
  absl::Status Take(int64_t count, CellVector& cells, int64_t at);

 private:
  StateReader& in_;
  StateOrigin origin_;
  int64_t left_;
  std::unique_ptr<CellVector> chunk_;
  int in_chunk_ = 0;
  int taken_ = 0;
};

// The first `count` cells, which must be identities.
absl::Status ReadCells(CellVector& cells, int64_t count, StateReader& in, StateOrigin origin);

}  // namespace sheaf
