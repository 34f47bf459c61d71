#include "tests/simulation/faulty_transport.h"

#include <utility>

namespace sheaf::simulation {

struct FaultyTransport::Exchange {
  std::string method;
  std::shared_ptr<const google::protobuf::Message> request;
  // Where the caller wants the answer; alive until `done`.
  google::protobuf::Message* response;
  // An empty one of its type.
  std::shared_ptr<const google::protobuf::Message> prototype;
  Done done;

  void End(absl::Status status) {
    if (done) std::exchange(done, nullptr)(std::move(status));
  }
};

void FaultyTransport::CallMethod(std::string_view method, const google::protobuf::Message& request,
                                 google::protobuf::Message* response, const CallOptions& options, Done done) {
  std::shared_ptr<google::protobuf::Message> copy(request.New());
  copy->CopyFrom(request);
  auto exchange = std::make_shared<Exchange>(
      Exchange{.method = std::string(method),
               .request = copy,
               .response = response,
               .prototype = std::shared_ptr<const google::protobuf::Message>(response->New()),
               .done = std::move(done)});
  weather_.agenda.After(options.timeout, [exchange] { exchange->End(absl::DeadlineExceededError("no answer")); });
  if (weather_.Strikes(weather_.plan.reset, "resets")) {
    weather_.agenda.After(Delay(), [exchange] { exchange->End(absl::UnavailableError("the connection was reset")); });
    // Whether the request had arrived by then is anybody's guess.
    if (weather_.chance.Chance(0.5)) return;
  }
  if (weather_.Strikes(weather_.plan.request_lost, "requests lost")) return;
  Deliver(exchange);
  if (weather_.Strikes(weather_.plan.duplicated, "requests repeated")) Deliver(exchange);
}

void FaultyTransport::Deliver(const std::shared_ptr<Exchange>& exchange) {
  weather_.agenda.After(Delay(), [this, exchange] {
    if (IsCut()) return;
    std::unique_ptr<google::protobuf::Message> response(exchange->prototype->New());
    server_.Call(exchange->method, exchange->request, std::move(response),
                 [this, exchange](absl::Status status, const google::protobuf::Message* answer) {
                   if (IsCut() || weather_.Strikes(weather_.plan.response_lost, "responses lost")) return;
                   std::shared_ptr<google::protobuf::Message> copy;
                   if (status.ok()) {
                     copy.reset(answer->New());
                     copy->CopyFrom(*answer);
                   }
                   weather_.agenda.After(Delay(), [exchange, status = std::move(status), copy] {
                     if (!exchange->done) return;
                     if (copy != nullptr) exchange->response->CopyFrom(*copy);
                     exchange->End(status);
                   });
                 });
  });
}

absl::Duration FaultyTransport::Delay() {
  bool is_late = weather_.Strikes(weather_.plan.delayed, "messages delayed");
  return weather_.chance.Between(absl::ZeroDuration(), is_late ? weather_.plan.delay_max : absl::Milliseconds(5));
}

}  // namespace sheaf::simulation
