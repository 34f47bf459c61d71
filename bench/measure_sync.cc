// Sync cycles: closed loops of workers that hand in what they hold and take as many again.
#include <fmt/format.h>

#include "base/status_macros.h"
#include "bench/bench.h"
#include "bench/closed_loop.h"
#include "bench/sync_loop.h"
#include "sdk/cpp/client/grpc_transport.h"

namespace sheaf::bench {
namespace {

class EchoCaller final : public Caller {
 public:
  explicit EchoCaller(const std::string& address) : transport_(address, {.own_connection = true}) {
    request_.set_upload_id(std::string(64, 'u'));
  }
  void Next(Answered answered) override {
    transport_.CallMethod(kQueryUpload.name, request_, &response_, {}, [answered](absl::Status status) {
      if (!status.ok()) return answered(std::move(status));
      answered(1);
    });
  }

 private:
  v1::QueryUploadRequest request_;
  v1::QueryUploadResponse response_;
  GrpcTransport transport_;
};

struct Case {
  SyncLoad load;
  absl::Duration flush_delay;
  std::string target;
};

absl::StatusOr<LoopResult> RunEcho(const Setup& setup, int workers) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> server, StartEcho(setup));
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < workers; ++i) callers.push_back(std::make_unique<EchoCaller>(server->address()));
  return RunClosedLoop(setup.clock, callers, {.duration = setup.duration}, [&] { return server->cpu_time(); });
}

absl::Status MeasureCase(const Setup& setup, const Case& c, Table& table) {
  const std::string flush =
      c.flush_delay == absl::ZeroDuration() ? "" : fmt::format(", flush +{}", absl::FormatDuration(c.flush_delay));
  const std::string what = fmt::format("{} workers, {} per Sync{}", c.load.workers, c.load.batch, flush);
  if (what.find(setup.row) == std::string::npos) return absl::OkStatus();
  std::vector<double> tasks, cpu, ratios, echo_rates, echo_cpu;
  for (int i = 0; i < setup.repeats; ++i) {
    ASSIGN_OR_RETURN(const LoopResult echo, RunEcho(setup, c.load.workers));
    ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> server, StartSheafd(setup, {}, c.flush_delay));
    ASSIGN_OR_RETURN(const LoopResult sync, RunSyncLoop(setup, {server.get()}, c.load, {}));
    tasks.push_back(sync.units_per_second());
    cpu.push_back(sync.cpu_micros_per_unit());
    ratios.push_back(sync.units_per_second() / echo.units_per_second());
    echo_rates.push_back(echo.units_per_second());
    echo_cpu.push_back(echo.cpu_micros_per_unit());
  }
  table.Add({.what = what,
             .figure = fmt::format("{:.0f} tasks/s, {:.3f} ms server CPU per task", Quantile(tasks, 0.5),
                                   Quantile(cpu, 0.5) / 1000),
             .ratio = fmt::format("{:.2f}x of {:.0f} echoes/s at {:.3f} ms", Quantile(ratios, 0.5),
                                  Quantile(echo_rates, 0.5), Quantile(echo_cpu, 0.5) / 1000),
             .target = c.target});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureSync(const Setup& setup, Table& table) {
  std::vector<Case> cases = {
      {{1, 1, 1, 50'000}, absl::ZeroDuration(), ""},
      {{8, 1, 1, 100'000}, absl::ZeroDuration(), ""},
      {{64, 1, 2, 100'000}, absl::ZeroDuration(), ">= 0.2x, <= 0.05 ms"},
      {{1, 16, 2, 100'000}, absl::ZeroDuration(), ""},
      {{8, 16, 3, 100'000}, absl::ZeroDuration(), ""},
      {{64, 16, 3, 100'000}, absl::ZeroDuration(), ">= 0.7x"},
  };
  if (!setup.slow_flush.empty()) {
    cases.push_back({{64, 1, 2, 100'000}, absl::Milliseconds(1), ">= 11 k/s"});
    cases.push_back({{64, 16, 3, 100'000}, absl::Milliseconds(1), ">= 30 k/s"});
  }
  for (const Case& c : cases) RETURN_IF_ERROR(MeasureCase(setup, c, table));
  return absl::OkStatus();
}

}  // namespace sheaf::bench
