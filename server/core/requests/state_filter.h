// The states that a list is asked for, as numbers that may come from a newer client, or from anybody.
//
//   ASSIGN_OR_RETURN(params.states, ParseStates<RoundState>(request.states(), *v1::RoundState_descriptor()));
#pragma once

#include <fmt/format.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/repeated_field.h"

namespace sheaf {

// INVALID_ARGUMENT naming the first of `numbers` that is none of `known`'s values.
template <typename State>
absl::StatusOr<std::vector<State>> ParseStates(const google::protobuf::RepeatedField<int>& numbers,
                                               const google::protobuf::EnumDescriptor& known) {
  std::vector<State> states;
  for (const int number : numbers) {
    if (known.FindValueByNumber(number) == nullptr) {
      return absl::InvalidArgumentError(fmt::format("states has {}, which is no {}", number, known.name()));
    }
    states.push_back(static_cast<State>(number));
  }
  return states;
}

}  // namespace sheaf
