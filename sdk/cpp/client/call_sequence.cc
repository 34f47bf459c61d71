#include "sdk/cpp/client/call_sequence.h"

namespace sheaf {

absl::Status RunBlocking(Transport& transport, CallSequence& sequence, const CallOptions& options) {
  while (!sequence.done()) {
    const CallSequence::NextCall call = sequence.Next();
    sequence.OnDone(BlockingCallMethod(transport, call.method, *call.request, call.response.get(), options));
  }
  return sequence.status();
}

}  // namespace sheaf
