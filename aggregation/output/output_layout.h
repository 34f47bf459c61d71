// OutputLayout: an OutputSpec that was checked, with what follows from it worked out.
//
//   ASSIGN_OR_RETURN(OutputLayout layout, OutputLayout::FromSpec(output, v1::EXACT, operators));
//
// A value type.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregation/cells/cell_type.h"
#include "aggregation/output/operator.h"
#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

// Most elements of a dense output, and of one row of a sparse one: 1 GiB of float32.
inline constexpr int64_t kDenseElementsMax = int64_t{1} << 28;
// Characters of an output's name.
inline constexpr size_t kOutputNameCharactersMax = 128;
// Bytes of one string key.
inline constexpr int64_t kKeyBytesMax = 1024;

struct OutputLayout {
  std::string name;
  const Operator* op = nullptr;
  // Of the values contributed.
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  // Never UNSPECIFIED.
  v1::Numerics numerics = v1::EXACT;
  std::vector<int64_t> shape;
  // How many leading dimensions indices address; 0 for dense and keyed operators.
  int index_dims = 0;
  // Coordinates that indices can address (product of the leading dimensions); 1 for dense and keyed operators.
  int64_t num_coordinates = 1;
  // Elements at one coordinate or key (product of the others); all of them for dense operators.
  int64_t width = 0;
  // Keyed operators only.
  v1::KeyType key_type = v1::KEY_TYPE_UNSPECIFIED;
  bool releases_dense = true;
  int64_t min_contributors = 0;
  int64_t nnz_max = 0;
  bool drop_zeros = false;
  bool propagates_non_finite = false;

  // `table` holds the operators there are; the layout points into it. INVALID_ARGUMENT naming the output, the operator
  // and the reason.
  static absl::StatusOr<OutputLayout> FromSpec(const v1::OutputSpec& spec, v1::Numerics numerics,
                                               std::span<const Operator> table);

  CellType cell_type() const { return {.reduction = op->reduction, .dtype = dtype, .numerics = numerics}; }
  // Of the values released.
  v1::DType released_dtype() const { return cell_type().released_dtype(); }
  // Of floats, without any rounding before the release.
  bool is_exact_sum() const;
  // True if the state counts, at each coordinate or key, the clients that touched it.
  bool counts_contributors() const;

  // Sizes of the dimensions that indices address, and of the rest.
  std::span<const int64_t> leading_dims() const { return std::span(shape).first(static_cast<size_t>(index_dims)); }
  std::span<const int64_t> trailing_dims() const { return std::span(shape).subspan(static_cast<size_t>(index_dims)); }
  // "w[3, 17]": the element `offset` of the row at a linear coordinate.
  std::string ElementName(int64_t coordinate, int64_t offset) const;
  // How many of these released values come before the first that is not finite, where none may be: all, unless they are
  // sums of floats, or means, and the spec does not let NaN and infinities propagate.
  int64_t NumFitting(const char* values, int64_t count) const;
  // "w[3, 17]: the sum does not fit into INT32; ...": OUT_OF_RANGE, saying what helps. `element` names it.
  absl::Status Misfit(std::string_view element) const;
  // Names the output, operator, types and shape: states of equal signatures can be merged.
  std::string Signature() const;
  // Names of the tensors it releases.
  std::vector<std::string> ReleasedNames() const;
};

// A key for messages: unprintable bytes escaped, long ones cut.
std::string KeyText(std::string_view key);

}  // namespace sheaf
