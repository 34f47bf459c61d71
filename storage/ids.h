// The names of what the store keeps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/id.h"

namespace sheaf {

using RoundId = StrongId<struct RoundIdTag>;
using LeaseToken = StrongId<struct LeaseTokenTag>;
using WorkerName = StrongId<struct WorkerNameTag>;
using TokenId = StrongId<struct TokenIdTag>;
using UploadId = StrongId<struct UploadIdTag>;

// A task is the index-th of its round; in text "r-7k2m9q4x/17".
struct TaskId {
  RoundId round;
  int32_t index = 0;

  std::string ToString() const;
  // Nothing if `text` is not "<round>/<index>".
  static std::optional<TaskId> Parse(std::string_view text);

  friend auto operator<=>(const TaskId&, const TaskId&) = default;  // NOLINT(modernize-use-nullptr)
  friend bool operator==(const TaskId&, const TaskId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const TaskId& id) {
    return H::combine(std::move(h), id.round, id.index);
  }
};

}  // namespace sheaf
