#include "sdk/cpp/client/server_address.h"

#include <catch2/catch.hpp>
#include <map>

#include "sdk/cpp/client/channel_options.h"
#include "sdk/cpp/client/http_proxy.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("An address is gRPC's unless it is a URL") {
  struct Row {
    std::string text;
    ServerAddress::Protocol protocol;
    std::string target;
    std::string url;
  };
  using enum ServerAddress::Protocol;
  for (const Row& row :
       {Row{"sheaf.example.org:7433", kGrpc, "sheaf.example.org:7433", ""},
        Row{"127.0.0.1:0", kGrpc, "127.0.0.1:0", ""}, Row{"[::1]:7433", kGrpc, "[::1]:7433", ""},
        Row{"http:7433", kGrpc, "http:7433", ""}, Row{"unix:/run/sheafd.sock", kGrpc, "unix:/run/sheafd.sock", ""},
        Row{"dns:///sheaf:7433", kGrpc, "dns:///sheaf:7433", ""},
        Row{"http://edge:7434", kHttp, "edge:7434", "http://edge:7434"},
        Row{"http://edge", kHttp, "edge:80", "http://edge:80"},
        Row{"https://edge", kHttps, "edge:443", "https://edge:443"},
        Row{"HTTPS://Edge.Example.org/", kHttps, "edge.example.org:443", "https://edge.example.org:443"},
        Row{"https://edge:1/sheaf/a/", kHttps, "edge:1", "https://edge:1/sheaf/a"},
        Row{"http://[::1]:7434", kHttp, "[::1]:7434", "http://[::1]:7434"}}) {
    INFO(row.text);
    const absl::StatusOr<ServerAddress> address = ParseServerAddress(row.text);
    INFO(address.status().ToString());
    REQUIRE(address.ok());
    CHECK(address->protocol == row.protocol);
    CHECK(address->target() == row.target);
    if (address->is_http()) CHECK(address->url() == row.url);
  }
}

TEST_CASE("The part of an address that is wrong is named") {
  for (const auto& [text, what] : std::map<std::string, std::string>{{"nowhere", "no port"},
                                                                     {"", "no port"},
                                                                     {":7433", "no host"},
                                                                     {"edge:", "\"\" is no port"},
                                                                     {"edge:http", "\"http\" is no port"},
                                                                     {"edge:65536", "\"65536\" is no port"},
                                                                     {"http:/edge:1", "brackets"},
                                                                     {"::1:7433", "brackets"},
                                                                     {"htps://edge", "htps:// is neither"},
                                                                     {"ftp://edge", "ftp:// is neither"},
                                                                     {"http://edge:99999", "Port number"},
                                                                     {"http://edge:x", "Port number"},
                                                                     {"http://", "host"},
                                                                     {"http://a b", "Bad hostname"},
                                                                     {"https://edge?x=1", "\"?\""},
                                                                     {"https://edge#x", "\"#\""}}) {
    INFO(text);
    const absl::Status status = ParseServerAddress(text).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(status.message()), Contains(what) && Contains("http://HOST:PORT"));
  }
}

TEST_CASE("A password in an address is refused without being shown") {
  const absl::Status status = ParseServerAddress("https://me:secret@edge").status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Contains("--token-file") && !Contains("secret"));
}

TEST_CASE("Only what nobody else can have is an address of this machine") {
  for (const std::string text : {"127.0.0.1:1", "127.8.9.1:1", "localhost:1", "[::1]:1", "unix:/run/s",
                                 "http://localhost", "https://127.0.0.1:1/x", "http://[::1]:1"}) {
    INFO(text);
    CHECK(IsLoopback(text));
  }
  for (const std::string text : {"127.example.org:1", "http://127.0.0.1.example.org", "localhost.example.org:1",
                                 "192.0.2.1:1", "http://[::2]:1", "nowhere", "https://sheaf.example.org"}) {
    INFO(text);
    CHECK_FALSE(IsLoopback(text));
  }
}

TEST_CASE("A token goes to another machine only by https, or with --insecure") {
  ChannelSecurity security = {.token_file = "/nowhere"};
  // The file is looked at first.
  CHECK(CheckChannelSecurity("https://edge", security).code() == absl::StatusCode::kNotFound);
  CHECK(UsesTls("https://edge", {}));
  CHECK_FALSE(UsesTls("http://edge", {.tls_ca = "system"}));
  CHECK(UsesTls("edge:1", {.tls_ca = "system"}));
  CHECK(CheckChannelSecurity("https://edge", {}).ok());
  CHECK(CheckChannelSecurity("https://edge", {.tls_ca = "system"}).ok());
  CHECK(CheckChannelSecurity("http://edge", {}).ok());
  for (const ChannelSecurity& of_tls :
       {ChannelSecurity{.tls_ca = "system"}, ChannelSecurity{.tls_cert = "x", .tls_key = "y"}}) {
    const absl::Status status = CheckChannelSecurity("http://edge", of_tls);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(status.message()), Contains("write https://"));
  }
}

