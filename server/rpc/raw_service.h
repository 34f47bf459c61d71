// RawService: a gRPC service whose messages are bytes, method by method, as the generated classes would make it for
// messages. Nobody has parsed a request before the method has it.
//
//   class Health final : public RawService {
//    public:
//     Health() {
//       AddUnary("/grpc.health.v1.Health/Check",
//                [](grpc::CallbackServerContext& context, grpc::ByteBuffer& request, grpc::ByteBuffer& answer) {
//                  answer = request;
//                  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
//                  reactor->Finish(grpc::Status::OK);
//                  return reactor;
//                });
//     }
//   };
//
// The one place that names what gRPC calls internal: the same calls that gRPC's generated code makes, which lives
// outside of gRPC, too. gRPC's public way to bytes, CallbackGenericService, serves every method as a stream in both
// directions, and costs a call more (docs/adr/0017). Methods are added by constructors; the rest is gRPC's.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <list>
#include <string>

namespace sheaf {

class RawService : public grpc::Service {
 protected:
  using Unary = std::function<grpc::ServerUnaryReactor*(grpc::CallbackServerContext& context, grpc::ByteBuffer& request,
                                                        grpc::ByteBuffer& answer)>;
  using ServerStream = std::function<grpc::ServerWriteReactor<grpc::ByteBuffer>*(const grpc::ByteBuffer& request)>;
  using BidiStream =
      std::function<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*(grpc::CallbackServerContext& context)>;

  // `path` is "/package.Service/Method". Both buffers live until the reactor is done; the request may be cleared
  // before.
  void AddUnary(const std::string& path, Unary serve);
  void AddServerStream(const std::string& path, ServerStream serve);
  void AddBidiStream(const std::string& path, BidiStream serve);

 private:
  // gRPC refers to them.
  std::list<std::string> paths_;
};

}  // namespace sheaf
