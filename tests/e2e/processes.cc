#include "tests/e2e/processes.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/check.h"
#include "cli/files.h"
#include "tests/slow_batches.h"

namespace sheaf {
namespace {

constexpr absl::Duration kServerStart = absl::Seconds(15);
constexpr int kLogLines = 20;

ChildProcess StartChild(std::vector<std::string> argv, const std::string& log_path) {
  absl::StatusOr<ChildProcess> child = ChildProcess::Start({.argv = std::move(argv), .log_path = log_path});
  INFO(child.status().ToString());
  REQUIRE(child.ok());
  return *std::move(child);
}

void Kill(ChildProcess& child) {
  REQUIRE(::kill(child.pid(), SIGKILL) == 0);
  REQUIRE(child.WaitForEnd(absl::Seconds(10)));
}

std::string Content(const std::string& path) {
  const absl::StatusOr<std::string> content = ReadFile(path);
  INFO(content.status().ToString());
  REQUIRE(content.ok());
  return *content;
}

// Without its end.
std::string Line(const std::string& path) {
  std::string line = Content(path);
  while (!line.empty() && line.back() == '\n') line.pop_back();
  return line;
}

void ShowLog(const ChildProcess& child) {
  std::cout << child.log_path() << ":\n" << child.LogTail(kLogLines) << std::flush;
}

}  // namespace

std::string BinaryPath(const std::string& name) { return SHEAF_BINARIES "/" + name; }

TemporaryDirectory ScratchDirectory() {
  absl::StatusOr<TemporaryDirectory> directory =
      TemporaryDirectory::Create(std::filesystem::temp_directory_path(), "sheaf-e2e-");
  SHEAF_CHECK(directory.ok(), "{}", directory.status().ToString());
  return *std::move(directory);
}

int FreePort() {
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(probe, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  ::close(probe);
  return ntohs(address.sin_port);
}

std::string EndOf(ChildProcess& process, absl::Duration within) {
  if (process.WaitForEnd(within)) return process.EndText();
  FAIL(process.log_path() << ": still running after " << absl::FormatDuration(within) << "\n"
                          << process.LogTail(kLogLines));
  return "";
}

CommandRun RunCommand(const std::vector<std::string>& argv, const CommandOptions& options) {
  const TemporaryDirectory directory = ScratchDirectory();
  const std::string out = directory.path() + "/out";
  const std::string err = directory.path() + "/err";
  // The shell parts the two streams and becomes the program.
  std::vector<std::string> words = {"/bin/sh", "-c", fmt::format("exec \"$@\" >{} 2>{}", out, err), "sh"};
  words.push_back("/usr/bin/env");
  words.insert(words.end(), options.environment.begin(), options.environment.end());
  words.insert(words.end(), argv.begin(), argv.end());
  ChildProcess child = StartChild(std::move(words), directory.path() + "/shell");
  const std::string end = EndOf(child, options.timeout);
  CommandRun run{.out = Content(out), .err = Content(err)};
  INFO(fmt::format("{} ended with {}\n{}", fmt::join(argv, " "), end, run.err));
  REQUIRE(std::sscanf(end.c_str(), "exit code %d", &run.exit_code) == 1);
  return run;
}

Federation::Federation(FederationOptions options)
    : directory_(ScratchDirectory()), options_(std::move(options)), programs_(options_.programs) {
  StartServer();
}

Federation::~Federation() {
  if (std::uncaught_exceptions() > 0) {
    if (server_) ShowLog(*server_);
    for (const auto& [name, worker] : workers_) ShowLog(worker);
  }
  transport_.reset();
  wire_.reset();
  // All at once; each is waited for when it is destroyed.
  for (auto& [name, worker] : workers_) worker.Terminate();
  workers_.clear();
  server_.reset();
  for (const std::string& path : judged_logs_) {
    const absl::StatusOr<std::string> log = ReadFile(path);
    if (log.ok()) CheckNoSlowBatches(*log);
  }
}

absl::Duration Federation::StartServer() {
  const absl::Time start = clock_.Now();
  std::filesystem::remove(PortFile());
  std::filesystem::remove(HttpPortFile());
  std::vector<std::string> argv = options_.server_wrapper;
  for (const std::string& word : {programs_.sheafd, std::string("--listen"), grpc_listen_, std::string("--data-dir"),
                                  data_directory(), std::string("--port-file"), PortFile()}) {
    argv.push_back(word);
  }
  if (uses_http()) argv.insert(argv.end(), {"--http", http_listen_, "--http-port-file", HttpPortFile()});
  argv.insert(argv.end(), options_.server_arguments.begin(), options_.server_arguments.end());
  server_.reset();
  const std::string log = LogOfStart(++num_starts_);
  if (programs_.sheafd == BinaryPath("sheafd")) judged_logs_.push_back(log);
  server_.emplace(StartChild(std::move(argv), log));
  WaitUntil("sheafd serves", kServerStart, [&] {
    if (!server_->IsRunning()) FAIL("sheafd ended with " << server_->EndText() << ":\n" << server_->LogTail(kLogLines));
    return FileExists(PortFile()) && (!uses_http() || FileExists(HttpPortFile()));
  });
  grpc_listen_ = Line(PortFile());
  std::string address = grpc_listen_;
  if (uses_http()) {
    http_listen_ = Line(HttpPortFile());
    address = (options_.protocol == ServerAddress::Protocol::kHttps ? "https://" : "http://") + http_listen_;
  }
  if (address_.empty()) {
    address_ = address;
    wire_ = OpenTransport(address_, {.security = options_.security, .own_connection = true});
    transport_ = std::make_unique<RetryingTransport>(*wire_, timer_, clock_, retry_random_, RetryOptions());
  }
  REQUIRE(address == address_);
  return clock_.Now() - start;
}

void Federation::KillServer() { Kill(*server_); }

absl::Duration Federation::StopServer() {
  const absl::Time start = clock_.Now();
  server_->Terminate();
  const std::string end = EndOf(*server_, absl::Seconds(15));
  INFO(server_->LogTail(kLogLines));
  REQUIRE(end == "exit code 0");
  return clock_.Now() - start;
}

ChildProcess& Federation::StartWorker(const std::string& name, const std::vector<std::string>& arguments,
                                      const std::string& server, std::vector<std::string> wrapper) {
  std::vector<std::string> argv = std::move(wrapper);
  argv.insert(argv.end(), {programs_.worker, "--server", server.empty() ? address_ : server, "--name", name});
  const std::vector<std::string> security = server.empty() ? SecurityFlags() : std::vector<std::string>();
  argv.insert(argv.end(), security.begin(), security.end());
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  worker_commands_[name] = argv;
  const auto [worker, is_new] = workers_.emplace(name, StartChild(std::move(argv), directory() + "/" + name + ".log"));
  REQUIRE(is_new);
  return worker->second;
}

ChildProcess& Federation::RestartWorker(const std::string& name) {
  workers_.erase(name);
  return workers_
      .emplace(name, StartChild(worker_commands_.at(name),
                                fmt::format("{}/{}-{}.log", directory(), name, ++num_worker_restarts_)))
      .first->second;
}

void Federation::KillWorker(const std::string& name) { Kill(workers_.at(name)); }

CommandRun Federation::Sheaf(std::vector<std::string> arguments, const CommandOptions& options) const {
  std::vector<std::string> argv = {programs_.sheaf, "--server", address_};
  const std::vector<std::string> security = SecurityFlags();
  argv.insert(argv.end(), security.begin(), security.end());
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return RunCommand(argv, options);
}

std::vector<std::string> Federation::SecurityFlags() const {
  std::vector<std::string> flags;
  const ChannelSecurity& security = options_.security;
  for (const auto& [flag, value] : {std::pair("--tls-ca", security.tls_ca),
                                    {"--tls-cert", security.tls_cert},
                                    {"--tls-key", security.tls_key},
                                    {"--token-file", security.token_file}}) {
    if (!value.empty()) flags.insert(flags.end(), {flag, value});
  }
  return flags;
}

}  // namespace sheaf
