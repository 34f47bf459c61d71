// TraceParent: the header `traceparent` of W3C Trace Context (https://www.w3.org/TR/trace-context/): which trace a call
// belongs to, and which of its spans made it.
//
//   const std::optional<TraceParent> trace =
//       TraceParent::Parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
//   trace->trace_id;       // "4bf92f3577b34da6a3ce929d0e0e4736"
//
// Refers to the header's text. A value.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>

namespace sheaf {

struct TraceParent {
  static constexpr char kHeader[] = "traceparent";

  // 32 and 16 digits, lower-case hex, neither all zeros.
  std::string_view trace_id;
  std::string_view parent_id;

  // Nothing if the text is no valid header. Of a later version the parts that this one knows.
  static std::optional<TraceParent> Parse(std::string_view text) {
    constexpr size_t kLength = 55;
    if (text.size() < kLength || text[2] != '-' || text[35] != '-' || text[52] != '-') return std::nullopt;
    const std::string_view version = text.substr(0, 2);
    const bool is_longer = text.size() > kLength;
    if (is_longer && (version == "00" || text[kLength] != '-')) return std::nullopt;
    const TraceParent parsed{.trace_id = text.substr(3, 32), .parent_id = text.substr(36, 16)};
    for (const std::string_view part : {version, parsed.trace_id, parsed.parent_id, text.substr(53, 2)}) {
      if (!std::all_of(part.begin(), part.end(), IsHex)) return std::nullopt;
    }
    if (version == "ff" || IsZero(parsed.trace_id) || IsZero(parsed.parent_id)) return std::nullopt;
    return parsed;
  }

 private:
  static bool IsHex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }
  static bool IsZero(std::string_view digits) { return digits.find_first_not_of('0') == std::string_view::npos; }
};

}  // namespace sheaf
