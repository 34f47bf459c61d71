#include "server/core/broadcasts/broadcast_check.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr int64_t kPrefixBytes = SafetensorsHeader::kPrefixBytes;

SafetensorsLimits LimitsOf(const Limits& limits) {
  return {.header_bytes_max = limits.safetensors_header_bytes_max,
          .tensors_max = limits.safetensors_tensors_max,
          .name_bytes_max = limits.safetensors_name_bytes_max};
}

// A length that the format allows has three bytes of zeros at least, which text has none of; and every header begins
// with a brace.
bool LooksLikeSafetensors(const std::string& beginning) {
  if (static_cast<int64_t>(beginning.size()) <= kPrefixBytes || beginning[kPrefixBytes] != '{') return false;
  return SafetensorsHeader::TextBytes(beginning, std::numeric_limits<int64_t>::max(), SafetensorsLimits()).ok();
}

}  // namespace

absl::StatusOr<std::optional<SafetensorsHeader>> CheckBroadcast(const BlobView& bytes, const Limits& limits) {
  ASSIGN_OR_RETURN(const std::string beginning, bytes.Read(0, std::min(bytes.size_bytes(), kPrefixBytes + 1)));
  if (!LooksLikeSafetensors(beginning)) return std::nullopt;
  return ReadSafetensorsHeader(bytes, limits);
}

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const BlobView& bytes, const Limits& limits) {
  const SafetensorsLimits allowed = LimitsOf(limits);
  ASSIGN_OR_RETURN(const std::string prefix, bytes.Read(0, std::min(bytes.size_bytes(), kPrefixBytes)));
  ASSIGN_OR_RETURN(const int64_t text_bytes, SafetensorsHeader::TextBytes(prefix, bytes.size_bytes(), allowed));
  ASSIGN_OR_RETURN(const std::string text, bytes.Read(kPrefixBytes, text_bytes));
  return SafetensorsHeader::Parse(text, bytes.size_bytes(), allowed);
}

}  // namespace sheaf
