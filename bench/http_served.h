// A sheafd that is measured by HTTP/1.1 beside gRPC, and who may call it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/bench.h"
#include "bench/self_signed.h"
#include "proto/methods.h"
#include "sdk/cpp/client/channel_options.h"

namespace sheaf::bench {

struct HttpServed {
  std::unique_ptr<ChildProcess> server;
  // HOST:PORT of HTTP.
  std::string address;
};

// With `tls` both ports speak it.
absl::StatusOr<HttpServed> StartHttp(const Setup& setup, const SelfSigned* tls,
                                     const std::vector<std::string>& more = {});

// Of its clients.
ChannelSecurity SecurityOf(const SelfSigned* tls);
std::string AuthorityOf(const SelfSigned* tls);

// A token of the identity `name`: a file of its own; its path. The first that a server makes is an operator's.
absl::StatusOr<std::string> MakeToken(const Setup& setup, const ChildProcess& server, const ChannelSecurity& security,
                                      const std::string& name, const std::vector<v1::Role>& roles);

}  // namespace sheaf::bench
