// What a round with a large state costs others: while its contributions are checked, folded, written to a checkpoint
// and released, the workers of another population go on, and a server that is told to stop stops in time.
//
// SHEAF_LARGE_STATE_ELEMENTS=67108864 makes the state that large; SHEAF_OTHER_SERVER measures another sheafd.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "proto/methods.h"
#include "sdk/cpp/client/blob_client.h"
#include "tests/e2e/rounds.h"
#include "worker/thread_pool.h"

namespace sheaf {
namespace {

// Much more than they wait on a machine of their own.
constexpr absl::Duration kOthersWaitMax = absl::Seconds(1);

int64_t NumElements() {
  const char* set = std::getenv("SHEAF_LARGE_STATE_ELEMENTS");
  return set == nullptr ? int64_t{8} << 20 : std::atoll(set);
}

FederationOptions ServerOptions() {
  FederationOptions options;
  if (const char* other = std::getenv("SHEAF_OTHER_SERVER")) {
    options.server_wrapper = {"/bin/sh", "-c", fmt::format("shift; exec {} \"$@\"", other), "sh"};
  }
  return options;
}

v1::RoundSpec LargeRound(int num_tasks, v1::Durability durability) {
  v1::RoundSpec spec;
  spec.set_population("large");
  spec.mutable_computation()->set_name("noop");
  spec.set_durability(durability);
  spec.mutable_lease_duration()->set_seconds(60);
  v1::OutputSpec& output = *spec.mutable_aggregate()->add_outputs();
  output.set_name("x");
  output.set_operator_("sum");
  output.set_dtype(v1::FLOAT32);
  output.add_dense_shape(NumElements());
  for (int i = 0; i < num_tasks; ++i) spec.mutable_listed()->add_tasks();
  return spec;
}

std::string LargeContribution() {
  std::vector<float> values(static_cast<size_t>(NumElements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000) / 7;
  v1::Contribution contribution;
  v1::OutputValue& output = *contribution.add_outputs();
  output.set_name("x");
  output.mutable_dense()->set_dtype(v1::FLOAT32);
  output.mutable_dense()->add_shape(NumElements());
  output.mutable_dense()->set_data(
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
  return contribution.SerializeAsString();
}

// Uploads `bytes` under a lease and hands them in; the verdict.
std::string HandIn(Federation& federation, const v1::Lease& lease, const std::string& bytes) {
  UploadSession upload({.bytes = bytes,
                        .request_id = federation.random().Token(16),
                        .task = lease.task(),
                        .lease_token = lease.lease_token()});
  REQUIRE(RunBlocking(federation.transport(), upload).ok());
  v1::SyncRequest request = APoll("large-worker", "", 0);
  request.set_population("large");
  v1::TaskResult& result = *request.add_results();
  result.set_task(lease.task());
  result.set_lease_token(lease.lease_token());
  result.set_upload_id(upload.upload_id());
  for (;;) {
    const absl::StatusOr<v1::SyncResponse> response =
        BlockingCall(federation.impatient_transport(), kSync, request, {.timeout = absl::Seconds(100)});
    if (response.ok()) return VerdictsOf(*response).front();
    // There is no room in memory before something else is folded.
    if (!absl::IsResourceExhausted(response.status())) return response.status().ToString();
    ::poll(nullptr, 0, 100);
  }
}

std::vector<v1::Lease> LeaseOf(Federation& federation, int want) {
  v1::SyncRequest request = APoll("large-worker", federation.random().Token(16), want);
  request.set_population("large");
  const v1::SyncResponse response = SyncOnce(federation.transport(), request);
  REQUIRE(response.leases_size() == want);
  return {response.leases().begin(), response.leases().end()};
}

// How long the calls of a worker of another population take meanwhile.
class Others {
 public:
  explicit Others(Federation& federation) : federation_(federation) {
    thread_ = std::make_unique<ThreadPool>(1);
    thread_->Post([this] { Work(); });
  }
  ~Others() { is_over_ = true; }
  // Sorted.
  std::vector<absl::Duration> Stop() {
    is_over_ = true;
    thread_.reset();
    std::sort(took_.begin(), took_.end());
    return took_;
  }

 private:
  void Work() {
    while (!is_over_) {
      v1::SyncRequest request = APoll("other-worker", "", 0);
      request.set_population("others");
      const absl::Time begin = federation_.clock().Now();
      const absl::StatusOr<v1::SyncResponse> response =
          BlockingCall(federation_.impatient_transport(), kSync, request, {.timeout = absl::Seconds(100)});
      if (response.ok()) took_.push_back(federation_.clock().Now() - begin);
      ::poll(nullptr, 0, 2);
    }
  }

  Federation& federation_;
  std::atomic<bool> is_over_ = false;
  std::vector<absl::Duration> took_;
  std::unique_ptr<ThreadPool> thread_;
};

// "VmHWM" and the like, in MiB.
int64_t MemoryOf(const ChildProcess& process, const std::string& name) {
  std::ifstream status(fmt::format("/proc/{}/status", process.pid()));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::atoll(line.c_str() + name.size() + 1) / 1024;
  }
  return 0;
}

TEST_CASE("While a large state is folded, saved and released, the workers of other populations go on") {
  Federation federation(ServerOptions());
  const std::string bytes = LargeContribution();
  // As many contributions as make a checkpoint due: twice the state.
  constexpr int kTasks = 6;
  const std::string round = StartRound(federation, LargeRound(kTasks, v1::DURABLE));
  const std::vector<v1::Lease> leases = LeaseOf(federation, kTasks);
  Others others(federation);
  for (const v1::Lease& lease : leases) CHECK(HandIn(federation, lease, bytes) == "ACCEPTED");
  const v1::Round ended = Await(federation, round, absl::Seconds(120));
  const std::vector<absl::Duration> took = others.Stop();
  CHECK(ended.aggregate().num_contributions() == kTasks);
  REQUIRE(took.size() > 50);
  const absl::Duration p99 = took[took.size() * 99 / 100];
  Measured("{} elements, {} calls of others: p50 {}, p99 {}, longest {}; peak of memory {} MiB", NumElements(),
           took.size(), absl::FormatDuration(took[took.size() / 2]), absl::FormatDuration(p99),
           absl::FormatDuration(took.back()), MemoryOf(federation.server(), "VmHWM"));
  CHECK(p99 <= kOthersWaitMax);
}

TEST_CASE("A server with a large state that is told to stop stops in time, and goes on where it was") {
  for (const v1::Durability durability : {v1::DURABLE, v1::EPHEMERAL}) {
    Federation federation(ServerOptions());
    const std::string bytes = LargeContribution();
    const std::string round = StartRound(federation, LargeRound(4, durability));
    const std::vector<v1::Lease> leases = LeaseOf(federation, 4);
    for (size_t i = 0; i < 3; ++i) CHECK(HandIn(federation, leases[i], bytes) == "ACCEPTED");
    const absl::Duration took = federation.StopServer();
    Measured("{}: {} elements, stopped within {}", v1::Durability_Name(durability), NumElements(),
             absl::FormatDuration(took));
    // TimeoutStopSec of deploy/systemd/sheafd.service is 30 s.
    CHECK(took < absl::Seconds(20));
    federation.StartServer();
    // What an EPHEMERAL round could not save in time is asked for again.
    for (int i = 0; i < 8 && RoundOf(federation.transport(), round).state() == v1::COLLECTING; ++i) {
      v1::SyncRequest request = APoll("large-worker", federation.random().Token(16), 1);
      request.set_population("large");
      const v1::SyncResponse granted = SyncOnce(federation.transport(), request);
      for (const v1::Lease& lease : granted.leases()) {
        CHECK(HandIn(federation, lease, bytes) == "ACCEPTED");
      }
    }
    CHECK(Await(federation, round, absl::Seconds(120)).aggregate().num_contributions() == 4);
  }
}

}  // namespace
}  // namespace sheaf
