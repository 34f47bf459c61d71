// A server that waits for its turn, and the owner of the store, in one process; and who calls them.
//
//   Owner owner;
//   WaitingServer waiting;
//   waiting.store().SetOwner(owner.contact());
//   const auto queue = BlockingCall(*waiting.Connect(), kDescribeQueue, {});
#pragma once

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/random.h"
#include "sdk/cpp/client/open_transport.h"
#include "server/rpc/forwarded_metadata.h"
#include "server/shared_server.h"
#include "tests/server/running_server.h"
#include "tls/self_signed.h"

namespace sheaf {

template <typename T>
T Ok(absl::StatusOr<T> value) {
  INFO(value.status().ToString());
  REQUIRE(value.ok());
  return *std::move(value);
}

// Owns its store, and has a port for other servers.
class Owner {
 public:
  explicit Owner(const Limits& limits = {}) : Owner(Ok(Listener::Open("127.0.0.1:0")), limits) {}

  RunningServer& server() { return server_; }
  // As other servers know it.
  const GrpcForwarder::Owner& contact() const { return contact_; }

 private:
  Owner(std::unique_ptr<Listener> port, const Limits& limits)
      : shown_(Ok(MakeSelfSigned(kPeerName, SystemClock().Now()))),
        contact_{
            .name = "server-1", .address = port->address(), .certificate = shown_.certificate, .secret = "swordfish"},
        server_(Runtime::Options{
            .limits = limits, .peers = std::move(port), .for_peers = {.shown = shown_, .secret = contact_.secret}}) {}

  const LoadedCertificates shown_;
  const GrpcForwarder::Owner contact_;
  RunningServer server_;
};

class WaitingServer {
 public:
  // Without `payloads` it moves no bytes itself, and without a directory it has but the first shard.
  explicit WaitingServer(const std::vector<TokenRecord>& tokens = {}, std::shared_ptr<PayloadStore> payloads = nullptr,
                         ShardDirectory* directory = nullptr)
      : WaitingServer(tokens, std::move(payloads), directory, Ok(Listener::Open("127.0.0.1:0"))) {}

  SharedServer& server() { return *server_; }
  SharedStore& store() { return server_->store(kHomeShard); }
  // As other servers know it.
  const GrpcForwarder::Owner& contact() const { return contact_; }
  std::unique_ptr<Transport> Connect(const ChannelSecurity& security = {}) const {
    return OpenTransport(server_->address(), {.security = security, .own_connection = true});
  }
  std::unique_ptr<Transport> ConnectByHttp(const ChannelSecurity& security = {}) const {
    return OpenTransport("http://" + server_->http_address(), {.security = security});
  }

 private:
  WaitingServer(const std::vector<TokenRecord>& tokens, std::shared_ptr<PayloadStore> payloads,
                ShardDirectory* directory, std::unique_ptr<Listener> port)
      : shown_(Ok(MakeSelfSigned(kPeerName, SystemClock().Now()))),
        contact_{
            .name = "server-2", .address = port->address(), .certificate = shown_.certificate, .secret = "octopus"},
        server_(Ok(SharedServer::Start(tokens, std::move(payloads), directory, clock_, random_,
                                       {.listen = "127.0.0.1:0",
                                        .http = "127.0.0.1:0",
                                        .peers = std::move(port),
                                        .for_peers = {.shown = shown_, .secret = contact_.secret}}))) {}

  const SystemClock clock_;
  SystemRandom random_;
  const LoadedCertificates shown_;
  const GrpcForwarder::Owner contact_;
  std::unique_ptr<SharedServer> server_;
};

// A caller's secret, in a file of the test.
class SecretFile {
 public:
  // Those that are there at one time have different names.
  explicit SecretFile(const std::string& secret, const std::string& name = "")
      : path_(Catch::getResultCapture().getCurrentTestName() + name + ".token") {
    std::filesystem::remove(path_);
    std::ofstream(path_) << secret;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_read);
  }
  ~SecretFile() { std::filesystem::remove(path_); }
  ChannelSecurity security() const { return {.token_file = path_}; }

 private:
  const std::string path_;
};

inline std::string CreateToken(Transport& transport, const std::string& name, v1::Role role) {
  v1::CreateTokenRequest create;
  create.set_request_id("token of " + name);
  create.set_name(name);
  create.add_roles(role);
  return Ok(BlockingCall(transport, kCreateToken, create)).secret();
}

// As the store has it.
inline TokenRecord RecordOf(const std::string& secret, const std::string& name, v1::Role role) {
  return {.id = TokenId("t-" + name),
          .request_id = "token of " + name,
          .name = name,
          .hash = Sha256Hex(secret),
          .roles = RoleSet{role}.bits()};
}

}  // namespace sheaf
