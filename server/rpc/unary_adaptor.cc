#include "server/rpc/unary_adaptor.h"

#include <fmt/format.h>
#include <grpc/grpc.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/retry_hint.h"
#include "base/status_macros.h"
#include "server/rpc/caller.h"

namespace sheaf {
namespace {

// gRPC's peers refuse headers beyond 8 KiB, and the message is percent-encoded into one.
constexpr size_t kMessageBytesMax = 2048;

// Of gRPC and of ours, for one call, apart from its messages: about.
constexpr int64_t kCallBytes = 1 << 10;

// Of who calls or how much, not of what is asked: an operator wants to see it.
bool IsRefusal(const absl::Status& status) {
  return absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status) || absl::IsResourceExhausted(status);
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message().substr(0, kMessageBytesMax)));
}

// gRPC's side of one call. Lives until gRPC is done with it, and until nobody is in its Dispatch any more.
class UnaryAdaptor::Call final : public grpc::ServerUnaryReactor, public AnsweredCall {
 public:
  Call(UnaryAdaptor& adaptor, const ServedMethod& method, grpc::CallbackServerContext& context,
       grpc::ByteBuffer& request, grpc::ByteBuffer& answer)
      : adaptor_(adaptor),
        method_(method),
        id_(adaptor.methods_.NewCall()),
        context_(context),
        request_bytes_(request),
        answer_(answer),
        client_{.connection = context.peer()} {}

  void Serve() {
    const MethodTable& methods = adaptor_.methods_;
    const absl::Time now = adaptor_.clock_.Now();
    const auto size = static_cast<int64_t>(request_bytes_.Length());
    absl::StatusOr<IdentityPtr> caller = CallerOf(context_, methods);
    if (!caller.ok()) return End(caller.status());
    caller_ = *std::move(caller);
    client_.identity = caller_->name;
    if (absl::Status status = methods.Enter(method_.name, *caller_, size, now); !status.ok()) {
      return End(std::move(status));
    }
    admitted_bytes_ = size;
    if (method_.traits.answer == AnswerKind::kControl) {
      if (absl::Status status = adaptor_.answers_.CheckControl(client_); !status.ok()) return End(std::move(status));
      return Go();
    }
    {
      MutexLock lock(mutex_);
      is_waiting_ = true;
    }
    // Whoever makes room goes on.
    adaptor_.answers_.Reserve(this, method_.traits.answer, client_, now, [this](absl::StatusOr<AnswerEntry*> entry) {
      {
        MutexLock lock(mutex_);
        is_waiting_ = false;
      }
      if (!entry.ok()) return End(entry.status());
      entry_ = *entry;
      Go();
    });
  }

  void OnCancel() override {
    bool was_waiting = false;
    {
      MutexLock lock(mutex_);
      is_cancelled_ = true;
      was_waiting = is_waiting_;
      if (is_dispatched_ && request_ != nullptr) adaptor_.methods_.Abandon(method_.name, id_);
    }
    if (was_waiting) adaptor_.answers_.Abandon(this);
  }

  std::function<void()> Cut() override {
    // gRPC may be done with it by then.
    grpc_call* call = context_.c_call();
    grpc_call_ref(call);
    return [call] {
      grpc_call_cancel(call, nullptr);
      grpc_call_unref(call);
    };
  }

  void OnDone() override {
    if (entry_ != nullptr) adaptor_.answers_.Release(std::exchange(entry_, nullptr));
    Unref();
  }

 private:
  // Neither reaction waits for anything, so gRPC need not find them a thread of its own. It is the only way to say so:
  // gRPC's own default reactor does the same, but hears of no cancellation.
  bool InternalInlineable() override { return true; }

