// Rounds that never wait: what it takes when workers prepare K rounds ahead of the one that runs.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <utility>

#include "aggregation/wire/safetensors.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "bench/bench.h"
#include "bench/crowd.h"
#include "bench/http_served.h"
#include "bench/listening_workers.h"
#include "bench/noop_workers.h"
#include "bench/rounds.h"
#include "sdk/cpp/client/grpc_transport.h"
#include "sdk/cpp/client/round_client.h"
#include "sdk/cpp/program/program.h"

namespace sheaf::bench {
namespace {

constexpr int kWorkers = 8;
constexpr int kTasks = 16;
constexpr int kRounds = 8;
constexpr absl::Duration kPrepare = absl::Milliseconds(300);
constexpr absl::Duration kCompute = absl::Milliseconds(300);

std::string Folder(const std::string& file) { return std::filesystem::path(file).parent_path(); }

// Rounds of interchangeable tasks, which differ in nothing.
class SameRounds final : public Program {
 public:
  explicit SameRounds(v1::RoundSpec spec, std::string broadcast = "")
      : spec_(std::move(spec)), broadcast_(std::move(broadcast)) {}
  absl::StatusOr<v1::RoundSpec> Plan(int) override { return spec_; }
  absl::StatusOr<std::string> Broadcast(int) override { return broadcast_; }
  absl::Status Apply(int, const SafetensorsView&, const v1::Round&) override { return absl::OkStatus(); }

 private:
  const v1::RoundSpec spec_;
  const std::string broadcast_;
};

SameRounds SleepingRounds() {
  v1::RoundSpec spec = ARound("", kTasks).spec();
  spec.mutable_computation()->set_name("sleep");
  spec.mutable_open_slots()->mutable_task()->set_payload(
      fmt::format("{} {}", absl::FormatDuration(kPrepare), absl::FormatDuration(kCompute)));
  const float model[] = {1, 2, 3, 4};
  const NamedTensor tensor = {.name = "model",
                              .dtype = v1::FLOAT32,
                              .shape = {4},
                              .data = std::string(reinterpret_cast<const char*>(model), sizeof model)};
  return SameRounds(std::move(spec), EncodeSafetensors(std::vector<NamedTensor>{tensor}, {}));
}

enum class Kind { kBuiltIn, kResidentPython };

// Eight of them, which stop when the list goes.
absl::StatusOr<std::vector<std::unique_ptr<ChildProcess>>> StartWorkers(const Setup& setup, Kind kind,
                                                                        const std::string& address, int prepare_ahead) {
  std::vector<std::unique_ptr<ChildProcess>> workers;
  for (int i = 0; i < kWorkers; ++i) {
    std::vector<std::string> words;
    if (kind == Kind::kBuiltIn) {
      words = {Folder(setup.self) + "/sheaf_pipeline_worker"};
    } else {
      words = {Folder(setup.sheafd) + "/sheaf-worker", "--serve",
               fmt::format("sleep=/usr/bin/python3 -B {}", setup.python_sleeper), "--env",
               "PYTHONPATH=" + setup.python_package};
    }
    const std::vector<std::string> more = {"--server",        address,
                                           "--name",          fmt::format("sleeping-{}", i),
                                           "--prepare-ahead", fmt::format("{}", prepare_ahead),
                                           "--log-level",     "warning"};
    words.insert(words.end(), more.begin(), more.end());
    ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> worker,
                     ChildProcess::Start({.words = words, .variables = {}, .cpu = {}, .listens = false}));
    workers.push_back(std::move(worker));
  }
  return workers;
}

absl::Status WaitForWorkers(Transport& transport) {
  for (int tries = 0; tries < 2'000; ++tries) {
    v1::ListWorkersRequest request;
    ASSIGN_OR_RETURN(const v1::ListWorkersResponse listed, BlockingCall(transport, kListWorkers, request));
    if (listed.workers_size() == kWorkers) return absl::OkStatus();
    Pause(absl::Milliseconds(5));
  }
  return absl::DeadlineExceededError("the workers did not come");
}

// Milliseconds of each round but the first two: nothing was ahead of the first, and processes start in it.
absl::StatusOr<std::vector<double>> SleepingMillis(const Setup& setup, Kind kind, int ahead, int prepare_ahead) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> server, StartSheafd(setup));
  ASSIGN_OR_RETURN(const auto workers, StartWorkers(setup, kind, server->address(), prepare_ahead));
  GrpcTransport submitter(server->address(), {.own_connection = true});
  RETURN_IF_ERROR(WaitForWorkers(submitter));
  SeededRandom random(static_cast<uint64_t>(absl::ToUnixNanos(setup.clock.Now())));
  SameRounds program = SleepingRounds();
  ASSIGN_OR_RETURN(const std::vector<RoundOutcome> outcomes,
                   RunProgram({submitter, setup.clock, random}, program, {.rounds = kRounds, .ahead = ahead}));
  std::vector<double> millis;
  for (const RoundOutcome& outcome : outcomes) {
    if (outcome.number > 2) millis.push_back(absl::ToDoubleMilliseconds(outcome.timings.Total()));
  }
  for (const auto& worker : workers) worker->Stop();
  return millis;
}

