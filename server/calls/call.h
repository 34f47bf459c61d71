// Call: one call, from its bytes and headers to the bytes of its answer. A transport derives its own from it, says what
// came, and carries away what is to be sent. Everything in between is the same for all transports, in this order: who
// calls, is there room for the request, is there room for the answer, parse, dispatch, write the answer, enter its
// bytes into the books, send.
//
//   class PipeCall final : public Call {
//    public:
//     PipeCall(CallPipeline& pipeline, const MethodRow& method, std::string bytes)
//         : Call(pipeline, method, "pipe"), request_(std::move(bytes)) {}
//     std::function<void()> Cut() override { return [] {}; }
//
//    private:
//     Credentials credentials() const override { return {}; }
//     int64_t request_bytes() const override { return static_cast<int64_t>(request_.size()); }
//     absl::Status Read(Reader read) const override {
//       google::protobuf::io::ArrayInputStream stream(request_.data(), static_cast<int>(request_.size()));
//       return read(stream);
//     }
//     void FreeRequest() override { request_.clear(); }
//     absl::StatusOr<int64_t> Write(const google::protobuf::Message& answer) override {
//       answer_ = answer.SerializeAsString();
//       return answer_.size();
//     }
//     void FreeAnswer() override { answer_.clear(); }
//     void Send(const absl::Status& status) override {
//       std::puts(status.ok() ? answer_.c_str() : status.ToString().c_str());
//       OnSent();
//     }
//     std::string request_;
//     std::string answer_;
//   };
//   auto* call = new PipeCall(pipeline, method, bytes);
//   call->Begin();     // It deletes itself.
//
// So what is refused has cost little, and the bytes of a stranger are never looked at. What is large to parse, and what
// is no business of the core's, goes on in the CallPool, so that the transport's few threads are free to receive. The
// request is freed when it was answered; the answer is in the books until the transport has sent it, or cut it off. A
// call whose caller has gone is abandoned: a parked poll, or a wait for room, ends at once; any other call runs to its
// end. Its answer goes nowhere.
//
// Lives until OnSent was called and nobody is in its dispatch any more; then it deletes itself. Begin, Cancel and
// OnSent are the transport's to call, each from any thread. What a derived class overrides is called by one thread at a
// time.
#pragma once

#include <google/protobuf/io/zero_copy_stream.h>
#include <google/protobuf/message.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "server/calls/answer_books.h"
#include "server/calls/call_pipeline.h"
#include "server/calls/method_row.h"

namespace sheaf {

class Call : public AnsweredCall, private LogScope::Source {
 public:
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // The request has come, whole. Once.
  void Begin();
  // The caller has gone, or wants no answer any more. Between the return of Begin and OnSent, as often as you like.
  void Cancel();
  // The answer was sent, or will never be. Once, last, and after Send was called: deletes the call.
  void OnSent();

 protected:
  using Reader = absl::FunctionRef<absl::Status(google::protobuf::io::ZeroCopyInputStream& stream)>;

  // Both outlive it. `connection` says, to people too, over which connection it came: "ipv4:192.0.2.1:4711".
  Call(CallPipeline& pipeline, const MethodRow& method, std::string connection);
  ~Call() override;

  // --- What came ---
  virtual Credentials credentials() const = 0;
  // The header `traceparent`; empty: none. Asked only where a log line is written.
  virtual std::string_view traceparent() const { return {}; }
  // How much of a read whoever forwards the call has room for. 0: it came from its caller.
  virtual int64_t answer_bytes_asked() const { return 0; }
  // As CallContext.
  virtual bool asks_only() const { return false; }
  // As ForwardedCaller.
  virtual std::optional<Shard> forwarded_to() const { return std::nullopt; }
  // As they came over the wire, and count against the limits.
  virtual int64_t request_bytes() const = 0;
  // Has `read` read the request, serialised, from its beginning; returns what it returns. Only after the call was let
  // in, and before FreeRequest; perhaps twice.
  virtual absl::Status Read(Reader read) const = 0;
  virtual void FreeRequest() = 0;

  // --- What goes ---
  // Serialises the answer for the wire, and keeps it; how many bytes it has. INTERNAL if it cannot be.
  virtual absl::StatusOr<int64_t> Write(const google::protobuf::Message& answer) = 0;
  // There is no room for what was written; an error follows.
  virtual void FreeAnswer() = 0;
  // Sends what was written, or why there is none, with the retry hint of the status (base/retry_hint.h) as a header.
  // Calls OnSent when the caller has it, or never will. Called once.
  virtual void Send(const absl::Status& status) = 0;
  // And Cut, of AnsweredCall: ends the call because nobody takes its answer.

 private:
  // Steps that it has taken, as bits: Cancel comes between any two.
  enum Step : uint8_t { kWaits = 1, kIsDispatched = 2, kIsCancelled = 4, kIsAnswered = 8 };

  void Unref();
  // "trace=4bf92f3577b34da6a3ce929d0e0e4736/00f067aa0ba902b7", if it is part of one.
  std::string LogTag() const override;
  // Between whom the pool's threads are shared.
  const std::string& peer() const { return client_.identity.empty() ? client_.connection : client_.identity; }
  // It has been let in.
  void Go();
  void Dispatch();
  // The caller of a dispatched call has gone.
  void Abandon();
  absl::Status Parse();
  // Puts the answer into the books, or says why it cannot be given; and counts how the call ended.
  absl::Status EnterAnswer(absl::Status status);
  void End(absl::Status status);

  CallPipeline& pipeline_;
  const MethodRow& method_;
  const CallId id_;
  absl::Time begin_;
  AnswerClient client_;
  IdentityPtr caller_;
  // How many bytes Admission counts, once it has let the call in.
  std::optional<int64_t> admitted_bytes_;
  int64_t request_bytes_ = 0;
  // What the books have of it.
  AnswerEntry* entry_ = nullptr;
  std::unique_ptr<google::protobuf::Message> request_;
  std::unique_ptr<google::protobuf::Message> response_;
  std::atomic<uint8_t> steps_ = 0;
  // The transport, and a dispatch that has not returned.
  std::atomic<int> num_refs_ = 1;
};

}  // namespace sheaf