  void Unref() {
    if (num_refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // Between whom the pool's threads are shared.
  const std::string& peer() const { return client_.identity.empty() ? client_.connection : client_.identity; }

  void Go() {
    const bool is_large = MethodTable::CountsParts(static_cast<int64_t>(request_bytes_.Length()));
    if (!method_.traits.is_for_pool && !is_large) return Dispatch();
    adaptor_.methods_.pool().Run(peer(), method_.traits.length, [this] { Dispatch(); });
  }

  void Dispatch() {
    if (absl::Status status = Parse(); !status.ok()) return End(std::move(status));
    const google::protobuf::Message* request = nullptr;
    {
      MutexLock lock(mutex_);
      if (!is_cancelled_) request = request_.get();
    }
    if (request == nullptr) return End(absl::CancelledError("the caller has gone"));
    num_refs_.fetch_add(1, std::memory_order_relaxed);
    adaptor_.methods_.Dispatch(method_.name,
                               {.id = id_,
                                .caller = caller_,
                                .client = method_.traits.answer == AnswerKind::kRead ? peer() : std::string(),
                                .answer_bytes_max = entry_ != nullptr ? ReadBytesMax() : 0},
                               *request, response_.get(), [this](absl::Status status) { End(std::move(status)); });
    {
      // Behind the call: a cancellation that came meanwhile has left it to us.
      MutexLock lock(mutex_);
      is_dispatched_ = true;
      if (is_cancelled_ && request_ != nullptr) adaptor_.methods_.Abandon(method_.name, id_);
    }
    Unref();
  }

  // What of the answer is not the chunk has its own room.
  int64_t ReadBytesMax() const { return std::max<int64_t>(entry_->bytes - AnswerBooks::kFrameBytes, 1); }

  absl::Status Parse() {
    const google::protobuf::Descriptor& type = *method_.request.GetDescriptor();
    if (adaptor_.methods_.CountsParts(static_cast<int64_t>(request_bytes_.Length()))) {
      grpc::ByteBuffer bytes = request_bytes_;
      grpc::ProtoBufferReader reader(&bytes);
      RETURN_IF_ERROR(adaptor_.methods_.CheckParts(type, reader));
    }
    std::unique_ptr<google::protobuf::Message> request(method_.request.New());
    {
      grpc::ProtoBufferReader reader(&request_bytes_);
      if (!request->ParseFromZeroCopyStream(&reader)) {
        return absl::InvalidArgumentError(fmt::format("the request is not a serialised {}", type.full_name()));
      }
    }
    request_bytes_.Clear();
    response_.reset(method_.response.New());
    MutexLock lock(mutex_);
    request_ = std::move(request);
    return absl::OkStatus();
  }

  // Puts the answer into the books, or says why it cannot be given.
  absl::Status Enter(absl::Status status) {
    if (status.ok()) {
      bool is_own = false;
      const grpc::Status written =
          grpc::SerializationTraits<google::protobuf::Message>::Serialize(*response_, &answer_, &is_own);
      if (!written.ok()) status = absl::InternalError("the answer cannot be serialised");
    }
    response_.reset();
    AnswerBooks& answers = adaptor_.answers_;
    const absl::Time now = adaptor_.clock_.Now();
    const auto size = static_cast<int64_t>(answer_.Length()) + kCallBytes;
    if (entry_ == nullptr && status.ok()) {
      absl::StatusOr<AnswerEntry*> entry = answers.Take(client_, size, now, *this);
      if (entry.ok()) entry_ = *entry;
      status = entry.status();
    } else if (entry_ != nullptr) {
      answers.Send(entry_, status.ok() ? size : 0, now, *this);
    }
    if (!status.ok()) answer_.Clear();
    if (entry_ == nullptr) entry_ = answers.TakeError(client_, now, *this);
    return status;
  }

  void End(absl::Status status) {
    std::shared_ptr<const google::protobuf::Message> request;
    {
      MutexLock lock(mutex_);
      request = std::move(request_);
    }
    // A hundred thousand tasks take their time to be freed, too: not the core's.
    if (request != nullptr && MethodTable::CountsParts(*admitted_bytes_)) {
      adaptor_.methods_.pool().Run(peer(), CallPool::Length::kShort, [request = std::move(request)] {});
    }
    request.reset();
    request_bytes_.Clear();
    status = Enter(std::move(status));
    if (IsRefusal(status)) {
      adaptor_.refusals_.Info(adaptor_.clock_.Now(), "{} from {} is refused: {}", method_.name, context_.peer(),
                              std::string(status.message()));
    }
    if (const std::optional<absl::Duration> pause = RetryAfter(status)) {
      context_.AddTrailingMetadata(kRetryHeader, RetryHeaderValue(*pause));
    }
    // In this order: once the last call is finished, a server that shuts down may destroy the adaptor.
    if (admitted_bytes_) adaptor_.methods_.Leave(*caller_, *admitted_bytes_);
    adaptor_.End();
    Finish(ToGrpcStatus(status));
  }

  UnaryAdaptor& adaptor_;
  const ServedMethod& method_;
  const CallId id_;
  grpc::CallbackServerContext& context_;
  grpc::ByteBuffer& request_bytes_;
  grpc::ByteBuffer& answer_;
  AnswerClient client_;
  IdentityPtr caller_;
  std::optional<int64_t> admitted_bytes_;
  AnswerEntry* entry_ = nullptr;
  std::unique_ptr<google::protobuf::Message> response_;
  std::atomic<int> num_refs_ = 1;
  Mutex mutex_;
  // Null before it is parsed and once it was answered.
  std::unique_ptr<google::protobuf::Message> request_ GUARDED_BY(mutex_);
  bool is_waiting_ GUARDED_BY(mutex_) = false;
  bool is_dispatched_ GUARDED_BY(mutex_) = false;
  bool is_cancelled_ GUARDED_BY(mutex_) = false;
};

grpc::ServerUnaryReactor* UnaryAdaptor::Serve(const ServedMethod& method, grpc::CallbackServerContext& context,
                                              grpc::ByteBuffer& request, grpc::ByteBuffer& response) {
  {
    MutexLock lock(mutex_);
    ++num_open_;
  }
  auto* call = new Call(*this, method, context, request, response);
  call->Serve();
  return call;
}

bool UnaryAdaptor::WaitUntilIdle(absl::Duration timeout) {
  const absl::Time end = clock_.Now() + timeout;
  MutexLock lock(mutex_);
  for (absl::Duration left = timeout; num_open_ > 0 && left > absl::ZeroDuration(); left = end - clock_.Now()) {
    idle_.WaitFor(mutex_, left);
  }
  return num_open_ == 0;
}

void UnaryAdaptor::End() {
  MutexLock lock(mutex_);
  if (--num_open_ == 0) idle_.NotifyAll();
}

}  // namespace sheaf
