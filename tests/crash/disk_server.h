// DiskServer: a server on a SimulatedDisk, in one thread under a clock turned by hand: real stores, core, handlers and
// method table.
//
//   ASSIGN_OR_RETURN(auto server, DiskServer::Start(disk, clock, {.limits = limits}));
//   auto answer = server->Call<v1::SyncResponse>("WorkService/Sync", request);
//   RETURN_IF_ERROR(server->stop_status());   // Not OK once the process would have ended.
//
// Destroying it is a crash: nothing more reaches the disk, which is good for nothing but Crash() from then on.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/random.h"
#include "google/protobuf/message.h"
#include "server/server_parts.h"
#include "storage/directory/open.h"
#include "storage/files/store_hold.h"
#include "tests/crash/disk_vfs.h"
#include "tests/crash/simulated_disk.h"

namespace sheaf::crash {

class DiskServer final : public Executor {
 public:
  struct Options {
    Limits limits;
    // Pages in the WAL before they are written back: few, so that this happens in a short script too.
    int wal_pages = 40;
    uint64_t seed = 1;
    // While somebody holds it the log is not written back, and deletions are put off. Must outlive the server.
    HoldGate* gate = nullptr;
  };
  // As a server's main would end: the error of opening the store, or of recovering what is in it.
  static absl::StatusOr<std::unique_ptr<DiskServer>> Start(SimulatedDisk& disk, ManualClock& clock,
                                                           const Options& options);
  ~DiskServer() override;

  // UNAVAILABLE once the process has ended; DEADLINE_EXCEEDED if the call is parked.
  template <typename Response, typename Request>
  absl::StatusOr<Response> Call(const std::string& method, const Request& request) {
    Response response;
    const absl::Status status = Call("sheaf.v1." + method, "", request, response);
    if (!status.ok()) return status;
    return response;
  }
  // The same for any method, by who shows this metadata of the name "authorization".
  absl::Status Call(std::string_view method, std::string_view authorization, const google::protobuf::Message& request,
                    google::protobuf::Message& response);
  // Runs what was posted, and ticks, until nothing is left to do at this instant, or the process ends.
  void Run();
  // The process ends at once: nobody is answered any more.
  void Kill() {
    is_killed_ = true;
    stop_status_ = absl::UnavailableError("killed");
  }
  // What SQLite says of its file, and whether the laws of conservation hold in it. DATA_LOSS.
  absl::Status CheckDatabase();

  const absl::Status& stop_status() const { return stop_status_; }
  TaskStore& tasks() { return *store_.tasks; }
  PayloadStore& payloads() { return *store_.payloads; }

  void Post(Event event) override { inbox_.push_back(std::move(event)); }
  void Defer(Deferred deferred) override { parts_->runner.Defer(std::move(deferred)); }

 private:
  DiskServer(SimulatedDisk& disk, ManualClock& clock, uint64_t seed);

  SimulatedDisk& disk_;
  ManualClock& clock_;
  SeededRandom random_;
  DiskVfs vfs_;
  Store store_;
  SqlConnection* connection_ = nullptr;
  std::vector<Event> inbox_;
  std::unique_ptr<ServerParts> parts_;
  absl::Status stop_status_;
  bool is_killed_ = false;
};

}  // namespace sheaf::crash
