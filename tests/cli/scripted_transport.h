// ScriptedTransport: a server that says what the test tells it to, and remembers what it was asked.
//
//   ScriptedTransport server;
//   server.On(kGetRound, [](const v1::GetRoundRequest&) { return absl::NotFoundError("there is no such round"); });
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "proto/methods.h"
#include "sdk/cpp/client/transport.h"

namespace sheaf {

class ScriptedTransport final : public Transport {
 public:
  template <typename M>
  void On(const M& method, std::function<absl::StatusOr<typename M::Response>(const typename M::Request&)> answer) {
    answers_[method.name] = [answer](const google::protobuf::Message& request,
                                     google::protobuf::Message* response) -> absl::Status {
      auto answered = answer(static_cast<const typename M::Request&>(request));
      if (!answered.ok()) return answered.status();
      *static_cast<typename M::Response*>(response) = *std::move(answered);
      return absl::OkStatus();
    };
  }

  void CallMethod(std::string_view method, const google::protobuf::Message& request,
                  google::protobuf::Message* response, const CallOptions& options, Done done) override {
    timeouts.push_back(options.timeout);
    requests.push_back(request.ShortDebugString());
    const auto answer = answers_.find(std::string(method));
    if (answer == answers_.end())
      return done(absl::UnimplementedError("the test has no answer to " + std::string(method)));
    done(answer->second(request, response));
  }

  std::vector<std::string> requests;
  std::vector<absl::Duration> timeouts;

 private:
  std::map<std::string, std::function<absl::Status(const google::protobuf::Message&, google::protobuf::Message*)>>
      answers_;
};

}  // namespace sheaf
