#include "server/rpc/services.h"

#include <utility>

#include "server/rpc/grpc_call.h"

namespace sheaf {
namespace {

class RowsService final : public RawService {
 public:
  void Add(CallPipeline& pipeline, const MethodRow& method) {
    AddUnary("/" + method.name, [&pipeline, &method](grpc::CallbackServerContext& context, grpc::ByteBuffer& request,
                                                     grpc::ByteBuffer& answer) {
      return StartGrpcCall(pipeline, method, context, request, answer);
    });
  }
};

}  // namespace

std::vector<NamedService> MakeServices(CallPipeline& pipeline) {
  std::vector<NamedService> services;
  std::unique_ptr<RowsService> service;
  const std::vector<MethodRow>& rows = pipeline.methods().rows();
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto service_of = [](const MethodRow& row) { return row.name.substr(0, row.name.find('/')); };
    if (service == nullptr) service = std::make_unique<RowsService>();
    service->Add(pipeline, rows[i]);
    // The rows of one service stand together.
    if (i + 1 < rows.size() && service_of(rows[i + 1]) == service_of(rows[i])) continue;
    services.push_back({service_of(rows[i]), std::exchange(service, nullptr)});
  }
  return services;
}

}  // namespace sheaf
