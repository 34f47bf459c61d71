#include "server/rpc/raw_service.h"

#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/rpc_service_method.h>

#include <utility>

namespace sheaf {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;
using grpc::internal::RpcMethod;
using grpc::internal::RpcServiceMethod;

// The methods and handlers become gRPC's own. A handler is for the method that was added last.

void RawService::AddUnary(const std::string& path, Unary serve) {
  paths_.push_back(path);
  AddMethod(new RpcServiceMethod(paths_.back().c_str(), RpcMethod::NORMAL_RPC, nullptr));
  MarkMethodRawCallback(
      static_cast<int>(paths_.size()) - 1,
      new grpc::internal::CallbackUnaryHandler<ByteBuffer, ByteBuffer>(
          [serve = std::move(serve)](CallbackServerContext* context, const ByteBuffer* request, ByteBuffer* answer) {
            // It is the call's, which lets go of it only at its end, long after it was parsed. It is
            // no constant.
            return serve(*context, const_cast<ByteBuffer&>(*request), *answer);
          }));
}

void RawService::AddServerStream(const std::string& path, ServerStream serve) {
  paths_.push_back(path);
  AddMethod(new RpcServiceMethod(paths_.back().c_str(), RpcMethod::SERVER_STREAMING, nullptr));
  MarkMethodRawCallback(
      static_cast<int>(paths_.size()) - 1,
      new grpc::internal::CallbackServerStreamingHandler<ByteBuffer, ByteBuffer>(
          [serve = std::move(serve)](CallbackServerContext*, const ByteBuffer* request) { return serve(*request); }));
}

void RawService::AddBidiStream(const std::string& path, BidiStream serve) {
  paths_.push_back(path);
  AddMethod(new RpcServiceMethod(paths_.back().c_str(), RpcMethod::BIDI_STREAMING, nullptr));
  MarkMethodRawCallback(static_cast<int>(paths_.size()) - 1,
                        new grpc::internal::CallbackBidiHandler<ByteBuffer, ByteBuffer>(
                            [serve = std::move(serve)](CallbackServerContext* context) { return serve(*context); }));
}

}  // namespace sheaf
