// The real worker, with its threads and over gRPC, against a server of a few lines.
#include <fmt/format.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <catch2/catch.hpp>
#include <map>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/random.h"
#include "probe/computations/slow.h"
#include "sheaf/v1/work_service.pb.h"
#include "worker/runtime.h"
#include "worker/thread_pool.h"

namespace sheaf {
namespace {

// Grants `slow` tasks of 20 ms as long as there are any, then tells the worker to drain.
class LittleServer {
 public:
  explicit LittleServer(int num_tasks) : num_tasks_(num_tasks) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~LittleServer() { server_->Shutdown(std::chrono::system_clock::time_point()); }

  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

  absl::StatusOr<v1::SyncResponse> Sync(const v1::SyncRequest& request) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    ++num_syncs_;
    if (refuses_) return absl::FailedPreconditionError("protocol 1 is not served");
    v1::SyncResponse response;
    response.set_inline_bytes_max(1 << 20);
    for (const v1::TaskResult& result : request.results()) {
      v1::ResultVerdict* verdict = response.add_verdicts();
      verdict->set_lease_token(result.lease_token());
      verdict->set_verdict(v1::ResultVerdict::ACCEPTED);
      ++(result.has_contribution() ? contributions_ : others_)[result.task()];
    }
    for (const v1::TaskResult& result : request.results()) open_.erase(result.lease_token());
    // What was granted and is not mentioned is sent again, and counts.
    std::map<std::string, v1::Lease> unheard = open_;
    for (const v1::HeldLease& held : request.held()) unheard.erase(held.lease_token());
    for (const auto& [token, lease] : unheard) *response.add_leases() = lease;
    while (response.leases_size() < request.want() && num_granted_ < num_tasks_) {
      v1::Lease* lease = response.add_leases();
      lease->set_task(std::to_string(num_granted_));
      lease->set_lease_token("token-" + std::to_string(num_granted_++));
      lease->mutable_computation()->set_name("slow");
      lease->set_payload("20ms");
      lease->mutable_remaining()->set_seconds(30);
      open_[lease->lease_token()] = *lease;
    }
    response.set_drain(num_granted_ == num_tasks_ && open_.empty());
    return response;
  }

  void Refuse() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    refuses_ = true;
  }
  int num_syncs() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return num_syncs_;
  }
  std::map<std::string, int> contributions() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return contributions_;
  }
  std::map<std::string, int> others() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return others_;
  }

 private:
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    explicit Reactor(LittleServer& server) : server_(server) { StartRead(&buffer_); }
    void OnReadDone(bool ok) override {
      if (!ok) return;
      grpc::Slice slice;
      v1::SyncRequest request;
      if (!buffer_.DumpToSingleSlice(&slice).ok() || !request.ParseFromArray(slice.begin(), slice.size())) {
        return Finish(grpc::Status(grpc::StatusCode::INTERNAL, "no SyncRequest"));
      }
      absl::StatusOr<v1::SyncResponse> response = server_.Sync(request);
      if (!response.ok()) {
        return Finish(grpc::Status(static_cast<grpc::StatusCode>(response.status().code()),
                                   std::string(response.status().message())));
      }
      grpc::Slice answer(response->SerializeAsString());
      buffer_ = grpc::ByteBuffer(&answer, 1);
      StartWriteAndFinish(&buffer_, {}, grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    LittleServer& server_;
    grpc::ByteBuffer buffer_;
  };

  class Service final : public grpc::CallbackGenericService {
   public:
    explicit Service(LittleServer& server) : server_(server) {}
    grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
      return new Reactor(server_);
    }

   private:
    LittleServer& server_;
  };

  const int num_tasks_;
  Service service_{*this};
  int port_ = 0;
  Mutex mutex_;
  int num_granted_ GUARDED_BY(mutex_) = 0;
  int num_syncs_ GUARDED_BY(mutex_) = 0;
  bool refuses_ GUARDED_BY(mutex_) = false;
  std::map<std::string, v1::Lease> open_ GUARDED_BY(mutex_);
  std::map<std::string, int> contributions_ GUARDED_BY(mutex_);
  std::map<std::string, int> others_ GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Server> server_;
};

struct Worker {
  Worker(const LittleServer& server, int concurrency) : runtime(ConfigFor(server, concurrency), clock, random) {
    REQUIRE(runtime.Start().ok());
  }
  static WorkerConfig ConfigFor(const LittleServer& server, int concurrency) {
    WorkerConfig config;
    config.server = server.address();
    config.computations = {SlowComputation()};
    config.options.concurrency = concurrency;
    config.options.grace = absl::Seconds(5);
    config.options.exit_when_drained = true;
    return config;
  }

  SystemClock clock;
  SystemRandom random;
  WorkerRuntime runtime;
};

TEST_CASE("A worker computes every task it is given once, and leaves when it is drained, if it was told so") {
  for (int concurrency : {1, 4}) {
    LittleServer server(40);
    Worker worker(server, concurrency);
    CHECK(worker.runtime.Run().ok());
    CHECK(worker.runtime.num_stragglers() == 0);
    CHECK(server.contributions().size() == 40);
    for (const auto& [task, times] : server.contributions()) CHECK(times == 1);
    CHECK(server.others().empty());
    if (concurrency == 1) CHECK(server.num_syncs() <= 43);
  }
}

TEST_CASE("A worker told to stop finishes what it runs") {
  LittleServer server(1'000'000);
  Worker worker(server, 2);
  absl::Status status = absl::UnknownError("still running");
  {
    ThreadPool thread(1);
    thread.Post([&] { status = worker.runtime.Run(); });
    worker.runtime.RequestDrain();
  }
  CHECK(status.ok());
  // Nothing it was granted is left behind: it was computed or given back.
  CHECK(server.contributions().size() + server.others().size() <= 4);
}

TEST_CASE("A worker whose protocol is refused ends with the server's sentence") {
  LittleServer server(0);
  server.Refuse();
  Worker worker(server, 1);
  CHECK(worker.runtime.Run() == absl::FailedPreconditionError("protocol 1 is not served"));
}

}  // namespace
}  // namespace sheaf
