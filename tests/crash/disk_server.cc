#include "tests/crash/disk_server.h"

#include <fmt/format.h>

#include <cerrno>

#include "base/status_macros.h"
#include "storage/directory/verify.h"
#include "storage/files/holding_files.h"
#include "storage/sqlite/sqlite_connection.h"
#include "tests/crash/disk_file_system.h"

namespace sheaf::crash {

DiskServer::DiskServer(SimulatedDisk& disk, ManualClock& clock, uint64_t seed)
    : disk_(disk), clock_(clock), random_(seed), vfs_(disk) {}

absl::StatusOr<std::unique_ptr<DiskServer>> DiskServer::Start(SimulatedDisk& disk, ManualClock& clock,
                                                              const Options& options) {
  std::unique_ptr<DiskServer> server(new DiskServer(disk, clock, options.seed));
  const auto open_database = [&](const std::string& path) -> absl::StatusOr<std::unique_ptr<SqlConnection>> {
    ASSIGN_OR_RETURN(std::unique_ptr<SqliteConnection> connection,
                     SqliteConnection::Open(path, {.vfs = server->vfs_.name(), .gate = options.gate}));
    // It would not ask the gate.
    const int wal_pages = options.gate == nullptr ? options.wal_pages : 0;
    RETURN_IF_ERROR(connection->ExecuteScript(fmt::format("PRAGMA wal_autocheckpoint = {}", wal_pages)));
    server->connection_ = connection.get();
    return connection;
  };
  std::unique_ptr<FileSystem> files = std::make_unique<DiskFileSystem>(disk);
  if (options.gate != nullptr) files = std::make_unique<HoldingFiles>(std::move(files), *options.gate);
  ASSIGN_OR_RETURN(server->store_, OpenStore("/store", {.files = std::move(files), .open_database = open_database}));
  server->parts_ =
      std::make_unique<ServerParts>(*server->store_.tasks, *server->store_.payloads, *server, server->random_, clock,
                                    Core::Options{.limits = options.limits, .data_directory = "/store"});
  RETURN_IF_ERROR(server->parts_->core.Recover(clock.Now()));
  server->Run();
  RETURN_IF_ERROR(server->stop_status_);
  return server;
}

DiskServer::~DiskServer() {
  disk_.set_on_change(nullptr);
  disk_.set_fault([](const DiskCall&) { return DiskFault{.error = EIO}; });
}

absl::Status DiskServer::Call(std::string_view method, std::string_view authorization,
                              const google::protobuf::Message& request, google::protobuf::Message& response) {
  if (!stop_status_.ok()) return absl::UnavailableError("the server has stopped");
  ASSIGN_OR_RETURN(const IdentityPtr caller, parts_->core.access().Authenticate(authorization, {}));
  // A call that is parked is answered later, or never.
  struct Kept {
    std::unique_ptr<google::protobuf::Message> request;
    std::unique_ptr<google::protobuf::Message> response;
    std::optional<absl::Status> answer;
  };
  const auto kept = std::make_shared<Kept>();
  kept->request.reset(request.New());
  kept->request->CopyFrom(request);
  kept->response.reset(response.New());
  parts_->dispatcher.Dispatch(method, {.caller = caller}, *kept->request, kept->response.get(),
                              [kept](const absl::Status& status) { kept->answer = status; });
  Run();
  if (!kept->answer || is_killed_) {
    return stop_status_.ok() ? absl::DeadlineExceededError("the call is parked")
                             : absl::UnavailableError("the server has stopped");
  }
  response.CopyFrom(*kept->response);
  return *kept->answer;
}

void DiskServer::Run() {
  do {
    const absl::Status status = parts_->runner.Run(std::exchange(inbox_, {}), clock_.Now());
    if (absl::IsInternal(status) || absl::IsDataLoss(status)) {
      stop_status_ = status;
      inbox_.clear();
    }
  } while (!inbox_.empty() && !is_killed_);
}

absl::Status DiskServer::CheckDatabase() {
  std::string found;
  const auto add = [&](const SqlRow& row) { found += row.String(0) + "; "; };
  RETURN_IF_ERROR(connection_->Execute("PRAGMA integrity_check(1)", {}, add).status());
  if (found != "ok; ") return absl::DataLossError(found);
  found.clear();
  RETURN_IF_ERROR(connection_->Execute("PRAGMA foreign_key_check", {}, add).status());
  if (!found.empty()) return absl::DataLossError("rows without their parents in " + found);
  ASSIGN_OR_RETURN(const std::vector<Law> laws, VerifyDatabase(*connection_));
  for (const Law& law : laws) {
    if (!law.violations.empty()) return absl::DataLossError(law.name + ": " + law.violations.front());
  }
  return absl::OkStatus();
}

}  // namespace sheaf::crash
