#include "tests/golden/wire_calls.h"

#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>

#include <future>

namespace sheaf::golden {

WireCalls::WireCalls(const std::string& address)
    : stub_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())) {}

WireAnswer WireCalls::Call(const std::string& method, const std::string& request_bytes,
                           const std::string& authorization) {
  grpc::ClientContext context;
  context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(30, GPR_TIMESPAN)));
  if (!authorization.empty()) context.AddMetadata("authorization", authorization);
  const grpc::Slice slice(request_bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> done;
  stub_.UnaryCall(&context, "/" + method, {}, &request, &response,
                  [&done](grpc::Status status) { done.set_value(std::move(status)); });
  const grpc::Status status = done.get_future().get();
  WireAnswer answer;
  answer.status = absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  grpc::Slice bytes;
  if (status.ok() && response.DumpToSingleSlice(&bytes).ok()) {
    answer.response_bytes.assign(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
  }
  for (const auto& [name, value] : context.GetServerTrailingMetadata()) {
    const std::string key(name.data(), name.size());
    if (key.starts_with("grpc-retry") || key.starts_with("sheaf")) answer.trailing[key] = {value.data(), value.size()};
  }
  return answer;
}

}  // namespace sheaf::golden
