#include "bench/echo_server.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <malloc.h>

#include <cstdio>

#include "sheaf/v1/blob_service.grpc.pb.h"

namespace sheaf::bench {
namespace {

class EchoService final : public v1::BlobService::CallbackService {
  grpc::ServerUnaryReactor* QueryUpload(grpc::CallbackServerContext* context, const v1::QueryUploadRequest* request,
                                        v1::QueryUploadResponse* response) override {
    response->set_size_bytes(static_cast<int64_t>(request->upload_id().size()));
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* WriteChunk(grpc::CallbackServerContext* context, const v1::WriteChunkRequest* request,
                                       v1::WriteChunkResponse* response) override {
    response->set_committed_bytes(request->offset() + static_cast<int64_t>(request->data().size()));
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

}  // namespace

void ServeEcho() {
  // As sheafd does: large requests shall not cost it more.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  EchoService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  fmt::print("listening on 127.0.0.1:{}\n", port);
  std::fflush(stdout);
  server->Wait();
}

}  // namespace sheaf::bench
