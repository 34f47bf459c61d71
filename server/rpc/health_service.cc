#include "server/rpc/health_service.h"

#include <fmt/format.h>
#include <google/protobuf/wrappers.pb.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <optional>
#include <utility>
#include <vector>

#include "server/rpc/grpc_call.h"

namespace sheaf {
namespace {

// The messages are {string service = 1} and {enum status = 1}: the wrappers have the same bytes.
std::optional<std::string> ServiceIn(grpc::ByteBuffer request) {
  google::protobuf::StringValue message;
  grpc::ProtoBufferReader stream(&request);
  if (!stream.status().ok() || !message.ParseFromZeroCopyStream(&stream)) return {};
  return message.value();
}

grpc::ByteBuffer Answer(int status) {
  google::protobuf::Int32Value message;
  message.set_value(status);
  grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

const grpc::Status kMalformed(grpc::StatusCode::INVALID_ARGUMENT, "the request is not a HealthCheckRequest");

}  // namespace

// One stream. Either something of it is under way, a write or its end, or somebody may begin that.
class HealthService::Watch final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  // Ends at once.
  explicit Watch(const grpc::Status& refusal) { Finish(refusal); }
  Watch(HealthService& health, std::string service) : health_(&health), service_(std::move(service)) {}

  // What has changed since the last write is written, or the end if it is time for that.
  void Go() {
    grpc::Status end;
    {
      MutexLock lock(health_->mutex_);
      if (is_busy_) return;
      const Status status = health_->StatusOf(service_);
      is_ending_ = is_cancelled_ || health_->is_shut_down_;
      if (!is_ending_ && status == told_) return;
      is_busy_ = true;
      told_ = status;
      answer_ = Answer(static_cast<int>(status));
      if (is_cancelled_) end = grpc::Status(grpc::StatusCode::CANCELLED, "the caller has gone");
      if (!is_cancelled_ && is_ending_) end = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server stops");
    }
    // Outside of the lock: gRPC may react at once.
    is_ending_ ? Finish(end) : StartWrite(&answer_);
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(health_->mutex_);
      is_busy_ = false;
      is_cancelled_ = is_cancelled_ || !ok;
    }
    Go();
  }
  void OnCancel() override {
    if (health_ == nullptr) return;
    {
      MutexLock lock(health_->mutex_);
      is_cancelled_ = true;
    }
    Go();
  }
  void OnDone() override {
    if (health_ == nullptr) {
      delete this;
      return;
    }
    std::shared_ptr<Watch> self;
    MutexLock lock(health_->mutex_);
    self = std::move(health_->watches_.at(this));
    health_->watches_.erase(this);
  }

 private:
  // Null: refused.
  HealthService* const health_ = nullptr;
  const std::string service_;
  // Of the service's lock, but for who has made itself busy.
  std::optional<Status> told_;
  bool is_busy_ = false;
  bool is_cancelled_ = false;
  bool is_ending_ = false;
  grpc::ByteBuffer answer_;
};

HealthService::HealthService(const CallPipeline& pipeline) : pipeline_(pipeline) {
  AddUnary("/grpc.health.v1.Health/Check",
           [this](grpc::CallbackServerContext& context, const grpc::ByteBuffer& request, grpc::ByteBuffer& response) {
             return Check(context, request, response);
           });
  AddServerStream("/grpc.health.v1.Health/Watch",
                  [this](const grpc::ByteBuffer& request) { return StartWatch(request); });
}

HealthService::Status HealthService::StatusOf(const std::string& service) const {
  const auto found = is_serving_.find(service);
  if (found == is_serving_.end()) return Status::kServiceUnknown;
  return found->second && !is_shut_down_ ? Status::kServing : Status::kNotServing;
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext& context, const grpc::ByteBuffer& request,
                                               grpc::ByteBuffer& response) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  const std::optional<std::string> service = ServiceIn(request);
  if (!service) {
    reactor->Finish(kMalformed);
    return reactor;
  }
  Status status;
  {
    MutexLock lock(mutex_);
    status = StatusOf(*service);
  }
  if (status == Status::kServiceUnknown) {
    reactor->Finish(
        grpc::Status(grpc::StatusCode::NOT_FOUND, fmt::format("there is no service {}", service->substr(0, 128))));
    return reactor;
  }
  response = Answer(static_cast<int>(status));
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* HealthService::StartWatch(const grpc::ByteBuffer& request) {
  std::optional<std::string> service = ServiceIn(request);
  if (!service) return new Watch(kMalformed);
  // It is kept while the watch lasts. No service has such a name.
  if (service->size() > 256) service = "(a name that is too long)";
  const Limits& limits = pipeline_.limits();
  std::shared_ptr<Watch> watch;
  {
    MutexLock lock(mutex_);
    if (static_cast<int64_t>(watches_.size()) < limits.health_watches_max) {
      watch = std::make_shared<Watch>(*this, *std::move(service));
      watches_[watch.get()] = watch;
    }
  }
  if (watch == nullptr) {
    return new Watch(ToGrpcStatus(limits.Refuse(&Limits::health_watches_max, "one more health watch would be over")));
  }
  watch->Go();
  return watch.get();
}

std::vector<std::shared_ptr<HealthService::Watch>> HealthService::Watches() const {
  std::vector<std::shared_ptr<Watch>> watches;
  for (const auto& [key, watch] : watches_) watches.push_back(watch);
  return watches;
}

void HealthService::SetServing(const std::string& service, bool is_serving) {
  std::vector<std::shared_ptr<Watch>> told;
  {
    MutexLock lock(mutex_);
    is_serving_[service] = is_serving;
    told = Watches();
  }
  for (const auto& watch : told) watch->Go();
}

void HealthService::Shutdown() {
  std::vector<std::shared_ptr<Watch>> told;
  {
    MutexLock lock(mutex_);
    is_shut_down_ = true;
    told = Watches();
  }
  for (const auto& watch : told) watch->Go();
}

}  // namespace sheaf
