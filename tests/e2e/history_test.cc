// What was acknowledged is counted, and everything once, whatever happens to whom: real processes, held by a history to
// the sums that their rounds release. Environment: SHEAF_HISTORY_LOOPS, SHEAF_HISTORY_WORKERS, SHEAF_HISTORY_SEED.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/checksum.h"
#include "proto/methods.h"
#include "proto/time.h"
#include "tests/e2e/history_storm.h"
#include "tests/e2e/rounds.h"
#include "tests/worker/living_processes.h"

namespace sheaf {
namespace {

int64_t Setting(const char* name, int64_t fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : std::stoll(value);
}

std::string Spread(std::vector<absl::Duration> values) {
  if (values.empty()) return "none";
  std::sort(values.begin(), values.end());
  return fmt::format("{} (median {}, max {})", values.size(), absl::FormatDuration(values[values.size() / 2]),
                     absl::FormatDuration(values.back()));
}

void Storm(int64_t loops, ServerAddress::Protocol protocol) {
  SystemRandom chance;
  const uint64_t seed =
      static_cast<uint64_t>(Setting("SHEAF_HISTORY_SEED", static_cast<int64_t>(chance.Below(1'000'000'000))));
  constexpr absl::Duration kLease = absl::Seconds(1);
  INFO("seed " << seed);
  fmt::print("  seed {}, {} loops\n", seed, loops);
  HistoryStorm storm({.num_workers = static_cast<int>(Setting("SHEAF_HISTORY_WORKERS", 8)),
                      .lease = kLease,
                      .seed = seed,
                      .protocol = protocol});
  SeededRandom random(seed);
  Federation& federation = storm.federation();
  HistoryReport total;
  std::vector<absl::Duration> calm_downs;
  for (int64_t loop = 1; loop <= loops; ++loop) {
    INFO("loop " << loop);
    const std::string round = StartRound(federation, StormRound(random, kLease));
    storm.Rage(round, absl::Seconds(6));
    const absl::Time calm = federation.clock().Now();
    // Nothing goes wrong any more: it ends, whatever was before.
    Await(federation, round, absl::Seconds(30));
    calm_downs.push_back(federation.clock().Now() - calm);
    const HistoryReport report = storm.history().Check(round, CountsOf(federation.transport(), round));
    INFO(fmt::format("{}", fmt::join(report.violations, "\n")));
    REQUIRE(report.ok());
    REQUIRE(report.acknowledged <= report.counted);
    REQUIRE(report.counted <= report.attempted);
    total.Add(report);
    if (loop % 10 == 0) {
      fmt::print("  {} loops: {} attempted, {} acknowledged, {} counted, {} duplicated, {} lost\n", loop,
                 total.attempted, total.acknowledged, total.counted, total.duplicated, total.lost);
      std::fflush(stdout);
    }
  }
  const HistoryStorm::Counts& counts = storm.counts();
  Measured("{} loops: {} attempted, {} acknowledged, {} counted, {} duplicated, {} lost", loops, total.attempted,
           total.acknowledged, total.counted, total.duplicated, total.lost);
  Measured(
      "server killed {} times, workers {}; {} stops for two leases, {} clock steps; {} faults of connections, {} of "
      "calls",
      counts.server_kills, counts.worker_kills, counts.stops, counts.clock_steps, storm.num_network_faults(),
      storm.num_call_faults());
  Measured("the restarted server answered: {}", Spread(storm.recoveries()));
  Measured("tasks of killed workers were another's, faults going on: {}; lease {}", Spread(storm.takeovers()),
           absl::FormatDuration(kLease));
  Measured("rounds ended after the faults had: {}", Spread(calm_downs));
}

TEST_CASE("Whatever happens to server, workers, network and clocks: what was acknowledged is counted, each once") {
  Storm(Setting("SHEAF_HISTORY_LOOPS", 4), ServerAddress::Protocol::kGrpc);
}

TEST_CASE("Whatever happens over HTTP/1.1, in the clear or with TLS: what was acknowledged is counted, each once") {
  for (const auto protocol : {ServerAddress::Protocol::kHttp, ServerAddress::Protocol::kHttps}) {
    Storm(Setting("SHEAF_HISTORY_LOOPS", 2), protocol);
  }
}

#ifdef SHEAF_PYTHON_PACKAGE
TEST_CASE("Whatever happens, what resident processes in Python computed is counted once, and none of them is left") {
  const TemporaryDirectory directory = ScratchDirectory();
  const std::string python = fmt::format("{} {}/slow.py {}", SHEAF_PYTHON, SHEAF_E2E_SOURCE, directory.path());
  const std::string package = fmt::format("PYTHONPATH={}", SHEAF_PYTHON_PACKAGE);
  if (std::system(fmt::format("{} {} -c 'import sheaf' 2>/dev/null", package, SHEAF_PYTHON).c_str()) != 0) {
    WARN("skipped: python3-numpy and python3-protobuf are not here");
    return;
  }
  SystemRandom chance;
  const uint64_t seed =
      static_cast<uint64_t>(Setting("SHEAF_HISTORY_SEED", static_cast<int64_t>(chance.Below(1'000'000'000))));
  INFO("seed " << seed);
  constexpr absl::Duration kLease = absl::Seconds(2);
  HistoryReport total;
  int kills = 0;
  {
    HistoryStorm storm(
        {.num_workers = 4,
         .worker_arguments = {"--serve", "slow=" + python, "--env", package, "--scratch", directory.path()},
         .lease = kLease,
         .seed = seed});
    SeededRandom random(seed);
    Federation& federation = storm.federation();
    for (int64_t loop = 1; loop <= Setting("SHEAF_HISTORY_LOOPS", 2); ++loop) {
      INFO("loop " << loop);
      const std::string round = StartRound(federation, StormRound(random, kLease));
      storm.Rage(round, absl::Seconds(6));
      Await(federation, round, absl::Seconds(60));
      const HistoryReport report = storm.history().Check(round, CountsOf(federation.transport(), round));
      INFO(fmt::format("{}", fmt::join(report.violations, "\n")));
      REQUIRE(report.ok());
      total.Add(report);
    }
    kills = storm.counts().worker_kills + storm.counts().server_kills;
  }
  // All workers have ended, some of them killed: so have all that they had started, and what those wrote is gone.
  WaitUntil("no process of a worker is left", absl::Seconds(10),
            [&] { return LivingProcesses(directory.path()).empty(); });
  WaitUntil("nothing is left of their tasks", absl::Seconds(10),
            [&] { return std::filesystem::is_empty(directory.path()); });
  Measured("Python: {} attempted, {} acknowledged, {} counted, {} duplicated, {} lost; {} kills", total.attempted,
           total.acknowledged, total.counted, total.duplicated, total.lost, kills);
}
#endif

TEST_CASE("The tasks of workers that are killed one after the other run again within the lease and a second") {
  constexpr absl::Duration kLease = absl::Seconds(1);
  HistoryStorm storm({.num_workers = 8, .lease = kLease});
  Federation& federation = storm.federation();
  const std::string round =
      StartRound(federation, OneHotRound({.num_tasks = 80, .work = absl::Milliseconds(400), .lease = kLease}));
  for (int i = 0; i < 6; ++i) {
    ::poll(nullptr, 0, 300);
    storm.KillWorker();
  }
  Await(federation, round);
  CHECK(storm.history().Check(round, CountsOf(federation.transport(), round)).ok());
  const std::vector<absl::Duration> takeovers = storm.takeovers();
  REQUIRE(takeovers.size() >= 6);
  for (const absl::Duration takeover : takeovers) CHECK(takeover <= kLease + absl::Seconds(1));
  Measured("from the kill to the next lease: {}; lease {}", Spread(takeovers), absl::FormatDuration(kLease));
}

#ifdef SHEAF_STEPPED_CLOCK
TEST_CASE("A server restarted under a clock an hour off loses no round, and hands a dead worker's task on in time") {
  constexpr absl::Duration kLease = absl::Seconds(2);
  const TemporaryDirectory directory = ScratchDirectory();
  SteppedClock clock(directory.path() + "/clock");
  Federation federation({.server_wrapper = clock.Wrapper()});
  for (const int hours : {-1, 1, 0}) {
    v1::RoundSpec spec = OneHotRound({.num_tasks = 4, .lease = kLease});
    *spec.mutable_deadline() = ToProto(absl::Hours(5));
    const std::string round = StartRound(federation, spec);
    const std::string poll = fmt::format("poll-{}", hours);
    // Of two tasks one is handed in after the step, the other's worker is never heard of again; two were never leased.
    const v1::SyncResponse granted = SyncOnce(federation.transport(), APoll("hand", poll, 2));
    REQUIRE(granted.leases_size() == 2);
    federation.KillServer();
    const absl::Time stepped = federation.clock().Now();
    clock.Set(absl::Hours(hours));
    federation.StartServer();
    const absl::Duration offset =
        absl::FromUnixSeconds(
            BlockingCall(federation.transport(), kGetServerInfo, v1::GetServerInfoRequest())->start_time().seconds()) -
        federation.clock().Now();
    CHECK(absl::AbsDuration(offset - absl::Hours(hours)) < absl::Minutes(1));

    v1::SyncRequest result = APoll("hand", poll + "-result", 0);
    AddResult(granted.leases(0), result);
    const std::vector<std::string> verdicts = VerdictsOf(SyncOnce(federation.transport(), result));
    // A clock set forward may have ended the lease; one set back must not.
    if (hours < 0) CHECK(verdicts == std::vector<std::string>{"ACCEPTED"});
    v1::SyncRequest heir = APoll("heir", poll + "-heir", 4, absl::Seconds(10));
    const absl::Time deadline = stepped + kLease + absl::Seconds(1);
    while (RoundOf(federation.transport(), round).state() == v1::COLLECTING) {
      const v1::SyncResponse answer = SyncOnce(federation.transport(), heir);
      heir = APoll("heir", heir.poll_id() + "+", 4, absl::Seconds(10));
      for (const v1::Lease& lease : answer.leases()) AddResult(lease, heir);
      REQUIRE(federation.clock().Now() < deadline + absl::Seconds(2));
    }
    CHECK(federation.clock().Now() < deadline);
    Await(federation, round, absl::Seconds(10));
    CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(4, 1));
    Measured("clock at {:+} h: the first result was {}, the round ended {} after the kill (lease {})", hours,
             verdicts.front(), absl::FormatDuration(federation.clock().Now() - stepped), absl::FormatDuration(kLease));
  }
}

TEST_CASE("Time that the machine slept counts: a lease that ran out meanwhile is handed on at once") {
  const TemporaryDirectory directory = ScratchDirectory();
  SteppedClock clock(directory.path() + "/clock");
  Federation federation({.server_wrapper = clock.Wrapper()});
  v1::RoundSpec spec = OneHotRound({.num_tasks = 1, .lease = absl::Minutes(5)});
  *spec.mutable_deadline() = ToProto(absl::Hours(5));
  StartRound(federation, spec);
  REQUIRE(SyncOnce(federation.transport(), APoll("sleeper", "poll-1", 1)).leases_size() == 1);
  REQUIRE(SyncOnce(federation.transport(), APoll("heir", "poll-2", 1)).leases_size() == 0);
  int num_leases = 0;
  // A batch that the sleep met was a slow one: whoever it answered late is heard for a minute more. The next sleep is
  // over that.
  for (int sleep = 0; sleep < 3 && num_leases == 0; ++sleep) {
    clock.Suspend(absl::Minutes(6));
    v1::SyncRequest poll = APoll("heir", fmt::format("poll-{}", 3 + sleep), 1, absl::Seconds(2));
    num_leases = SyncOnce(federation.transport(), poll).leases_size();
  }
  CHECK(num_leases == 1);
}

TEST_CASE("A wall clock that is set back deletes no upload that goes on, however long it takes") {
  const TemporaryDirectory directory = ScratchDirectory();
  SteppedClock clock(directory.path() + "/clock");
  Federation federation({.server_arguments = {"--unreferenced-keep", "10m"}, .server_wrapper = clock.Wrapper()});
  Transport& transport = federation.transport();
  const std::string bytes(50, 'x');
  v1::StartUploadRequest start;
  start.set_request_id("upload");
  start.set_size_bytes(static_cast<int64_t>(bytes.size()));
  start.set_digest(Sha256Hex(bytes));
  v1::WriteChunkRequest chunk;
  chunk.set_upload_id(BlockingCall(transport, kStartUpload, start)->upload_id());
  chunk.set_data(bytes.substr(0, 10));
  for (int i = 0; i < 5; ++i) {
    // Files are written at times long before the server's.
    clock.Set(absl::Hours(-2 - i));
    chunk.set_offset(10 * i);
    const auto written = BlockingCall(transport, kWriteChunk, chunk);
    INFO(i << ": " << written.status().ToString());
    REQUIRE(written.ok());
    // Not longer than uploads are kept, but with hours of difference; and a look at them is due with the next call.
    clock.Suspend(absl::Minutes(9));
    for (int j = 0; j < 3; ++j) REQUIRE(BlockingCall(transport, kGetServerInfo, v1::GetServerInfoRequest()).ok());
  }
  v1::FinishUploadRequest finish;
  finish.set_upload_id(chunk.upload_id());
  CHECK(BlockingCall(transport, kFinishUpload, finish).ok());
}
#endif

TEST_CASE("A server with 100,000 tasks in its store serves and hands out within a second of its restart") {
  constexpr int kTasks = 100'000;
  constexpr int kBatch = 256;
  Federation federation;
  v1::RoundSpec spec = OneHotRound({.num_tasks = 1, .lease = absl::Minutes(10), .size = kTasks});
  // Sparse only: dense contributions of this size would fill the disk instead of the store.
  spec.mutable_aggregate()->mutable_outputs()->DeleteSubrange(0, 1);
  spec.mutable_listed()->clear_tasks();
  for (int i = 0; i < kTasks; ++i) spec.mutable_listed()->add_tasks()->set_payload(std::to_string(i));
  *spec.mutable_deadline() = ToProto(absl::Hours(1));
  const std::string round = StartRound(federation, spec);

  int num_polls = 0;
  int num_done = 0;
  std::vector<absl::Duration> to_answer;
  std::vector<absl::Duration> to_task;
  for (int restart = 0; restart < 5; ++restart) {
    // Some more are done, some more are held.
    v1::SyncRequest request = APoll("hand", fmt::format("poll-{}", ++num_polls), kBatch);
    for (int i = 0; i < 20; ++i) {
      const v1::SyncResponse answer = SyncOnce(federation.transport(), request);
      request = APoll("hand", fmt::format("poll-{}", ++num_polls), kBatch);
      for (const v1::Lease& lease : answer.leases()) AddResult(lease, request);
      num_done += answer.verdicts_size();
    }
    SyncOnce(federation.transport(), APoll(fmt::format("holder-{}", restart), "poll", kBatch));
    federation.KillServer();
    const absl::Time start = federation.clock().Now();
    federation.StartServer();
    GrpcTransport fresh(federation.address(), {.own_connection = true});
    REQUIRE(BlockingCall(fresh, kGetServerInfo, v1::GetServerInfoRequest()).ok());
    to_answer.push_back(federation.clock().Now() - start);
    const v1::SyncResponse task = SyncOnce(fresh, APoll(fmt::format("new-{}", restart), "poll", 1));
    REQUIRE(task.leases_size() == 1);
    to_task.push_back(federation.clock().Now() - start);
    // What was granted before the kill is handed in after it.
    num_done += SyncOnce(federation.transport(), request).verdicts_size();
  }
  CHECK(RoundOf(federation.transport(), round).num_contributions() == num_done);
  for (const absl::Duration duration : to_task) CHECK(duration <= absl::Seconds(1));
  Measured("{} tasks, {} done: from the start of the process to the first answer {}, to the first task {}", kTasks,
           num_done, Spread(to_answer), Spread(to_task));
}

}  // namespace
}  // namespace sheaf
