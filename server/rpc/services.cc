#include "server/rpc/services.h"

#include <utility>

#include "server/rpc/grpc_call.h"

namespace sheaf {
namespace {

class RowsService final : public RawService {
 public:
  void Add(CallPipeline& pipeline, const MethodRow& method, const std::string& forward_secret) {
    using grpc::ByteBuffer;
    using grpc::CallbackServerContext;
    const std::string path = "/" + method.name;
    if (forward_secret.empty()) {
      AddUnary(path, [&pipeline, &method](CallbackServerContext& context, ByteBuffer& request, ByteBuffer& answer) {
        return StartGrpcCall(pipeline, method, context, request, answer);
      });
    } else {
      AddUnary(path, [&pipeline, &method, forward_secret](CallbackServerContext& context, ByteBuffer& request,
                                                          ByteBuffer& answer) {
        return StartForwardedGrpcCall(pipeline, method, context, request, answer, forward_secret);
      });
    }
  }
};

}  // namespace

std::vector<NamedService> MakeServices(CallPipeline& pipeline, const std::string& forward_secret) {
  std::vector<NamedService> services;
  std::unique_ptr<RowsService> service;
  const std::vector<MethodRow>& rows = pipeline.methods().rows();
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto service_of = [](const MethodRow& row) { return row.name.substr(0, row.name.find('/')); };
    if (service == nullptr) service = std::make_unique<RowsService>();
    service->Add(pipeline, rows[i], forward_secret);
    // The rows of one service stand together.
    if (i + 1 < rows.size() && service_of(rows[i + 1]) == service_of(rows[i])) continue;
    services.push_back({service_of(rows[i]), std::exchange(service, nullptr)});
  }
  return services;
}

}  // namespace sheaf
