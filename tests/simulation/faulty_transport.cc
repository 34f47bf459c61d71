#include "tests/simulation/faulty_transport.h"

#include <algorithm>
#include <utility>

namespace sheaf::simulation {

struct FaultyTransport::Exchange {
  std::string method;
  // Where the caller wants the answer; alive until `done`.
  google::protobuf::Message* response;
  // An empty one of its type.
  std::shared_ptr<const google::protobuf::Message> prototype;
  Done done;
  // Nothing of it arrives any more.
  bool is_reset = false;

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
               .response = response,
               .prototype = std::shared_ptr<const google::protobuf::Message>(response->New()),
               .done = std::move(done)});
  std::erase_if(exchanges_, [](const auto& other) { return other.expired(); });
  exchanges_.push_back(exchange);
  weather_.agenda.After(options.timeout, [exchange] { exchange->End(absl::DeadlineExceededError("no answer")); });
  if (weather_.Strikes(weather_.plan.reset, "resets")) {
    weather_.agenda.After(Delay(), [exchange] { exchange->End(absl::UnavailableError("the connection was reset")); });
    // Whether the request had arrived by then is anybody's guess.
    if (weather_.chance.Chance(0.5)) return;
  }
  if (weather_.Strikes(weather_.plan.request_lost, "requests lost")) return;
  Deliver(exchange, copy);
  if (!weather_.Strikes(weather_.plan.duplicated, "requests repeated")) return;
  std::shared_ptr<google::protobuf::Message> repeated(request.New());
  repeated->CopyFrom(request);
  Deliver(exchange, std::move(repeated));
}

void FaultyTransport::Deliver(const std::shared_ptr<Exchange>& exchange,
                              std::shared_ptr<const google::protobuf::Message> request) {
  Send(exchange, [this, exchange, request = std::move(request)] {
    std::unique_ptr<google::protobuf::Message> response(exchange->prototype->New());
    server_.Call(exchange->method, authorization_, request, std::move(response),
                 [this, exchange](absl::Status status, const google::protobuf::Message* answer) {
                   if (exchange->is_reset || IsCut()) return;
                   if (weather_.Strikes(weather_.plan.response_lost, "responses lost")) return;
                   std::shared_ptr<google::protobuf::Message> copy;
                   if (status.ok()) {
                     copy.reset(answer->New());
                     copy->CopyFrom(*answer);
                   }
                   Send(exchange, [exchange, status = std::move(status), copy] {
                     if (!exchange->done) return;
                     if (copy != nullptr) exchange->response->CopyFrom(*copy);
                     exchange->End(status);
                   });
                 });
  });
}

void FaultyTransport::Send(const std::shared_ptr<Exchange>& exchange, std::function<void()> arrive) {
  auto get_through = [this, exchange, number = ++newest_sent_, arrive = std::move(arrive)] {
    if (exchange->is_reset) return;
    if (number < newest_arrived_) ++weather_.statistics.faults["messages overtaken"];
    newest_arrived_ = std::max(newest_arrived_, number);
    arrive();
  };
  weather_.agenda.After(Delay(), [this, get_through = std::move(get_through)]() mutable {
    if (IsCut()) return;
    if (!is_clogged_) return get_through();
    held_.push_back(std::move(get_through));
    ++weather_.statistics.faults["messages clogged"];
  });
}

void FaultyTransport::Unclog() {
  is_clogged_ = false;
  for (std::function<void()>& message : std::exchange(held_, {})) {
    weather_.agenda.After(weather_.chance.Between(absl::ZeroDuration(), absl::Milliseconds(5)), std::move(message));
  }
}

void FaultyTransport::Mend() {
  cut_until_ = absl::InfinitePast();
  is_clogged_ = false;
  held_.clear();
  for (const std::weak_ptr<Exchange>& weak : std::exchange(exchanges_, {})) {
    const std::shared_ptr<Exchange> exchange = weak.lock();
    if (exchange == nullptr) continue;
    exchange->is_reset = true;
    exchange->End(absl::UnavailableError("the connection was reset"));
  }
}

absl::Duration FaultyTransport::Delay() {
  bool is_late = weather_.Strikes(weather_.plan.delayed, "messages delayed");
  return weather_.chance.Between(absl::ZeroDuration(), is_late ? weather_.plan.delay_max : absl::Milliseconds(5));
}

}  // namespace sheaf::simulation
