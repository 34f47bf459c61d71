// GrpcForwarder: forwards calls to the server that owns the store of one shard, over one connection that all of them share: a call
// that waits there costs no connection, and no thread.
//
//   GrpcForwarder forwarder(kHomeShard);
//   forwarder.SetOwner(GrpcForwarder::Owner{
//       .name = "server-1", .address = "10.0.0.1:41234", .certificate = pem, .secret = secret});
//   forwarder.SetOwner(std::nullopt);       // Calls that are open there are answered UNAVAILABLE.
//
// The two servers know each other by what the store says of them: the connection is encrypted for the one certificate
// that the owner has written there, and calls show the owner's secret. Thread-safe, but for destruction, before which
// all calls must have been answered.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/mutex.h"
#include "server/calls/forwarder.h"

namespace sheaf {

class GrpcForwarder final : public Forwarder {
 public:
  struct Owner {
    // For messages.
    std::string name;
    // HOST:PORT of its port for servers.
    std::string address;
    // What it shows there, in PEM.
    std::string certificate;
    // What it wants to be shown.
    std::string secret;

    friend bool operator==(const Owner&, const Owner&) = default;
  };

  explicit GrpcForwarder(Shard shard) : shard_(shard) {}
  ~GrpcForwarder() override;

  // New calls go to `owner` from now on; those that are open at another are given up. None: there is no owner now.
  void SetOwner(std::optional<Owner> owner) EXCLUDES(mutex_);

  void Forward(CallId call, const MethodRow& method, const ForwardedCaller& caller,
               const google::protobuf::Message& request, google::protobuf::Message* response,
               MethodRow::Done done) override EXCLUDES(mutex_);
  void Abandon(CallId call, const MethodRow& method, const Identity& caller) override EXCLUDES(mutex_);

 private:
  struct Connection;
  struct OpenCall;
  void End(CallId id, const std::shared_ptr<OpenCall>& call, const grpc::Status& status) EXCLUDES(mutex_);

  const Shard shard_;
  Mutex mutex_;
  CondVar none_open_;
  // Null: there is no owner.
  std::shared_ptr<Connection> connection_ GUARDED_BY(mutex_);
  std::unordered_map<CallId, std::shared_ptr<OpenCall>> open_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
