// MakeCells: the table of cells, one row per way of keeping them.
//
//   const std::unique_ptr<CellVector> cells =
//       MakeCells({.reduction = Reduction::kSum, .dtype = v1::FLOAT32, .numerics = v1::EXACT}, {.size_hint = 1000});
//   cells->Resize(1000);
//
//   reduction      dtype     numerics  implementation  bytes per cell
//   kSum           floats    EXACT     ExactSum        8 per bin: one for most FLOAT32, two for FLOAT64 and weighted
//                                      in rows: ExactRows, which also keeps rows that one addend reached as they came
//   kSum           floats    F64, F32  FloatSum        8, 4
//                                      in rows: FloatRows, the same
//   kSum           integers  any       IntegerSum      16
//   kMin, kMax     all       any       Extremum        4 or 8
//   kCountNonzero  all       any       NonzeroCount    8
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "aggregation/cells/cell_type.h"
#include "aggregation/cells/cell_vector.h"
#include "aggregation/memory/zeroed_pool.h"

namespace sheaf {

struct CellUse {
  // How many cells there will be, if known; small vectors take small blocks.
  std::optional<int64_t> size_hint;
  // Cells are added and released in rows of so many, if they are not scattered.
  int64_t row_width = 1;
  // Cells are mostly touched one by one, and are fewer than 2^32.
  bool is_scattered = false;
  // Memory for cells that will not grow again; must outlive them. Null: their own.
  ZeroedPool* pool = nullptr;
};
std::unique_ptr<CellVector> MakeCells(const CellType& type, const CellUse& use);

}  // namespace sheaf
