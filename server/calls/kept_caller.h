// KeptCaller: a ForwardedCaller that outlives the call of Forward, with text of its own.
//
//   const auto kept = std::make_shared<const KeptCaller>(by);
//   forwarder.Forward(call, method, kept->get(), request, &response, done);    // Later.
//
// Nothing changes it.
#pragma once

#include <string>

#include "server/calls/forwarder.h"

namespace sheaf {

class KeptCaller {
 public:
  explicit KeptCaller(const ForwardedCaller& caller)
      : caller_(caller),
        authorization_(caller.shown.authorization),
        connection_(caller.connection),
        client_(caller.client),
        traceparent_(caller.traceparent) {
    caller_.shown.authorization = authorization_;
    caller_.connection = connection_;
    caller_.client = client_;
    caller_.traceparent = traceparent_;
  }
  // What it gives refers to it.
  KeptCaller(const KeptCaller&) = delete;
  KeptCaller& operator=(const KeptCaller&) = delete;

  const ForwardedCaller& get() const { return caller_; }

 private:
  ForwardedCaller caller_;
  const std::string authorization_;
  const std::string connection_;
  const std::string client_;
  const std::string traceparent_;
};

}  // namespace sheaf
