// Contributions to measure with: made once, outside every timer, from fixed seeds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

struct SparseShape {
  // Coordinates (or rows) there are; contributions; entries (or rows) of each; values at each.
  int64_t dimension = 0;
  int num_contributions = 0;
  int64_t entries = 0;
  int64_t width = 1;
  // Indices follow a Zipf law of exponent 1 rather than a uniform one.
  bool is_zipf = false;
};

// The same entries in two forms: what workers send, and what a numeric library is given.
struct SparseInput {
  SparseShape shape;
  std::vector<v1::Contribution> contributions;
  // Of all contributions, one after the other. Empty for rows: their values repeat.
  std::vector<int64_t> indices;
  std::vector<float> values;

  int64_t num_entries() const { return shape.num_contributions * shape.entries; }
};

// Remembers what it made: several benchmarks share an input.
const SparseInput& MakeSparseInput(const SparseShape& shape);
v1::Contribution MakeDenseInput(int64_t elements);

// Does with the pieces of a result what a server does, but for the system call; or nothing.
absl::Status Copy(std::string_view piece);
absl::Status Take(std::string_view piece);

v1::AggregateSpec MakeSpec(const std::string& op, const std::vector<int64_t>& dense_shape, v1::Numerics numerics);

}  // namespace sheaf
