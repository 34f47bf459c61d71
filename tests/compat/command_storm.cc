#include "tests/compat/command_storm.h"

#include "cli/files.h"

namespace sheaf {
namespace {

constexpr absl::Duration kLongest = absl::Minutes(1);
constexpr absl::Duration kKilling = absl::Seconds(6);
constexpr absl::Duration kPause = absl::Milliseconds(400);
// Kills between two of the server.
constexpr int kServerEvery = 3;

}  // namespace

CommandStorm::CommandStorm(Federation& federation, std::vector<std::string> workers)
    : federation_(federation), workers_(std::move(workers)) {
  for (const std::string& worker : workers_) federation_.StartWorker(worker, {"--concurrency", "2"});
}

CommandRun CommandStorm::Sheaf(const std::vector<std::string>& arguments) {
  const std::string out = federation_.directory() + "/out";
  const std::string err = federation_.directory() + "/err";
  std::vector<std::string> words = {"/bin/sh",
                                    "-c",
                                    fmt::format("exec \"$@\" >{} 2>{}", out, err),
                                    "sh",
                                    federation_.programs().sheaf,
                                    "--server",
                                    federation_.address()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  absl::StatusOr<ChildProcess> command =
      ChildProcess::Start({.argv = std::move(words), .log_path = federation_.directory() + "/command.log"});
  REQUIRE(command.ok());
  const absl::Time start = federation_.clock().Now();
  while (!command->WaitForEnd(kPause)) {
    const absl::Duration running = federation_.clock().Now() - start;
    REQUIRE(running < kLongest);
    if (running < kKilling) Kill();
  }
  CommandRun run{.out = ReadFile(out).value_or(""), .err = ReadFile(err).value_or("")};
  INFO(command->EndText() << "\n" << run.err);
  REQUIRE(std::sscanf(command->EndText().c_str(), "exit code %d", &run.exit_code) == 1);
  return run;
}

void CommandStorm::Kill() {
  if (num_kills_++ % kServerEvery == 0) {
    federation_.KillServer();
    federation_.StartServer();
    ++num_server_kills_;
  } else if (!workers_.empty()) {
    const std::string& worker = workers_[static_cast<size_t>(num_worker_kills_) % workers_.size()];
    federation_.KillWorker(worker);
    federation_.RestartWorker(worker);
    ++num_worker_kills_;
  }
}

}  // namespace sheaf
