#include "server/http/file_part.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <system_error>

#include "server/http/content_choice.h"

namespace sheaf {
namespace {

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// Digits, and nothing else; what is too large is the largest.
std::optional<int64_t> Number(std::string_view digits) {
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  int64_t number = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return parsed.ec == std::errc() ? number : std::numeric_limits<int64_t>::max();
}

// Nullopt: the field says nothing that is understood, and is ignored.
std::optional<FilePart> RangeOf(std::string_view range, int64_t size_bytes) {
  constexpr std::string_view kUnit = "bytes=";
  if (!range.starts_with(kUnit)) return std::nullopt;
  range = Trim(range.substr(kUnit.size()));
  const size_t dash = range.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const std::optional<int64_t> first = Number(range.substr(0, dash));
  const std::optional<int64_t> last = Number(range.substr(dash + 1));
  const bool is_suffix = dash == 0;
  const bool is_open = dash + 1 == range.size();
  if (is_suffix ? !last : !first || (!is_open && !last) || (last && *last < *first)) return std::nullopt;

  FilePart part = {.status = 206};
  if (is_suffix) {
    part.length = std::min(*last, size_bytes);
    part.offset = size_bytes - part.length;
  } else if (*first < size_bytes) {
    part.offset = *first;
    part.length = (is_open ? size_bytes - 1 : std::min(*last, size_bytes - 1)) - *first + 1;
  }
  if (part.length == 0) return FilePart{.status = 416};
  return part;
}

}  // namespace

FilePart PartOf(const HttpRequest& request, std::string_view etag, int64_t size_bytes) {
  const std::string_view if_match = request.Header("if-match");
  if (!if_match.empty() && !NamesTag(if_match, etag)) return {.status = 412};
  const std::string_view if_none_match = request.Header("if-none-match");
  if (!if_none_match.empty() && NamesTag(if_none_match, etag)) return {.status = 304};
  const FilePart whole = {.length = size_bytes};
  // Of two ranges in two fields neither is the one.
  if (request.method != HttpMethod::kGet || request.headers.Count("range") != 1) return whole;
  const std::string_view if_range = request.Header("if-range");
  if (!if_range.empty() && if_range != etag) return whole;
  return RangeOf(request.Header("range"), size_bytes).value_or(whole);
}

}  // namespace sheaf
