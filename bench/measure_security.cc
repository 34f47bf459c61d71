// What it costs to be safe: the same Sync cycles in the clear without a token, with one, over TLS, and over TLS with
// certificates on both sides, in turns.
#include <fmt/format.h>

#include "base/status_macros.h"
#include "bench/bench.h"
#include "bench/http_served.h"
#include "bench/self_signed.h"
#include "bench/sync_loop.h"

namespace sheaf::bench {
namespace {

struct Case {
  const char* name;
  bool has_token;
  bool has_tls;
  bool has_client_certificate;
};
constexpr Case kCases[] = {{"in the clear, anonymous", false, false, false},
                           {"in the clear, token", true, false, false},
                           {"TLS, token", true, true, false},
                           {"mTLS, token", true, true, true}};

absl::StatusOr<LoopResult> RunCase(const Setup& setup, const Case& c, const SelfSigned& identity,
                                   const SyncLoad& load) {
  std::vector<std::string> options;
  ChannelSecurity security;
  if (c.has_tls) {
    options = {"--tls-cert", identity.certificate, "--tls-key", identity.key};
    security.tls_ca = identity.certificate;
  }
  if (c.has_client_certificate) {
    options.insert(options.end(), {"--tls-client-ca", identity.certificate});
    security.tls_cert = identity.certificate;
    security.tls_key = identity.key;
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> server, StartSheafd(setup, options));
  if (c.has_token) {
    ASSIGN_OR_RETURN(security.token_file, MakeToken(setup, *server, security, "bench", {v1::OPERATOR}));
    ASSIGN_OR_RETURN(security.token_file, MakeToken(setup, *server, security, "bench", {v1::SUBMITTER, v1::WORKER}));
  }
  return RunSyncLoop(setup, {server.get()}, load, security);
}

absl::Status MeasureLoad(const Setup& setup, const SelfSigned& identity, const SyncLoad& load, Table& table) {
  struct Figures {
    std::vector<double> rates, cpu, ratios;
  };
  std::vector<Figures> figures(std::size(kCases));
  for (int i = 0; i < setup.repeats; ++i) {
    double bare = 0;
    for (size_t k = 0; k < std::size(kCases); ++k) {
      ASSIGN_OR_RETURN(const LoopResult result, RunCase(setup, kCases[k], identity, load));
      figures[k].rates.push_back(result.units_per_second());
      figures[k].cpu.push_back(result.cpu_micros_per_unit());
      if (k == 0) bare = result.cpu_micros_per_unit();
      figures[k].ratios.push_back(result.cpu_micros_per_unit() / bare);
    }
  }
  for (size_t k = 0; k < std::size(kCases); ++k) {
    Figures& f = figures[k];
    table.Add({.what = fmt::format("{} workers, {} per Sync, {}", load.workers, load.batch, kCases[k].name),
               .figure = fmt::format("{:.0f} tasks/s, {:.3f} ms server CPU per task", Quantile(f.rates, 0.5),
                                     Quantile(f.cpu, 0.5) / 1000),
               .ratio = k == 0 ? "" : fmt::format("{:.2f}x the CPU of anonymous in the clear", Quantile(f.ratios, 0.5)),
               .target = ""});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureSecurity(const Setup& setup, Table& table) {
  ASSIGN_OR_RETURN(const SelfSigned identity, MakeSelfSigned(setup));
  RETURN_IF_ERROR(MeasureLoad(setup, identity, {64, 1, 2, 100'000}, table));
  return MeasureLoad(setup, identity, {64, 16, 3, 100'000}, table);
}

}  // namespace sheaf::bench
