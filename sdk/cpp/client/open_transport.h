// OpenTransport: the wire to a server, by the protocol that its address names.
//
//   const std::unique_ptr<ServerTransport> transport = OpenTransport("https://sheaf.example.org:7434", {});
//   ASSIGN_OR_RETURN(v1::GetServerInfoResponse info, BlockingCall(*transport, kGetServerInfo, {}));
//
// Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "sdk/cpp/client/channel_options.h"
#include "sdk/cpp/client/server_transport.h"

namespace sheaf {

// GrpcTransport or HttpTransport. What is wrong with `address`, or with files that the options name, shows when a call
// fails; CheckChannelSecurity says it before, and better.
std::unique_ptr<ServerTransport> OpenTransport(const std::string& address, const ChannelOptions& options);

}  // namespace sheaf
