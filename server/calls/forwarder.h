// Forwarder: the stage that sends a call on to the server that owns what it is about, instead of dispatching it here.
// The call has been let in by then, like any other: who calls was checked, and its bytes are counted.
//
//   const ForwardedCaller by = {.identity = caller, .shown = credentials, .connection = "ipv4:192.0.2.1:4711"};
//   forwarder.Forward(call, method, by, request, &response, [](absl::Status status) { status.IgnoreError(); });
//   forwarder.Abandon(call, method, *caller);      // The caller has gone.
//
// Thread-safe.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "server/calls/credentials.h"
#include "server/calls/method_row.h"
#include "server/core/access/identity.h"
#include "server/core/batches/call_id.h"
#include "storage/shard.h"

namespace sheaf {

// On whose behalf. What is text lives until Forward returns.
struct ForwardedCaller {
  // Who that is as far as this server knows. The other checks it again, from what the caller has shown.
  IdentityPtr identity = Identity::Anybody();
  Credentials shown;
  // Over which connection it came here, and as CallContext.
  std::string_view connection;
  std::string_view client;
  // The header `traceparent`; empty: none.
  std::string_view traceparent;
  // As CallContext.
  int64_t answer_bytes_max = 0;
  bool asks_only = false;
  // Another server sent the call here, because it took this one for the owner of this shard.
  std::optional<Shard> forwarded_to = std::nullopt;
  // As CallContext.
  const LogScope::Source* log_source = nullptr;
};

class Forwarder {
 public:
  virtual ~Forwarder() = default;

  // Calls `done` exactly once, from any thread, with `response` filled if OK: what the other server answered.
  // UNAVAILABLE, with a retry hint, while there is none, or when it has gone: the call may have happened. Request and
  // response must live until then.
  virtual void Forward(CallId call, const MethodRow& method, const ForwardedCaller& caller,
                       const google::protobuf::Message& request, google::protobuf::Message* response,
                       MethodRow::Done done) = 0;

  // The caller has gone, and so has its call there. Once Forward has returned, before or after the answer.
  virtual void Abandon(CallId call, const MethodRow& method, const Identity& caller) = 0;

  // What is forwarded goes no further than this process, which owns the store.
  virtual bool is_here() const { return false; }
};

}  // namespace sheaf
