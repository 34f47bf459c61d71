#include "workloads/client_selector.h"

#include <fmt/format.h>

#include <charconv>

namespace sheaf {

std::string ClientSelector(int client) { return fmt::format("client:{}", client); }

absl::StatusOr<int> ParseClientSelector(std::string_view selector, int num_clients) {
  constexpr std::string_view kPrefix = "client:";
  int client = -1;
  if (selector.substr(0, kPrefix.size()) == kPrefix) {
    const char* end = selector.data() + selector.size();
    const auto [stop, error] = std::from_chars(selector.data() + kPrefix.size(), end, client);
    if (error != std::errc() || stop != end) client = -1;
  }
  if (client < 0 || client >= num_clients) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" selects no data: this dataset has client:0 to client:{}",
                                                  selector.substr(0, 64), num_clients - 1));
  }
  return client;
}

}  // namespace sheaf
