#include "tests/e2e/rpc_relay.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <grpc/support/time.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/check.h"
#include "tests/sdk/little_http_server.h"

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

// The messages of a call, if there is such a method.
struct Messages {
  explicit Messages(const std::string& path) {
    const google::protobuf::MethodDescriptor* method = Find(path);
    if (method == nullptr) return;
    request = New(*method->input_type());
    response = New(*method->output_type());
  }
  std::unique_ptr<Message> request;
  std::unique_ptr<Message> response;
};

// One call of gRPC. Deletes itself when gRPC is done with it.
class Passage final : public grpc::ServerGenericBidiReactor {
 public:
  Passage(Transport& to, std::string path) : to_(to), path_(std::move(path)) { StartRead(&received_); }

  void OnReadDone(bool ok) override {
    if (!ok || messages_.request == nullptr) return Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, path_));
    grpc::Slice slice;
    if (!received_.DumpToSingleSlice(&slice).ok() ||
        !messages_.request->ParseFromArray(slice.begin(), static_cast<int>(slice.size()))) {
      return Finish(grpc::Status(grpc::StatusCode::INTERNAL, "the relay cannot read " + path_));
    }
    to_.CallMethod(
        path_.substr(1), *messages_.request, messages_.response.get(), {.timeout = kTimeout},
        [this](const absl::Status& status) {
          if (!status.ok()) {
            return Finish(grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message())));
          }
          const grpc::Slice bytes(messages_.response->SerializeAsString());
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
  const Messages messages_{path_};
};

// One call of Connect, in the thread of its connection.
void PassOn(Transport& to, const LittleHttpServer::Request& request, LittleHttpServer::Peer& peer) {
  const size_t begin = request.head.find(' ') + 1;
  const std::string path = request.head.substr(begin, request.head.find(' ', begin) - begin);
  // What clients ask for while the server is away.
  if (path == "/readyz") {
    peer.Answer("200 OK", "text/plain", "ok");
    return;
  }
  const Messages messages(path);
  absl::Status status = absl::UnimplementedError(path);
  if (messages.request != nullptr && messages.request->ParseFromString(request.body)) {
    status = BlockingCallMethod(to, path.substr(1), *messages.request, messages.response.get(), {.timeout = kTimeout});
  }
  if (status.ok()) {
    peer.Answer("200 OK", "application/proto", messages.response->SerializeAsString());
    return;
  }
  std::string code = absl::AsciiStrToLower(absl::StatusCodeToString(status.code()));
  if (code == "cancelled") code = "canceled";
  const nlohmann::json error = {{"code", code}, {"message", std::string(status.message())}};
  peer.Answer("500 Internal Server Error", "application/json", error.dump());
}

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
  std::string target;
  // Of them one.
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<LittleHttpServer> http_server;
};

RpcRelay::RpcRelay(Transport& to, Protocol protocol) : state_(std::make_unique<State>(to)) {
  if (protocol == Protocol::kHttp) {
    state_->http_server = std::make_unique<LittleHttpServer>(
        [&to](const LittleHttpServer::Request& request, LittleHttpServer::Peer& peer) { PassOn(to, request, peer); });
    state_->target = fmt::format("127.0.0.1:{}", state_->http_server->port());
    return;
  }
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.RegisterCallbackGenericService(&state_->relay);
  state_->server = builder.BuildAndStart();
  SHEAF_CHECK(state_->server != nullptr, "no port for the relay");
  state_->target = fmt::format("127.0.0.1:{}", port);
}

RpcRelay::~RpcRelay() {
  if (state_->server == nullptr) return;
  state_->server->Shutdown(gpr_time_0(GPR_CLOCK_MONOTONIC));
  state_->server->Wait();
}

const std::string& RpcRelay::target() const { return state_->target; }

}  // namespace sheaf
