// Memory of a server that waits: alone, and with parked workers.
#include <fmt/format.h>

#include "base/status_macros.h"
#include "bench/bench.h"
#include "bench/noop_workers.h"
#include "sdk/cpp/client/grpc_transport.h"

namespace sheaf::bench {
namespace {

constexpr int kParked = 500;

}  // namespace

absl::Status MeasureIdle(const Setup& setup, Table& table) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> server, StartSheafd(setup));
  GrpcTransport transport(server->address(), {.own_connection = true});
  RETURN_IF_ERROR(BlockingCall(transport, kGetServerInfo, {}).status());
  const int64_t idle = server->rss_bytes();
  const NoopWorkers workers(server->address(), kParked, [] {});
  RETURN_IF_ERROR(WaitForParkedPolls(transport, kParked));
  const int64_t parked = server->rss_bytes();
  table.Add({.what = "memory of an idle server (RSS)",
             .figure = fmt::format("{:.1f} MiB", static_cast<double>(idle) / (1 << 20)),
             .ratio = "",
             .target = ""});
  table.Add({.what = fmt::format("each of {} parked workers, a connection each", kParked),
             .figure = fmt::format("{:.1f} KiB", static_cast<double>(parked - idle) / kParked / 1024),
             .ratio = "",
             .target = "<= 20 KiB"});
  return absl::OkStatus();
}

}  // namespace sheaf::bench
