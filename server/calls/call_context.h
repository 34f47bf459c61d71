// CallContext: what a handler is told of a call besides its request.
//
//   const CallContext context = {.id = call, .caller = caller, .now = now};
//   dispatcher.Dispatch(method, context, request, &response, [](absl::Status status) {});
//
// A value; it owns nothing but its share of the identity, and refers to the call.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/log.h"
#include "server/core/access/identity.h"
#include "server/core/batches/call_id.h"

namespace sheaf {

struct CallContext {
  CallId id;
  IdentityPtr caller = Identity::Anybody();
  // Of the batch that the call runs in; never, for one that runs in none.
  absl::Time now = absl::InfinitePast();
  // Between whom the threads of the CallPool are shared.
  std::string client;
  // What there is room for, if the answer is a read. 0: a chunk.
  int64_t answer_bytes_max = 0;
  // Whether the caller may do this is all that is asked: the answer is empty, and nothing is done.
  bool asks_only = false;
  // What log lines say of it. Null, or the call itself.
  const LogScope::Source* log_source = nullptr;
};

}  // namespace sheaf
