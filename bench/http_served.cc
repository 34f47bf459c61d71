#include "bench/http_served.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "base/status_macros.h"
#include "sdk/cpp/client/grpc_transport.h"

namespace sheaf::bench {

absl::StatusOr<HttpServed> StartHttp(const Setup& setup, const SelfSigned* tls, const std::vector<std::string>& more) {
  const std::string port_file = setup.directory + "/http.port";
  std::vector<std::string> options = {"--http", "127.0.0.1:0", "--http-port-file", port_file};
  if (tls != nullptr) options.insert(options.end(), {"--tls-cert", tls->certificate, "--tls-key", tls->key});
  options.insert(options.end(), more.begin(), more.end());
  HttpServed served;
  ASSIGN_OR_RETURN(served.server, StartSheafd(setup, options));
  std::ifstream(port_file) >> served.address;
  return served;
}

ChannelSecurity SecurityOf(const SelfSigned* tls) {
  return tls == nullptr ? ChannelSecurity() : ChannelSecurity{.tls_ca = tls->certificate};
}

std::string AuthorityOf(const SelfSigned* tls) { return tls == nullptr ? "" : tls->certificate; }

absl::StatusOr<std::string> MakeToken(const Setup& setup, const ChildProcess& server, const ChannelSecurity& security,
                                      const std::string& name, const std::vector<v1::Role>& roles) {
  v1::CreateTokenRequest request;
  request.set_request_id(fmt::format("token-{}-{}", name, static_cast<int>(roles.front())));
  request.set_name(name);
  for (const v1::Role role : roles) request.add_roles(role);
  GrpcTransport transport(server.address(), {.security = security, .own_connection = true});
  ASSIGN_OR_RETURN(const v1::CreateTokenResponse response, BlockingCall(transport, kCreateToken, request));
  const std::string path = fmt::format("{}/{}.token", setup.directory, request.request_id());
  std::ofstream(path) << response.secret();
  std::filesystem::permissions(path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  return path;
}

}  // namespace sheaf::bench
