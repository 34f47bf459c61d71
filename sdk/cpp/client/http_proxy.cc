#include "sdk/cpp/client/http_proxy.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"

namespace sheaf {
namespace {

constexpr char kPortOfProxies[] = "1080";

// The bytes of an address of IPv4 or IPv6; none if it is a name.
std::vector<uint8_t> AddressBytes(const std::string& host) {
  std::vector<uint8_t> bytes(sizeof(in_addr));
  if (inet_pton(AF_INET, host.c_str(), bytes.data()) == 1) return bytes;
  bytes.resize(sizeof(in6_addr));
  if (inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1) return bytes;
  return {};
}

// Whether the first `num_bits` are the same; of two of one size.
bool HaveSamePrefix(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b, size_t num_bits) {
  for (size_t i = 0; i < a.size() && num_bits > 0; ++i) {
    const size_t here = std::min<size_t>(num_bits, 8);
    if ((a[i] ^ b[i]) >> (8 - here) != 0) return false;
    num_bits -= here;
  }
  return true;
}

bool IsInNetwork(const std::string& host, std::string_view network) {
  const size_t slash = network.find('/');
  const std::vector<uint8_t> ours = AddressBytes(host);
  const std::vector<uint8_t> theirs = AddressBytes(std::string(network.substr(0, slash)));
  size_t num_bits = theirs.size() * 8;
  if (slash != std::string_view::npos) {
    const std::string_view digits = network.substr(slash + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), num_bits);
    if (error != std::errc() || end != digits.data() + digits.size() || num_bits > theirs.size() * 8) return false;
  }
  return !ours.empty() && ours.size() == theirs.size() && HaveSamePrefix(ours, theirs, num_bits);
}

// Whether one entry of NO_PROXY is about a host: "*", a name that it has or lies below, an address, or a network.
bool IsAbout(std::string entry, const std::string& host) {
  entry = absl::AsciiStrToLower(entry);
  if (entry == "*") return true;
  if (entry.starts_with('[') && entry.ends_with(']')) entry = entry.substr(1, entry.size() - 2);
  if (IsInNetwork(host, entry)) return true;
  while (entry.starts_with('*') || entry.starts_with('.')) entry.erase(0, 1);
  if (entry.empty() || !host.ends_with(entry)) return false;
  return host.size() == entry.size() || host[host.size() - entry.size() - 1] == '.';
}

bool IsExempt(const std::string& list, const std::string& host) {
  constexpr std::string_view kBetween = ", \t";
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find_first_of(kBetween, begin), list.size());
    if (end > begin && IsAbout(list.substr(begin, end - begin), host)) return true;
    begin = end + 1;
  }
  return false;
}

// A URL cut at "://" and "@".
struct CutUrl {
  std::string_view scheme;
  std::string_view authority;
};

CutUrl Cut(std::string_view url) {
  CutUrl cut;
  if (const size_t end = url.find("://"); end != std::string_view::npos) {
    cut.scheme = url.substr(0, end + 3);
    url.remove_prefix(end + 3);
  }
  url = url.substr(0, url.find_first_of("/?#"));
  cut.authority = url.substr(url.rfind('@') + 1);
  return cut;
}

std::optional<std::string> OfThisProcess(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

}  // namespace

std::string HttpProxy::name() const {
  const CutUrl cut = Cut(url);
  return std::string(cut.scheme.empty() ? "http://" : cut.scheme) + std::string(cut.authority);
}

std::string HttpProxy::target() const {
  const std::string authority(Cut(url).authority);
  const size_t colon = authority.rfind(':');
  const bool has_port = colon != std::string::npos && authority.find(']', colon) == std::string::npos;
  return has_port ? authority : authority + ":" + kPortOfProxies;
}

HttpProxy ProxyFor(const ServerAddress& server,
                   const std::function<std::optional<std::string>(const std::string& name)>& environment) {
  // Two processes of one machine need nobody between them, and a proxy elsewhere would look for the server there.
  if (!server.is_http() || server.is_loopback()) return {};
  const auto find = [&environment](const auto& names) -> std::pair<std::string, std::string> {
    for (const char* name : names) {
      const std::optional<std::string> value = environment(name);
      if (value.has_value() && !value->empty()) return {name, *value};
    }
    return {};
  };
  const bool is_https = server.protocol == ServerAddress::Protocol::kHttps;
  const auto names = is_https ? std::to_array({"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"})
                              : std::to_array({"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"});
  auto [variable, url] = find(names);
  if (url.empty() || IsExempt(find(std::to_array({"no_proxy", "NO_PROXY"})).second, server.host)) return {};
  return {.url = std::move(url), .variable = std::move(variable)};
}

HttpProxy ProxyFor(const ServerAddress& server) { return ProxyFor(server, OfThisProcess); }

std::string FirstHop(const ServerAddress& server) {
  const HttpProxy proxy = ProxyFor(server);
  return proxy.is_used() ? proxy.target() : server.target();
}

}  // namespace sheaf
