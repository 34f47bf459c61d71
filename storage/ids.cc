#include "storage/ids.h"

#include <fmt/format.h>

#include <charconv>

namespace sheaf {

std::string TaskId::ToString() const { return fmt::format("{}/{}", round, index); }

std::optional<TaskId> TaskId::Parse(std::string_view text) {
  size_t slash = text.rfind('/');
  if (slash == std::string_view::npos || slash == 0) return std::nullopt;
  std::string_view digits = text.substr(slash + 1);
  bool has_leading_zero = digits.size() > 1 && digits[0] == '0';
  if (digits.empty() || digits[0] == '-' || has_leading_zero) return std::nullopt;
  int32_t index = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return TaskId{RoundId(text.substr(0, slash)), index};
}

}  // namespace sheaf
