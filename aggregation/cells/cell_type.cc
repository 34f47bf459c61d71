#include "aggregation/cells/cell_type.h"

namespace sheaf {

int64_t CellBytes(const CellType& type) {
  const bool is_float = type.dtype == v1::FLOAT32 || type.dtype == v1::FLOAT64;
  if (type.reduction == Reduction::kCountNonzero) return 8;
  if (type.reduction != Reduction::kSum) return type.dtype == v1::FLOAT32 || type.dtype == v1::INT32 ? 4 : 8;
  if (!is_float) return 16;
  if (type.numerics == v1::F64) return 8;
  if (type.numerics == v1::F32) return 4;
  // One or two bins for FLOAT32; the 53 bits of FLOAT64 always lie in two.
  return 16;
}

}  // namespace sheaf
