#include "bench/sync_loop.h"

#include <fmt/format.h>

#include "base/status_macros.h"
#include "bench/rounds.h"
#include "sdk/cpp/client/grpc_transport.h"

namespace sheaf::bench {
namespace {

// One worker on a connection of its own.
class SyncCaller final : public Caller {
 public:
  SyncCaller(const std::string& address, const ChannelOptions& options, int worker, int batch,
             const std::string& contribution)
      : transport_(address, options),
        name_(fmt::format("worker-{}", worker)),
        batch_(batch),
        contribution_(contribution) {}

  void Next(Answered answered) override {
    v1::SyncRequest request = APoll(name_, ++num_polls_, batch_, absl::Seconds(5));
    for (const v1::Lease& lease : response_.leases()) AddResult(lease, contribution_, request);
    response_.Clear();
    transport_.CallMethod(kSync.name, request, &response_, {}, [this, answered](absl::Status status) {
      if (!status.ok()) return answered(std::move(status));
      int64_t num_accepted = 0;
      for (const v1::ResultVerdict& verdict : response_.verdicts()) {
        if (verdict.verdict() != v1::ResultVerdict::ACCEPTED) {
          return answered(
              absl::InternalError(fmt::format("a result was not accepted: {}", verdict.ShortDebugString())));
        }
        ++num_accepted;
      }
      answered(num_accepted);
    });
  }

 private:
  v1::SyncResponse response_;
  GrpcTransport transport_;
  const std::string name_;
  const int batch_;
  const std::string& contribution_;
  int64_t num_polls_ = 0;
};

}  // namespace

absl::StatusOr<LoopResult> RunSyncLoop(const Setup& setup, const std::vector<const ChildProcess*>& servers,
                                       const SyncLoad& load, const ChannelSecurity& security) {
  const ChannelOptions options = {.security = security, .own_connection = true};
  {
    GrpcTransport submitter(servers.front()->address(), options);
    for (int i = 0; i < load.num_rounds; ++i) {
      RETURN_IF_ERROR(CreateRound(submitter, fmt::format("round-{}", i), load.tasks_per_round).status());
    }
  }
  const std::string contribution = AContribution();
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < load.workers; ++i) {
    const ChildProcess& server = *servers[static_cast<size_t>(i) % servers.size()];
    callers.push_back(std::make_unique<SyncCaller>(server.address(), options, i, load.batch, contribution));
  }
  return RunClosedLoop(setup.clock, callers,
                       {.duration = setup.duration, .parts = load.parts, .other_cpu_time = load.other_cpu_time}, [&] {
                         absl::Duration cpu_time;
                         for (const ChildProcess* server : servers) cpu_time += server->cpu_time();
                         return cpu_time;
                       });
}

}  // namespace sheaf::bench