absl::Status MeasureSleeping(const Setup& setup, Kind kind, Table& table) {
  struct Row {
    int ahead;
    int prepare_ahead;
    const char* target;
  };
  // Of a round of 16 tasks, 2 are each worker's.
  constexpr Row kRows[] = {{0, 2, "the sum, 1,200 ms"},
                           {1, 2, "<= 1.10x"},
                           {2, 2, "no worse"},
                           {4, 2, "no worse"},
                           {1, 1, "half of the tasks are prepared ahead"}};
  const double larger = absl::ToDoubleMilliseconds(std::max(kPrepare, kCompute)) * kTasks / kWorkers;
  std::map<const Row*, std::vector<double>> millis;
  for (int i = 0; i < setup.repeats; ++i) {
    for (const Row& row : kRows) {
      ASSIGN_OR_RETURN(const std::vector<double> more, SleepingMillis(setup, kind, row.ahead, row.prepare_ahead));
      millis[&row].insert(millis[&row].end(), more.begin(), more.end());
    }
  }
  for (const Row& row : kRows) {
    const double median = Quantile(millis[&row], 0.5);
    table.Add({.what = fmt::format("a round of {} tasks on {} {}, prepare and compute 300 ms each, K = {}{}", kTasks,
                                   kWorkers, kind == Kind::kBuiltIn ? "workers" : "resident Python programs", row.ahead,
                                   row.prepare_ahead == 1 ? ", --prepare-ahead 1" : ""),
               .figure = fmt::format("p50 {:.0f} ms, p90 {:.0f} ms", median, Quantile(millis[&row], 0.9)),
               .ratio = fmt::format("{:.2f}x of the larger of the two, {:.0f} ms", median / larger, larger),
               .target = row.target});
  }
  return absl::OkStatus();
}

absl::Status MeasureSleepingBuiltIn(const Setup& setup, Table& table) {
  return MeasureSleeping(setup, Kind::kBuiltIn, table);
}

absl::Status MeasureSleepingPython(const Setup& setup, Table& table) {
  if (setup.python_package.empty()) return absl::OkStatus();
  return MeasureSleeping(setup, Kind::kResidentPython, table);
}

