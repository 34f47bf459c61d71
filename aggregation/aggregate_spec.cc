#include "aggregation/aggregate_spec.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>

#include "aggregation/operators.h"
#include "aggregation/sparse/sparse_block.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {

absl::StatusOr<std::vector<OutputLayout>> LayoutsOf(const v1::AggregateSpec& spec,
                                                    std::span<const Operator> operators) {
  if (spec.outputs().empty()) {
    return absl::InvalidArgumentError(
        "the aggregate has no outputs; name at least one with its operator, dtype and shape");
  }
  if (!v1::Numerics_IsValid(spec.numerics())) {
    return absl::InvalidArgumentError("the numerics are unknown; use EXACT, which is the default, F64 or F32");
  }
  std::vector<OutputLayout> layouts;
  std::set<std::string> released;
  for (const v1::OutputSpec& output : spec.outputs()) {
    ASSIGN_OR_RETURN(OutputLayout layout, OutputLayout::FromSpec(output, spec.numerics(), operators));
    for (const std::string& name : layout.ReleasedNames()) {
      if (released.insert(name).second) continue;
      return absl::InvalidArgumentError(
          fmt::format("output '{}': another output also releases a tensor named '{}'; rename one", layout.name, name));
    }
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

absl::Status ValidateAggregateSpec(const v1::AggregateSpec& spec) { return LayoutsOf(spec, Operators()).status(); }

std::vector<int64_t> EstimateStateBytes(const v1::AggregateSpec& spec) {
  const absl::StatusOr<std::vector<OutputLayout>> layouts = LayoutsOf(spec, Operators());
  SHEAF_CHECK(layouts.ok(), "{}", layouts.status().ToString());
  std::vector<int64_t> bytes;
  for (const OutputLayout& layout : *layouts) {
    // Rows of no values come one by one, as those of sparse results.
    const bool is_full = layout.releases_dense && layout.width > 0;
    const int64_t slot_bytes = layout.op->operand == Operand::kSparse ? SlotBytes(layout) : 0;
    const int64_t coordinate_bytes = layout.width * CellBytes(layout.cell_type()) + slot_bytes;
    bytes.push_back(is_full ? layout.num_coordinates * coordinate_bytes : 0);
  }
  return bytes;
}

}  // namespace sheaf
