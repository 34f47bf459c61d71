#include "server/http/content_choice.h"

#include <algorithm>
#include <cstddef>

namespace sheaf {
namespace {

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Takes what is before the first `separator`, or all, off `text`.
std::string_view TakePart(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = Trimmed(text.substr(0, end));
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

bool IsSame(std::string_view a, std::string_view lower_case) {
  return std::equal(a.begin(), a.end(), lower_case.begin(), lower_case.end(),
                    [](char x, char y) { return (x >= 'A' && x <= 'Z' ? static_cast<char>(x - 'A' + 'a') : x) == y; });
}

// Of the parameters behind a coding: "q=0", "q=0.000".
bool IsRefused(std::string_view parameters) {
  while (!parameters.empty()) {
    std::string_view parameter = TakePart(parameters, ';');
    if (!IsSame(TakePart(parameter, '='), "q")) continue;
    return !parameter.empty() && Trimmed(parameter).find_first_not_of("0.") == std::string_view::npos;
  }
  return false;
}

}  // namespace

bool NamesTag(std::string_view list, std::string_view etag) {
  if (Trimmed(list) == "*") return true;
  // A tag may have commas in it: it ends with its quote.
  while (true) {
    const size_t begin = list.find('"');
    if (begin == std::string_view::npos) return false;
    const size_t end = list.find('"', begin + 1);
    if (end == std::string_view::npos) return false;
    if (list.substr(begin, end - begin + 1) == etag) return true;
    list.remove_prefix(end + 1);
  }
}

bool AcceptsGzip(std::string_view accept_encoding) {
  bool takes_others = false;
  while (!accept_encoding.empty()) {
    std::string_view parameters = TakePart(accept_encoding, ',');
    const std::string_view coding = TakePart(parameters, ';');
    if (IsSame(coding, "gzip") || IsSame(coding, "x-gzip")) return !IsRefused(parameters);
    if (coding == "*") takes_others = !IsRefused(parameters);
  }
  return takes_others;
}

}  // namespace sheaf
