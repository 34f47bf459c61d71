#include "base/utf8.h"

#include <algorithm>
#include <cstdint>

namespace sheaf {
namespace {

// The length of the character that `text` begins with; 0 if it begins with none.
size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what lies beyond Unicode.
  const uint8_t second = byte(1);
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) || (first == 0xf0 && second < 0x90) ||
      (first == 0xf4 && second > 0x8f)) {
    return 0;
  }
  return length;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string CutUtf8(std::string_view text, size_t bytes_max) {
  std::string kept;
  kept.reserve(std::min(text.size(), bytes_max));
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    if (kept.size() + std::max<size_t>(length, 1) > bytes_max) break;
    length == 0 ? kept.push_back('?') : static_cast<void>(kept.append(text.substr(0, length)));
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return kept;
}

}  // namespace sheaf
