#include "server/http/connect_call.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "base/trace_parent.h"
#include "server/calls/call.h"
#include "server/http/connect_protocol.h"
#include "server/http/credentials.h"
#include "server/http/json_text.h"

namespace sheaf {
namespace {

// Of nobody but who asked; and a page that shows it as something else than it is shows nothing.
constexpr char kAnswerHeaders[] = "cache-control: no-store\r\nx-content-type-options: nosniff\r\n";
// JSON has names, and bytes in base64: as long as this times what it says, about.
constexpr int64_t kJsonGrowth = 2;

class ConnectCall final : public Call {
 public:
  // `request` must outlive Begin.
  ConnectCall(CallPipeline& pipeline, const MethodRow& method, const HttpRequest& request, ConnectRequest call,
              ExchangePtr exchange)
      : Call(pipeline, method, exchange->peer()),
        pipeline_(pipeline),
        method_(method),
        http_request_(&request),
        request_(std::move(call)),
        request_bytes_(static_cast<int64_t>(request_.message.size())),
        traceparent_(request.Header(TraceParent::kHeader)),
        exchange_(std::move(exchange)) {}

  void Expire() {
    is_expired_ = true;
    Cancel();
  }

  std::function<void()> Cut() override { return exchange_->Cut(); }

 private:
  Credentials credentials() const override { return CredentialsOf(*http_request_, *exchange_); }
  std::string_view traceparent() const override { return traceparent_; }
  int64_t request_bytes() const override { return request_bytes_; }
  absl::Status Read(Reader read) const override {
    std::string_view bytes = request_.message.view();
    if (request_.codec == Codec::kJson) {
      if (!converted_) {
        RETURN_IF_ERROR(CheckJson(bytes, pipeline_.limits()));
        ASSIGN_OR_RETURN(converted_, JsonToBytes(*method_.request->GetDescriptor(), bytes));
      }
      bytes = *converted_;
    }
    google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
    return read(stream);
  }
  void FreeRequest() override {
    request_.message.Clear();
    converted_.reset();
  }

  absl::StatusOr<int64_t> Write(const google::protobuf::Message& answer) override {
    if (!answer.SerializeToString(&answer_)) return absl::InternalError("the answer cannot be serialised");
    return static_cast<int64_t>(answer_.size()) * (request_.codec == Codec::kJson ? kJsonGrowth : 1);
  }
  void FreeAnswer() override { answer_ = {}; }
  void Send(const absl::Status& status) override {
    if (is_expired_) {
      answer_ = {};
      return Answer(ErrorResponse(absl::DeadlineExceededError("the call took longer than its connect-timeout-ms")));
    }
    if (!status.ok()) return Answer(ErrorResponse(status));
    if (request_.codec == Codec::kProto) return Answer(Response(std::move(answer_)));
    // The core has other things to do.
    pipeline_.dispatcher().pool().Run(exchange_->peer(), CallPool::Length::kShort, [this] {
      absl::StatusOr<std::string> json = BytesToJson(*method_.response->GetDescriptor(), answer_);
      answer_ = {};
      Answer(json.ok() ? Response(*std::move(json)) : ErrorResponse(json.status()));
    });
  }

  HttpResponse Response(std::string body) const {
    return {.content_type = ContentTypeOf(request_.codec), .headers = kAnswerHeaders, .body = std::move(body)};
  }
  void Answer(HttpResponse response) {
    exchange_->Answer(std::move(response), [this] { OnSent(); });
  }

  CallPipeline& pipeline_;
  const MethodRow& method_;
  // Until Begin has returned.
  const HttpRequest* http_request_;
  ConnectRequest request_;
  const int64_t request_bytes_;
  // The request is gone when a log line is written.
  const std::string traceparent_;
  // What the JSON says, serialised.
  mutable std::optional<std::string> converted_;
  std::string answer_;
  std::atomic<bool> is_expired_ = false;
  const ExchangePtr exchange_;
};

void Serve(CallPipeline& pipeline, const MethodRow& method, HttpRequest& request, const ExchangePtr& exchange) {
  ConnectRequest read;
  if (const std::optional<ConnectError> error = ReadConnectRequest(request, read)) {
    HttpResponse response = ErrorResponse(error->status);
    if (error->http_status != 0) {
      response.status = error->http_status;
      response.headers += "accept-post: application/proto, application/json\r\n";
    }
    return exchange->Answer(std::move(response));
  }
  const absl::Time until = exchange->Now() + read.timeout;
  auto* call = new ConnectCall(pipeline, method, request, std::move(read), exchange);
  // All that ends the call comes to this thread, which is busy with its beginning.
  exchange->Watch(
      until, [call](HttpExchange::End end) { end == HttpExchange::End::kExpired ? call->Expire() : call->Cancel(); });
  call->Begin();
}

}  // namespace

Route ConnectRoute(CallPipeline& pipeline, const MethodRow& method) {
  std::vector<HttpMethod> methods = {HttpMethod::kPost};
  if (method.traits.only_looks) methods.push_back(HttpMethod::kGet);
  return {.path = "/" + method.name,
          .methods = std::move(methods),
          .body_bytes_max = pipeline.limits().request_bytes_max,
          .check_head =
              [&pipeline](const HttpRequest& head, const HttpExchange& exchange) {
                return pipeline.Identify([&] { return CredentialsOf(head, exchange); }).status();
              },
          .serve = [&pipeline, &method](HttpRequest& request,
                                        const ExchangePtr& exchange) { Serve(pipeline, method, request, exchange); }};
}

}  // namespace sheaf
