#include "workloads/brute_force.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "aggregation/reference.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

void Note(std::string sentence, int64_t num_mismatches, Verification& verification) {
  if (verification.first_mismatch.empty()) verification.first_mismatch = std::move(sentence);
  verification.num_mismatches += num_mismatches;
}

// Compares one released tensor with what it should be, element by element.
void Compare(const NamedTensor& expected, const SafetensorsView& aggregate, Verification& verification) {
  const size_t width = static_cast<size_t>(DTypeSize(expected.dtype));
  const int64_t num_values = static_cast<int64_t>(expected.data.size() / width);
  verification.num_values += num_values;
  const absl::StatusOr<const TensorView*> found = aggregate.Find(expected.name);
  if (!found.ok()) {
    return Note(fmt::format("tensor \"{}\" was not released", expected.name), std::max<int64_t>(num_values, 1),
                verification);
  }
  const TensorView& released = **found;
  if (released.dtype != expected.dtype || released.shape != expected.shape) {
    return Note(fmt::format("tensor \"{}\" has another type or shape", expected.name), std::max<int64_t>(num_values, 1),
                verification);
  }
  for (int64_t i = 0; i < num_values; ++i) {
    const std::string_view value = std::string_view(expected.data).substr(i * width, width);
    if (released.data.substr(i * width, width) != value) {
      Note(fmt::format("tensor \"{}\" differs at element {}", expected.name, i), 1, verification);
    }
  }
}

}  // namespace

absl::StatusOr<Verification> VerifyByBruteForce(const v1::AggregateSpec& spec,
                                                std::span<const v1::Contribution> contributions,
                                                const SafetensorsView& aggregate) {
  ASSIGN_OR_RETURN(const AggregateReport expected, ReferenceAggregate(spec, contributions));

  Verification verification;
  std::set<std::string_view> names;
  for (const NamedTensor& tensor : expected.tensors) {
    names.insert(tensor.name);
    Compare(tensor, aggregate, verification);
  }
  for (const TensorView& tensor : aggregate.tensors()) {
    if (!names.contains(tensor.name))
      Note(fmt::format("tensor \"{}\" should not be there", tensor.name), 1, verification);
  }
  return verification;
}

}  // namespace sheaf
