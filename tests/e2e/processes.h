// Federation: a real server, real workers and the real command line, in a directory of their own and on a free port of
// 127.0.0.1. All end with this object; if a test failed, it shows the end of their logs. A batch that took the server's
// core for too long fails the test (see slow_batches.h).
//
//   Federation federation;
//   ChildProcess& worker = federation.StartWorker("w1");
//   auto round = CreateRound(federation.transport(), "request-1", OneHotRound({.num_tasks = 8}));
//   federation.KillServer();                                 // As a power cut would.
//   federation.StartServer();                                // The same data, the same port.
//   CommandRun run = federation.Sheaf({"round", "list"});
//   CHECK(run.exit_code == 0);
//
// Not thread-safe: children belong to the test's thread.
#pragma once

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/random.h"
#include "cli/processes/child_process.h"
#include "cli/processes/temporary_directory.h"
#include "sdk/cpp/client/grpc_transport.h"
#include "sdk/cpp/client/open_transport.h"
#include "sdk/cpp/client/server_address.h"
#include "sdk/cpp/client/transport.h"
#include "tests/wait_until.h"

namespace sheaf {

// Of sheafd, sheaf-worker or sheaf.
std::string BinaryPath(const std::string& name);

// Paths: what a federation starts. Those of this build, unless a test names others.
struct Programs {
  std::string sheafd = BinaryPath("sheafd");
  std::string worker = BinaryPath("sheaf-worker");
  std::string sheaf = BinaryPath("sheaf");
};

struct CommandRun {
  int exit_code = 0;
  std::string out;
  std::string err;
};

struct CommandOptions {
  // "NAME=VALUE", added to this process's environment.
  std::vector<std::string> environment;
  absl::Duration timeout = absl::Seconds(60);
};

// Runs a program to its end; fails the test if it takes longer than allowed.
CommandRun RunCommand(const std::vector<std::string>& argv, const CommandOptions& options = {});

// "exit code 0" once it ended by itself; fails the test if that takes longer.
std::string EndOf(ChildProcess& process, absl::Duration within);

struct FederationOptions {
  // In addition to those that place it.
  std::vector<std::string> server_arguments;
  // Words before the server's own: a program that becomes it.
  std::vector<std::string> server_wrapper;
  // Empty: in the directory of the federation.
  std::string data_directory;
  // How the test, its workers and its command line reach the server. kHttps wants a certificate among the arguments.
  ChannelSecurity security;
  ServerAddress::Protocol protocol = ServerAddress::Protocol::kGrpc;
  Programs programs;
};

class Federation {
 public:
  // Starts the server.
  explicit Federation(FederationOptions options = {});
  ~Federation();
  Federation(const Federation&) = delete;
  Federation& operator=(const Federation&) = delete;

  const std::string& directory() const { return directory_.path(); }
  std::string data_directory() const {
    return options_.data_directory.empty() ? directory() + "/data" : options_.data_directory;
  }
  // "127.0.0.1:PORT", or the URL of its HTTP/1.1; stays the same over restarts.
  const std::string& address() const { return address_; }
  const ChannelSecurity& security() const { return options_.security; }
  const Clock& clock() const { return clock_; }
  Random& random() { return random_; }
  // What is started from now on. Whatever runs goes on.
  Programs& programs() { return programs_; }
  // Repeats calls while the server restarts.
  Transport& transport() { return *transport_; }
  // Does not.
  Transport& impatient_transport() { return *wire_; }

  ChildProcess& server() { return *server_; }
  // Returns when it serves, and how long that took.
  absl::Duration StartServer();
  // SIGKILL.
  void KillServer();
  // SIGTERM; returns how long it took to end, and fails the test unless it ended well.
  absl::Duration StopServer();

  // `server`: where it connects to, if not to the server itself; then it gets no `security`. `wrapper`: as
  // FederationOptions::server_wrapper.
  ChildProcess& StartWorker(const std::string& name, const std::vector<std::string>& arguments = {},
                            const std::string& server = "", std::vector<std::string> wrapper = {});
  // SIGKILL.
  void KillWorker(const std::string& name);
  // One that has ended, with the arguments it had.
  ChildProcess& RestartWorker(const std::string& name);

  // `sheaf` with --server; see RunCommand.
  CommandRun Sheaf(std::vector<std::string> arguments, const CommandOptions& options = {}) const;

 private:
  // `security` as flags.
  std::vector<std::string> SecurityFlags() const;
  bool uses_http() const { return options_.protocol != ServerAddress::Protocol::kGrpc; }
  std::string PortFile() const { return directory() + "/port"; }
  std::string HttpPortFile() const { return directory() + "/http-port"; }
  std::string LogOfStart(int number) const { return fmt::format("{}/sheafd-{}.log", directory(), number); }

  SystemClock clock_;
  SystemRandom random_;
  SystemRandom retry_random_;
  GrpcTimer timer_;
  TemporaryDirectory directory_;
  const FederationOptions options_;
  Programs programs_;
  std::string address_;
  // Where it listens, for its restarts.
  std::string grpc_listen_ = "127.0.0.1:0";
  std::string http_listen_ = "127.0.0.1:0";
  int num_starts_ = 0;
  // Of the servers of this build: an older one may take as long for a batch as it did.
  std::vector<std::string> judged_logs_;
  std::optional<ChildProcess> server_;
  std::map<std::string, ChildProcess> workers_;
  std::map<std::string, std::vector<std::string>> worker_commands_;
  int num_worker_restarts_ = 0;
  std::unique_ptr<ServerTransport> wire_;
  std::unique_ptr<RetryingTransport> transport_;
};

TemporaryDirectory ScratchDirectory();
// Of 127.0.0.1, for a program that must be told one before it listens.
int FreePort();

// Prints what a test measured.
template <typename... Arguments>
void Measured(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  fmt::print("  {}: {}\n", Catch::getResultCapture().getCurrentTestName(),
             fmt::format(format, std::forward<Arguments>(arguments)...));
  std::fflush(stdout);
}

}  // namespace sheaf
