#include "cli/processes/local_federation.h"

#include <poll.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <sstream>

#include "cli/files.h"
#include "cli/processes/temporary_directory.h"
#include "cli/terminal/errors.h"
#include "tests/cli/command_run.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

// Shell scripts in the place of the two binaries.
class FakeBinaries {
 public:
  void Install(const std::string& name, const std::string& script) {
    const std::string path = directory_->path() + "/" + name;
    REQUIRE(WriteFile(path, "#!/bin/sh\n" + script + "\n", Overwrite::kYes).ok());
    REQUIRE(::chmod(path.c_str(), 0755) == 0);
  }
  absl::StatusOr<LocalFederation> Start(int num_workers) {
    return LocalFederation::Start(
        host_, guard_, {.directory = directory_->path(), .num_workers = num_workers, .worker_data = "debian-index=x"});
  }
  std::string Log(const std::string& name) const { return ReadFile(directory_->path() + "/" + name).value_or(""); }

 private:
  absl::StatusOr<TemporaryDirectory> directory_ = TemporaryDirectory::Create("/tmp", "sheaf-federation-");
  std::istringstream in_;
  std::ostringstream out_;
  ManualClock clock_;
  SeededRandom random_{1};
  ImmediateTimer timer_;
  InterruptGuard guard_;
  Host host_{.in = in_,
             .out = out_,
             .err = out_,
             .clock = clock_,
             .random = random_,
             .pause = [](absl::Duration pause) { ::poll(nullptr, 0, static_cast<int>(pause / absl::Milliseconds(1))); },
             .timer = timer_,
             .binary_directory = directory_->path()};
};

// A server that writes its port file in one step ($6 follows --port-file) and serves until told to stop.
constexpr char kServer[] = "echo 127.0.0.1:4321 > $6.part; mv $6.part $6\ntrap 'exit 0' TERM\nwhile :; do :; done";
constexpr char kWorker[] = "echo \"$@\"\ntrap 'exit 0' TERM\nwhile :; do :; done";

TEST_CASE("A federation knows its server's address, and each worker its name, server and data") {
  FakeBinaries binaries;
  binaries.Install("sheafd", kServer);
  binaries.Install("sheaf-worker", kWorker);
  auto federation = binaries.Start(2);
  REQUIRE(federation.ok());
  CHECK(federation->address() == "127.0.0.1:4321");
  CHECK(federation->Check().ok());
  while (binaries.Log("demo-2.log").find('\n') == std::string::npos) REQUIRE(federation->Check().ok());
  CHECK(binaries.Log("demo-2.log") ==
        "--server 127.0.0.1:4321 --name demo-2 --data debian-index=x --log-level warning\n");
}

TEST_CASE("A binary that is missing is named") {
  FakeBinaries binaries;
  const auto federation = binaries.Start(1);
  CHECK(federation.status().code() == absl::StatusCode::kNotFound);
  CHECK_THAT(HintOf(federation.status()), Contains("sheafd must lie beside sheaf"));
}

TEST_CASE("A server that ends at once is told with the end of its log") {
  FakeBinaries binaries;
  binaries.Install("sheafd", "echo 'the disk is full' >&2; exit 4");
  const auto federation = binaries.Start(1);
  CHECK(federation.status().code() == absl::StatusCode::kAborted);
  CHECK(federation.status().message() == "sheafd ended with exit code 4");
  CHECK(HintOf(federation.status()) == "it wrote:\nthe disk is full");
}

TEST_CASE("A federation whose workers have all gone says so") {
  FakeBinaries binaries;
  binaries.Install("sheafd", kServer);
  binaries.Install("sheaf-worker", "echo 'no such data'; exit 1");
  auto federation = binaries.Start(2);
  REQUIRE(federation.ok());
  while (federation->Check().ok()) {
  }
  CHECK(federation->Check().message() == "sheaf-worker ended with exit code 1");
}

}  // namespace
}  // namespace sheaf
