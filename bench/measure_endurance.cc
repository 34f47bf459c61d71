// Ten thousand small rounds: what the server's memory and its store grow to.
#include <fmt/format.h>

#include <filesystem>

#include "base/status_macros.h"
#include "bench/bench.h"
#include "bench/noop_workers.h"
#include "bench/rounds.h"
#include "sdk/cpp/client/grpc_transport.h"

namespace sheaf::bench {
namespace {

constexpr int kWorkers = 4;
constexpr int kRounds = 10'000;
// Rounds that are kept: reached well before the first look.
constexpr int kKept = 500;

double Mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

int64_t BytesBelow(const std::string& directory) {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    std::error_code error;
    const auto size = entry.is_regular_file(error) ? entry.file_size(error) : 0;
    if (!error) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

}  // namespace

absl::Status MeasureEndurance(const Setup& setup, Table& table) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> server,
                   StartSheafd(setup, {"--ended-rounds-max", fmt::format("{}", kKept)}));
  GrpcTransport submitter(server->address(), {.own_connection = true});
  const NoopWorkers workers(server->address(), kWorkers, [] {});
  for (int i = 1; i <= kRounds; ++i) {
    RETURN_IF_ERROR(RunRound(submitter, fmt::format("round-{}", i), kWorkers));
    if (i != kRounds / 10 && i != kRounds / 2 && i != kRounds) continue;
    table.Add({.what = fmt::format("after {} rounds of {} tasks, of which {} are kept", i, kWorkers, kKept),
               .figure = fmt::format("RSS {:.1f} MiB, store {:.1f} MiB", Mebibytes(server->rss_bytes()),
                                     Mebibytes(BytesBelow(setup.directory))),
               .ratio = "",
               .target = "flat +-5 %"});
  }
  return absl::OkStatus();
}

}  // namespace sheaf::bench
