// CallSequence: several calls that depend on one another, as a value that somebody else drives.
//
// An upload is a start, many chunks and a finish. A blocking program wants one function for that; the worker, which
// never blocks, wants to issue one call, return, and go on when the answer arrives. Both drive the same sequence:
//
//   UploadSession upload({.bytes = file, .request_id = random.Token(16)});
//   RETURN_IF_ERROR(RunBlocking(transport, upload));   // The blocking form.
//
//   // What RunBlocking does. A step machine spreads it over events: it makes the call, keeps it, and goes on when the
//   // status has come.
//   while (!upload.done()) {
//     const CallSequence::NextCall call = upload.Next();
//     const absl::Status status = BlockingCallMethod(transport, call.method, *call.request, call.response.get(), {});
//     upload.OnDone(status);
//   }
//
// Exactly one OnDone follows each Next, unless TakeLess says that Next gives another call. A sequence may be dropped
// while its call is in flight: the messages belong to whoever holds the NextCall. Sequences do not wait between tries;
// RetryingTransport does. Not thread-safe.
#pragma once

#include <google/protobuf/message.h>

#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "sdk/cpp/client/transport.h"

namespace sheaf {

class CallSequence {
 public:
  struct NextCall {
    std::string_view method;
    std::shared_ptr<const google::protobuf::Message> request;
    std::shared_ptr<google::protobuf::Message> response;
  };
  virtual ~CallSequence() = default;

  // True when there is nothing left to call; `status` says how it ended.
  virtual bool done() const = 0;
  // OK while it runs and when it succeeded.
  virtual const absl::Status& status() const = 0;
  // The call to make now. Not after done().
  virtual NextCall Next() = 0;
  // The call that Next gave was not answered in its time, and over a slow link it will not be the next time either.
  // True if Next now gives a smaller one instead.
  virtual bool TakeLess() { return false; }
  // How the call ended that Next gave; its response is filled if `call` is OK.
  virtual void OnDone(const absl::Status& call) = 0;
};

// Drives `sequence` to its end and returns its status.
absl::Status RunBlocking(Transport& transport, CallSequence& sequence, const CallOptions& options = {});

}  // namespace sheaf