using Variables = std::map<std::string, std::string>;

HttpProxy ProxyOf(const std::string& address, const Variables& variables) {
  return ProxyFor(*ParseServerAddress(address), [&variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

TEST_CASE("The environment names the proxy by the scheme of the address") {
  const Variables both = {
      {"HTTP_PROXY", "http://plain:1"}, {"HTTPS_PROXY", "http://tls:2"}, {"ALL_PROXY", "http://all:3"}};
  CHECK(ProxyOf("http://edge", both).url == "http://plain:1");
  CHECK(ProxyOf("https://edge", both).url == "http://tls:2");
  CHECK(ProxyOf("https://edge", both).variable == "HTTPS_PROXY");
  CHECK(ProxyOf("https://edge", {{"ALL_PROXY", "http://all:3"}}).variable == "ALL_PROXY");
  CHECK(ProxyOf("https://edge", {{"https_proxy", "http://small:4"}, {"HTTPS_PROXY", "http://tls:2"}}).url ==
        "http://small:4");
  CHECK(ProxyOf("https://edge", {{"HTTPS_PROXY", ""}, {"ALL_PROXY", "http://all:3"}}).url == "http://all:3");
  CHECK_FALSE(ProxyOf("https://edge", {{"HTTP_PROXY", "http://plain:1"}}).is_used());
  // gRPC has rules of its own.
  CHECK_FALSE(ProxyOf("edge:7433", both).is_used());
  // Nobody stands between two processes of one machine.
  CHECK_FALSE(ProxyOf("http://127.0.0.1:7434", both).is_used());
  CHECK_FALSE(ProxyOf("https://localhost:7434", both).is_used());
}

TEST_CASE("NO_PROXY names hosts, domains, addresses and networks that are reached without a proxy") {
  struct Row {
    std::string list;
    std::string host;
    bool is_exempt;
  };
  for (const Row& row : {Row{"*", "edge", true},
                         Row{"edge", "edge", true},
                         Row{"EDGE", "edge", true},
                         Row{"a,edge", "edge", true},
                         Row{"a edge", "edge", true},
                         Row{" a , edge ", "edge", true},
                         Row{"dge", "edge", false},
                         Row{"", "edge", false},
                         Row{",", "edge", false},
                         Row{".", "edge", false},
                         Row{"*.", "edge", false},
                         Row{"example.org", "edge.example.org", true},
                         Row{".example.org", "edge.example.org", true},
                         Row{"*.example.org", "edge.example.org", true},
                         Row{".example.org", "example.org", true},
                         Row{"example.org", "badexample.org", false},
                         Row{"edge.example.org", "example.org", false},
                         Row{"192.0.2.7", "192.0.2.7", true},
                         Row{"192.0.2.7", "192.0.2.8", false},
                         Row{"192.0.2.0/24", "192.0.2.8", true},
                         Row{"192.0.2.0/25", "192.0.2.128", false},
                         Row{"192.0.0.0/15", "192.1.2.8", true},
                         Row{"0.0.0.0/0", "192.1.2.8", true},
                         Row{"192.0.2.0/33", "192.0.2.0", false},
                         Row{"192.0.2.0/x", "192.0.2.0", false},
                         Row{"10.0.0.0/8", "edge", false},
                         Row{"[2001:db8::1]", "[2001:db8::1]", true},
                         Row{"2001:db8::1", "[2001:db8::1]", true},
                         Row{"2001:db8::/32", "[2001:db8:1::2]", true},
                         Row{"2001:db8::/32", "[2001:db9::2]", false},
                         Row{"::/0", "192.0.2.1", false}}) {
    INFO(row.list << " and " << row.host);
    const Variables variables = {{"HTTPS_PROXY", "http://proxy:1"}, {"NO_PROXY", row.list}};
    CHECK(ProxyOf("https://" + row.host, variables).is_used() != row.is_exempt);
  }
}

TEST_CASE("A proxy is named without its password") {
  const HttpProxy proxy = {.url = "http://me:se%40cret@proxy.example.org:3128/", .variable = "HTTPS_PROXY"};
  CHECK(proxy.name() == "http://proxy.example.org:3128");
  CHECK(proxy.target() == "proxy.example.org:3128");
  CHECK(HttpProxy{.url = "proxy:3128", .variable = ""}.name() == "http://proxy:3128");
  CHECK(HttpProxy{.url = "http://[::1]", .variable = ""}.target() == "[::1]:1080");
}

}  // namespace
}  // namespace sheaf
