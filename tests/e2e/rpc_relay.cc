#include "tests/e2e/rpc_relay.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <grpc/support/time.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sheaf {
namespace {

using google::protobuf::Message;

// Longer than any call of a worker.
constexpr absl::Duration kTimeout = absl::Seconds(45);

std::unique_ptr<Message> New(const google::protobuf::Descriptor& type) {
  return std::unique_ptr<Message>(google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
}

// "/sheaf.v1.WorkService/Sync" is "sheaf.v1.WorkService.Sync" among the descriptors.
const google::protobuf::MethodDescriptor* Find(std::string path) {
  path.erase(0, 1);
  std::replace(path.begin(), path.end(), '/', '.');
  return google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(path);
}

// One call. Deletes itself when gRPC is done with it.
class Passage final : public grpc::ServerGenericBidiReactor {
 public:
  Passage(Transport& to, std::string path) : to_(to), path_(std::move(path)) { StartRead(&received_); }

  void OnReadDone(bool ok) override {
    const google::protobuf::MethodDescriptor* method = Find(path_);
    if (!ok || method == nullptr) return Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, path_));
    request_ = New(*method->input_type());
    response_ = New(*method->output_type());
    grpc::Slice slice;
    if (!received_.DumpToSingleSlice(&slice).ok() ||
        !request_->ParseFromArray(slice.begin(), static_cast<int>(slice.size()))) {
      return Finish(grpc::Status(grpc::StatusCode::INTERNAL, "the relay cannot read " + path_));
    }
    to_.CallMethod(
        path_.substr(1), *request_, response_.get(), {.timeout = kTimeout}, [this](const absl::Status& status) {
          if (!status.ok()) {
            return Finish(grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message())));
          }
          const grpc::Slice bytes(response_->SerializeAsString());
          sent_ = grpc::ByteBuffer(&bytes, 1);
          StartWriteAndFinish(&sent_, grpc::WriteOptions(), grpc::Status::OK);
        });
  }
  void OnDone() override { delete this; }

 private:
  Transport& to_;
  const std::string path_;
  grpc::ByteBuffer received_;
  grpc::ByteBuffer sent_;
  std::unique_ptr<Message> request_;
  std::unique_ptr<Message> response_;
};

class Relay final : public grpc::CallbackGenericService {
 public:
  explicit Relay(Transport& to) : to_(to) {}
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    return new Passage(to_, context->method());
  }

 private:
  Transport& to_;
};

}  // namespace

struct RpcRelay::State {
  explicit State(Transport& to) : relay(to) {}

  Relay relay;
  std::string address;
  std::unique_ptr<grpc::Server> server;
};

RpcRelay::RpcRelay(Transport& to) : state_(std::make_unique<State>(to)) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.RegisterCallbackGenericService(&state_->relay);
  state_->server = builder.BuildAndStart();
  SHEAF_CHECK(state_->server != nullptr, "no port for the relay");
  state_->address = fmt::format("127.0.0.1:{}", port);
}

RpcRelay::~RpcRelay() {
  state_->server->Shutdown(gpr_time_0(GPR_CLOCK_MONOTONIC));
  state_->server->Wait();
}

const std::string& RpcRelay::address() const { return state_->address; }

}  // namespace sheaf
