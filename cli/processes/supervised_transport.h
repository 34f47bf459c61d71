// SupervisedTransport: asks whether the other side is still alive before it calls.
//
//   SupervisedTransport transport(inner, [&] { return federation.Check(); });
//
// So a loop of polls ends with the reason, not with silence, when the processes it waits for are gone.
#pragma once

#include <functional>
#include <string_view>

#include "sdk/cpp/client/transport.h"

namespace sheaf {

class SupervisedTransport final : public Transport {
 public:
  // Thread-safe if `check` is. `inner` must outlive it.
  SupervisedTransport(Transport& inner, std::function<absl::Status()> check)
      : inner_(inner), check_(std::move(check)) {}

  void CallMethod(std::string_view method, const google::protobuf::Message& request,
                  google::protobuf::Message* response, const CallOptions& options, Done done) override {
    absl::Status alive = check_();
    if (!alive.ok()) return done(std::move(alive));
    inner_.CallMethod(method, request, response, options, std::move(done));
  }

 private:
  Transport& inner_;
  std::function<absl::Status()> check_;
};

}  // namespace sheaf
