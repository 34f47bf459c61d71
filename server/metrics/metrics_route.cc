#include "server/metrics/metrics_route.h"

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "server/calls/answer_books.h"
#include "server/core/access/identity.h"
#include "server/http/connect_protocol.h"
#include "server/http/credentials.h"

namespace sheaf {
namespace {

// Of nobody but who asked, and of this moment.
constexpr char kHeaders[] = "cache-control: no-store\r\nx-content-type-options: nosniff\r\n";

absl::StatusOr<IdentityPtr> Reader(const CallPipeline& pipeline, const HttpRequest& request,
                                   const HttpExchange& exchange) {
  ASSIGN_OR_RETURN(IdentityPtr caller, pipeline.Identify([&] { return CredentialsOf(request, exchange); }));
  RETURN_IF_ERROR(caller->CheckRole("/metrics", {v1::VIEWER, v1::OPERATOR}));
  if (caller->is_everywhere()) return caller;
  return absl::PermissionDeniedError(
      fmt::format("/metrics tells of all populations; token {} of {} is for some: make one without --for",
                  caller->token, caller->name));
}

// One answer, from the wait for room until the client has it. Deletes itself.
class MetricsAnswer final : public AnsweredCall {
 public:
  MetricsAnswer(const MetricsText& text, CallPipeline& pipeline, ExchangePtr exchange)
      : text_(text), pipeline_(pipeline), id_(pipeline.dispatcher().NewCall()), exchange_(std::move(exchange)) {}

  void Begin(const Identity& caller) {
    AnswerBooks& answers = pipeline_.answers();
    exchange_->Watch(absl::InfiniteFuture(), [&answers, id = id_](HttpExchange::End) { answers.Abandon(id); });
    const AnswerClient client{.connection = exchange_->peer(), .identity = caller.name};
    answers.Reserve(id_, AnswerKind::kList, client, pipeline_.Now(), [this](absl::StatusOr<AnswerEntry*> entry) {
      if (!entry.ok()) return Send(ErrorResponse(entry.status()));
      entry_ = *entry;
      pipeline_.dispatcher().pool().Run(exchange_->peer(), CallPool::Length::kShort, [this] {
        std::string body = text_.At(pipeline_.Now());
        pipeline_.answers().Send(entry_, static_cast<int64_t>(body.size()), pipeline_.Now(), *this);
        Send({.content_type = MetricsText::kContentType, .headers = kHeaders, .body = std::move(body)});
      });
    });
  }

  std::function<void()> Cut() override { return exchange_->Cut(); }

 private:
  void Send(HttpResponse response) {
    exchange_->Answer(std::move(response), [this] {
      if (entry_ != nullptr) pipeline_.answers().Release(entry_);
      delete this;
    });
  }

  const MetricsText& text_;
  CallPipeline& pipeline_;
  const CallId id_;
  const ExchangePtr exchange_;
  // What the books have of it.
  AnswerEntry* entry_ = nullptr;
};

}  // namespace

Route MetricsRoute(const MetricsText& text, CallPipeline& pipeline) {
  return {.path = "/metrics",
          .methods = {HttpMethod::kGet},
          .serve = [&text, &pipeline](HttpRequest& request, const ExchangePtr& exchange) {
            const absl::StatusOr<IdentityPtr> caller = Reader(pipeline, request, *exchange);
            if (!caller.ok()) {
              pipeline.NoteRefusal("/metrics", exchange->peer(), caller.status());
              return exchange->Answer(ErrorResponse(caller.status()));
            }
            (new MetricsAnswer(text, pipeline, exchange))->Begin(**caller);
          }};
}

}  // namespace sheaf