// From the call that opens a round until each of so many parked workers has heard it.
absl::Status MeasureOpening(const Setup& setup, Table& table) {
  constexpr int kListening = 1'000;
  constexpr int kSamples = 20;
  ASSIGN_OR_RETURN(const HttpServed served, StartHttp(setup, nullptr));
  ListeningWorkers workers(setup.clock, served.address);
  RETURN_IF_ERROR(workers.Open(kListening));
  GrpcTransport submitter(served.server->address(), {.own_connection = true});
  SeededRandom random(1);
  std::vector<double> millis;
  std::vector<double> calls;
  absl::Duration cpu;
  for (int i = 0; i < kSamples; ++i) {
    ASSIGN_OR_RETURN(const v1::Round round, AnnounceRound(submitter, random, ARound("", kListening).spec()));
    RETURN_IF_ERROR(workers.WaitUntilAllHold());
    RETURN_IF_ERROR(WaitForParkedPolls(submitter, kListening));
    const absl::Duration before = served.server->cpu_time();
    const absl::Time start = setup.clock.Now();
    RETURN_IF_ERROR(OpenRound(submitter, random, round.id(), "").status());
    calls.push_back(absl::ToDoubleMilliseconds(setup.clock.Now() - start));
    for (const absl::Time heard : workers.WaitUntilAllHeard())
      millis.push_back(absl::ToDoubleMilliseconds(heard - start));
    cpu += served.server->cpu_time() - before;
    RETURN_IF_ERROR(CancelRound(submitter, random, round.id(), "measured"));
  }
  table.Add(
      {.what = fmt::format("OpenRound -> each of {} parked workers has heard OPENED, {} rounds", kListening, kSamples),
       .figure = fmt::format("p50 {:.1f} ms, p99 {:.1f} ms; the call itself {:.1f} ms; {:.0f} ms of the server's CPU",
                             Quantile(millis, 0.5), Quantile(millis, 0.99), Quantile(calls, 0.5),
                             absl::ToDoubleMilliseconds(cpu) / kSamples),
       .ratio = "",
       .target = "p99 <= 50 ms"});
  return absl::OkStatus();
}

// Rounds one after the other that compute nothing.
absl::StatusOr<double> RoundsPerSecond(const Setup& setup, int num_workers, int num_rounds, int ahead) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> server, StartSheafd(setup));
  GrpcTransport submitter(server->address(), {.own_connection = true});
  const NoopWorkers workers(
      server->address(), num_workers, [] {}, ahead > 0);
  RETURN_IF_ERROR(WaitForParkedPolls(submitter, num_workers));
  SeededRandom random(static_cast<uint64_t>(absl::ToUnixNanos(setup.clock.Now())));
  SameRounds program(ARound("", num_workers).spec());
  // The first ones open connections and fill caches.
  RETURN_IF_ERROR(RunProgram({submitter, setup.clock, random}, program, {.rounds = 5, .ahead = ahead}).status());
  const absl::Time start = setup.clock.Now();
  RETURN_IF_ERROR(
      RunProgram({submitter, setup.clock, random}, program, {.rounds = num_rounds, .ahead = ahead}).status());
  return num_rounds / absl::ToDoubleSeconds(setup.clock.Now() - start);
}

absl::Status MeasureBackToBack(const Setup& setup, Table& table) {
  struct Row {
    int num_workers;
    int num_rounds;
    const char* target;
  };
  for (const Row& row : {Row{50, 200, ">= 80"}, Row{300, 60, ">= 20"}}) {
    std::map<int, std::vector<double>> rates;
    for (int i = 0; i < setup.repeats; ++i) {
      for (const int ahead : {0, 1}) {
        ASSIGN_OR_RETURN(const double rate, RoundsPerSecond(setup, row.num_workers, row.num_rounds, ahead));
        rates[ahead].push_back(rate);
      }
    }
    const double without = Quantile(rates[0], 0.5);
    for (const int ahead : {0, 1}) {
      const double rate = Quantile(rates[ahead], 0.5);
      table.Add({.what = fmt::format("rounds of {} workers that compute nothing, back to back, K = {}", row.num_workers,
                                     ahead),
                 .figure = fmt::format("{:.1f} rounds/s", rate),
                 .ratio = ahead == 0 ? "" : fmt::format("{:.2f}x of K = 0", rate / without),
                 .target = row.target});
    }
  }
  return absl::OkStatus();
}

