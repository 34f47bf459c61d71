#include "server/rpc/services.h"

#include <fmt/format.h>
#include <google/protobuf/message.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <list>

#include "sheaf/v1/access_service.pb.h"
#include "sheaf/v1/blob_service.pb.h"
#include "sheaf/v1/inspection_service.pb.h"
#include "sheaf/v1/round_service.pb.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf {
namespace {

using google::protobuf::MessageFactory;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;

const google::protobuf::Message& Prototype(const google::protobuf::Descriptor& type) {
  return *MessageFactory::generated_factory()->GetPrototype(&type);
}

// What the generated classes do, but with bytes in place of messages.
class DescribedService final : public grpc::Service {
 public:
  DescribedService(const ServiceDescriptor& service, UnaryAdaptor& adaptor) {
    for (int i = 0; i < service.method_count(); ++i) {
      const MethodDescriptor& method = *service.method(i);
      const ServedMethod& served = methods_.emplace_back(
          ServedMethod{.name = fmt::format("{}/{}", service.full_name(), method.name()),
                       .path = fmt::format("/{}/{}", service.full_name(), method.name()),
                       .request = Prototype(*method.input_type()),
                       .response = Prototype(*method.output_type()),
                       .traits = adaptor.methods().TraitsOf(fmt::format("{}/{}", service.full_name(), method.name()))});
      // Both become gRPC's own.
      AddMethod(
          new grpc::internal::RpcServiceMethod(served.path.c_str(), grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
      MarkMethodRawCallback(i, new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                                   [&adaptor, &served](grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
                                     // It is the call's, which lets go of it only at its end, long after we have parsed
                                     // it. It is no constant.
                                     return adaptor.Serve(served, *context, const_cast<grpc::ByteBuffer&>(*request),
                                                          *response);
                                   }));
    }
  }

 private:
  // Referred to by the handlers, and by gRPC.
  std::list<ServedMethod> methods_;
};

}  // namespace

std::vector<NamedService> MakeServices(UnaryAdaptor& adaptor) {
  std::vector<NamedService> services;
  for (const auto* file : {v1::SyncRequest::descriptor()->file(), v1::ReadBlobRequest::descriptor()->file(),
                           v1::GetRoundRequest::descriptor()->file(), v1::GetTaskRequest::descriptor()->file(),
                           v1::CreateTokenRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      services.push_back(
          {file->service(i)->full_name(), std::make_unique<DescribedService>(*file->service(i), adaptor)});
    }
  }
  return services;
}

}  // namespace sheaf
