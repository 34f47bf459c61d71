#include "cli/processes/local_federation.h"

#include <fmt/format.h>

#include "base/status_macros.h"
#include "cli/files.h"
#include "cli/terminal/errors.h"

namespace sheaf {
namespace {

constexpr absl::Duration kServerStart = absl::Seconds(15);
constexpr absl::Duration kLookInterval = absl::Milliseconds(5);
constexpr absl::Duration kGrace = absl::Seconds(5);
constexpr int kLogLines = 5;

absl::StatusOr<ChildProcess> StartBinary(const Host& host, const std::string& name, std::vector<std::string> arguments,
                                         std::string log_path) {
  arguments.insert(arguments.begin(), host.binary_directory + "/" + name);
  absl::StatusOr<ChildProcess> child =
      // What the environment says of the user's own server is not meant for this one.
      ChildProcess::Start(
          {.argv = std::move(arguments), .log_path = std::move(log_path), .hidden_environment = "SHEAF_"});
  if (absl::IsNotFound(child.status())) {
    return WithHint(child.status(), fmt::format("{} must lie beside sheaf; build or install all of it", name));
  }
  return child;
}

absl::StatusOr<std::string> ReadAddress(const std::string& port_file) {
  ASSIGN_OR_RETURN(std::string address, ReadFile(port_file));
  while (!address.empty() && address.back() == '\n') address.pop_back();
  return address;
}

absl::Status Ended(const std::string& name, const ChildProcess& child) {
  std::string log = child.LogTail(kLogLines);
  while (!log.empty() && log.back() == '\n') log.pop_back();
  return WithHint(absl::AbortedError(fmt::format("{} ended with {}", name, child.EndText())),
                  log.empty() ? "it wrote nothing; run it by hand" : "it wrote:\n" + log);
}

}  // namespace

absl::StatusOr<LocalFederation> LocalFederation::Start(Host& host, InterruptGuard& guard,
                                                       const LocalFederationOptions& options) {
  LocalFederation federation;
  RETURN_IF_ERROR(federation.StartServer(host, guard, options));
  RETURN_IF_ERROR(federation.StartWorkers(host, guard, options));
  return federation;
}

absl::Status LocalFederation::StartServer(Host& host, InterruptGuard& guard, const LocalFederationOptions& options) {
  const std::string port_file = options.directory + "/port";
  const std::string http_port_file = options.directory + "/http-port";
  std::vector<std::string> arguments = {"--listen",    "127.0.0.1:0", "--data-dir",  options.directory + "/server",
                                        "--port-file", port_file,     "--log-level", "warning"};
  if (!options.join_directory.empty()) {
    arguments.insert(arguments.end(),
                     {"--http", "127.0.0.1:0", "--http-port-file", http_port_file, "--join", options.join_directory});
  }
  ASSIGN_OR_RETURN(ChildProcess server,
                   StartBinary(host, "sheafd", std::move(arguments), options.directory + "/sheafd.log"));
  guard.Guard(server.pid());
  server_.push_back(std::move(server));
  const absl::Time give_up = host.clock.Now() + kServerStart;
  // The file appears in one step, once the server serves.
  while (!FileExists(port_file)) {
    if (!server_.front().IsRunning()) return Ended("sheafd", server_.front());
    if (host.clock.Now() > give_up) {
      return WithHint(absl::DeadlineExceededError(
                          fmt::format("sheafd did not serve within {}", absl::FormatDuration(kServerStart))),
                      "the machine may be too busy; try again, or look at the log with --keep");
    }
    host.pause(kLookInterval);
  }
  ASSIGN_OR_RETURN(address_, ReadAddress(port_file));
  if (!options.join_directory.empty()) {
    // It is written before the other.
    ASSIGN_OR_RETURN(http_address_, ReadAddress(http_port_file));
  }
  return absl::OkStatus();
}

absl::Status LocalFederation::StartWorkers(Host& host, InterruptGuard& guard, const LocalFederationOptions& options) {
  for (int i = 1; i <= options.num_workers; ++i) {
    const std::string name = fmt::format("demo-{}", i);
    std::vector<std::string> arguments = {"--server", address_, "--name", name, "--data", options.worker_data};
    if (options.prepare_ahead > 0) {
      arguments.insert(arguments.end(), {"--prepare-ahead", fmt::format("{}", options.prepare_ahead)});
    }
    arguments.insert(arguments.end(), {"--log-level", "warning"});
    ASSIGN_OR_RETURN(ChildProcess worker, StartBinary(host, "sheaf-worker", std::move(arguments),
                                                      fmt::format("{}/{}.log", options.directory, name)));
    guard.Guard(worker.pid());
    workers_.push_back(std::move(worker));
  }
  return absl::OkStatus();
}

LocalFederation::~LocalFederation() {
  // All at once, then one by one: it takes as long as the slowest.
  for (ChildProcess& worker : workers_) worker.Terminate();
  for (ChildProcess& worker : workers_) worker.Stop(kGrace);
  for (ChildProcess& server : server_) server.Stop(kGrace);
}

absl::Status LocalFederation::Check() {
  if (!server_.front().IsRunning()) return Ended("sheafd", server_.front());
  for (ChildProcess& worker : workers_) {
    if (worker.IsRunning()) return absl::OkStatus();
  }
  return workers_.empty() ? absl::OkStatus() : Ended("sheaf-worker", workers_.front());
}

}  // namespace sheaf