absl::Status MeasureMemory(const Setup& setup, Table& table) {
  for (const int ahead : {0, 4}) {
    ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> server, StartSheafd(setup));
    GrpcTransport submitter(server->address(), {.own_connection = true});
    const NoopWorkers workers(
        server->address(), kWorkers, [] {}, ahead > 0);
    SeededRandom random(1);
    SameRounds program(ARound("", kTasks).spec());
    std::vector<std::string> seen;
    for (const int rounds : {500, 1'500}) {
      RETURN_IF_ERROR(
          RunProgram({submitter, setup.clock, random}, program, {.rounds = rounds, .ahead = ahead}).status());
      seen.push_back(fmt::format("{:.1f} MiB", static_cast<double>(server->rss_bytes()) / (1 << 20)));
    }
    table.Add({.what = fmt::format("memory of the server after 500 and after 2,000 rounds of {} tasks, K = {}", kTasks,
                                   ahead),
               .figure = fmt::format("{}, {}", seen[0], seen[1]),
               .ratio = "",
               .target = "flat"});
  }
  return absl::OkStatus();
}

struct DemoRun {
  double seconds = 0;
  std::string digest;
};

absl::StatusOr<DemoRun> RunTagsDemo(const Setup& setup, int ahead) {
  const std::string command =
      fmt::format("{}/sheaf demo tags --rounds 20 --prepare-ahead {} -o json 2>&1", Folder(setup.sheafd), ahead);
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return absl::UnavailableError("cannot start the demonstration");
  std::string printed;
  char buffer[4096];
  for (size_t n = fread(buffer, 1, sizeof buffer, pipe); n > 0; n = fread(buffer, 1, sizeof buffer, pipe)) {
    printed.append(buffer, n);
  }
  const int code = pclose(pipe);
  // The last line has all of them: {"..":0.55,"rounds":20,"seconds":9.1,"modelDigest":".."}.
  const size_t rounds = printed.rfind("\"rounds\":20,");
  const size_t seconds = rounds == std::string::npos ? rounds : printed.find("\"seconds\":", rounds);
  const size_t digest = seconds == std::string::npos ? seconds : printed.find("\"modelDigest\":\"", seconds);
  if (code != 0 || digest == std::string::npos) return absl::UnavailableError(fmt::format("{}: {}", command, printed));
  return DemoRun{.seconds = std::stod(printed.substr(seconds + 10)), .digest = printed.substr(digest + 15, 64)};
}

absl::Status MeasureTags(const Setup& setup, Table& table) {
  // Its workers compute, on all CPUs.
  Unpin();
  std::map<int, std::vector<double>> seconds;
  std::map<int, std::string> digests;
  absl::Status status;
  for (int i = 0; i < setup.repeats && status.ok(); ++i) {
    for (const int ahead : {0, 2}) {
      const absl::StatusOr<DemoRun> run = RunTagsDemo(setup, ahead);
      status.Update(run.status());
      if (!run.ok()) break;
      seconds[ahead].push_back(run->seconds);
      digests[ahead] = run->digest;
    }
  }
  if (setup.server_cpu) PinTo(1);
  RETURN_IF_ERROR(status);
  if (digests[0] != digests[2]) return absl::InternalError("K = 2 trained another model than K = 0");
  const double without = Quantile(seconds[0], 0.5);
  for (const int ahead : {0, 2}) {
    const double median = Quantile(seconds[ahead], 0.5);
    table.Add({.what = fmt::format("sheaf demo tags, 20 rounds, --prepare-ahead {}", ahead),
               .figure = fmt::format("{:.1f} s", median),
               .ratio = ahead == 0 ? "" : fmt::format("{:.2f}x of K = 0, the same model", median / without),
               .target = ahead == 0 ? "" : "<= 0.75x"});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasurePipeline(const Setup& setup, Table& table) {
  struct Part {
    const char* name;
    absl::Status (*run)(const Setup& setup, Table& table);
  };
  constexpr Part kParts[] = {{"sleeping", MeasureSleepingBuiltIn},
                             {"sleeping in python", MeasureSleepingPython},
                             {"opening", MeasureOpening},
                             {"back to back", MeasureBackToBack},
                             {"memory", MeasureMemory},
                             {"tags", MeasureTags}};
  for (const Part& part : kParts) {
    if (std::string_view(part.name).find(setup.row) != std::string_view::npos) RETURN_IF_ERROR(part.run(setup, table));
  }
  return absl::OkStatus();
}

}  // namespace sheaf::bench
