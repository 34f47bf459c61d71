#include "server/http/http_message.h"

#include <algorithm>
#include <array>
#include <utility>

namespace sheaf {
namespace {

constexpr auto kReasons = std::to_array<std::pair<int, std::string_view>>({
    {200, "OK"},
    {204, "No Content"},
    {206, "Partial Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {412, "Precondition Failed"},
    {411, "Length Required"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
});

char ToLower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

void HttpHeaders::Add(std::string_view name, std::string_view value) {
  fields_.push_back({.begin = static_cast<uint32_t>(bytes_.size()),
                     .name_size = static_cast<uint32_t>(name.size()),
                     .value_size = static_cast<uint32_t>(value.size())});
  std::transform(name.begin(), name.end(), std::back_inserter(bytes_), ToLower);
  bytes_.append(value);
}

std::string_view HttpHeaders::Find(std::string_view name) const {
  const auto found = std::find_if(fields_.begin(), fields_.end(), [&](const Field& f) { return NameOf(f) == name; });
  return found == fields_.end() ? std::string_view() : ValueOf(*found);
}

size_t HttpHeaders::Count(std::string_view name) const {
  return static_cast<size_t>(
      std::count_if(fields_.begin(), fields_.end(), [&](const Field& f) { return NameOf(f) == name; }));
}

std::string_view HttpReason(int status) {
  const auto found =
      std::find_if(kReasons.begin(), kReasons.end(), [&](const auto& row) { return row.first == status; });
  return found == kReasons.end() ? "Unknown" : found->second;
}

}  // namespace sheaf
