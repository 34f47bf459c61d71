// What is wrong with the machine: one sentence that names the thing and the remedy, the right code, nothing broken.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/retry_hint.h"
#include "sdk/cpp/blob_client.h"
#include "sdk/cpp/methods.h"
#include "sdk/cpp/round_client.h"
#include "storage/sqlite/sqlite_connection.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

// sheafd that is expected not to start.
CommandRun RunServer(const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {BinaryPath("sheafd")};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return RunCommand(argv, {.timeout = absl::Seconds(15)});
}

TEST_CASE("A store of a newer version is refused with both versions, and left as it was") {
  const TemporaryDirectory directory = ScratchDirectory();
  const std::string data = directory.path() + "/data";
  const std::string database = data + "/tasks.db";
  { Federation federation({.data_directory = data}); }
  {
    const auto connection = SqliteConnection::Open(database);
    REQUIRE(connection.ok());
    REQUIRE((*connection)->ExecuteScript("UPDATE schema SET version = 99, minimum_compatible_version = 98").ok());
  }
  const auto size = std::filesystem::file_size(database);
  const CommandRun run = RunServer({"--listen", "127.0.0.1:0", "--data-dir", data});
  INFO(run.err);
  CHECK(run.exit_code == 1);
  CHECK_THAT(run.err, Contains("version 99") && Contains("98") && Contains("version 5") && Contains(database));
  CHECK(std::filesystem::file_size(database) == size);
}

TEST_CASE("A busy port, or a data directory in use, ends a second server with one sentence; the first goes on") {
  Federation federation;
  const CommandRun port =
      RunServer({"--listen", federation.address(), "--data-dir", federation.directory() + "/other"});
  CHECK(port.exit_code == 1);
  CHECK_THAT(port.err, Contains(federation.address()) && Contains("--listen"));
  const CommandRun data = RunServer({"--listen", "127.0.0.1:0", "--data-dir", federation.data_directory()});
  CHECK(data.exit_code == 1);
  CHECK_THAT(data.err, Contains(federation.data_directory()));
  CHECK(federation.Sheaf({"server", "info"}).exit_code == 0);
}

TEST_CASE("Without a package index the demo says what to install or to run") {
  const std::vector<std::string> demo = {BinaryPath("sheaf"), "demo", "tags", "--rounds", "1"};
  const CommandRun no_apt = RunCommand(demo, {.environment = {"PATH=/nonexistent"}});
  INFO(no_apt.err);
  CHECK(no_apt.exit_code == 7);
  CHECK_THAT(no_apt.err, Contains("apt-cache") && Contains("not found") && Contains("hint: "));

  // Lists that are there, and empty.
  const TemporaryDirectory directory = ScratchDirectory();
  const std::string apt_cache = directory.path() + "/apt-cache";
  std::ofstream(apt_cache) << "#!/bin/sh\n";
  REQUIRE(::chmod(apt_cache.c_str(), 0755) == 0);
  const CommandRun empty = RunCommand(demo, {.environment = {"PATH=" + directory.path()}});
  INFO(empty.err);
  CHECK(empty.exit_code == 7);
  CHECK_THAT(empty.err, Contains("apt-get update"));
}

TEST_CASE("A server that cannot be reached is exit code 5, and the sentence names it") {
  std::string address;
  {
    Federation federation;
    address = federation.address();
  }
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"server", "info"}, {"round", "list"}, {"round", "wait", "r-nosuch22"}}) {
    std::vector<std::string> argv = {BinaryPath("sheaf"), "--server", address};
    argv.insert(argv.end(), words.begin(), words.end());
    const CommandRun run = RunCommand(argv);
    INFO(run.err);
    CHECK(run.exit_code == 5);
    CHECK(run.out.empty());
    CHECK_THAT(run.err, Contains(address) && Contains("hint: "));
  }
}

// --- A full disk ---

constexpr int64_t kValues = 200'000;

// Contributions of 800 KB, so that none fits on a full disk.
v1::RoundSpec ALargeRound() {
  v1::RoundSpec spec;
  spec.mutable_computation()->set_name("noop");
  v1::OutputSpec& output = *spec.mutable_aggregate()->add_outputs();
  output.set_name("x");
  output.set_operator_("sum");
  output.set_dtype(v1::FLOAT32);
  output.add_dense_shape(kValues);
  for (int i = 0; i < 3; ++i) spec.mutable_listed()->add_tasks()->set_payload(fmt::format("0 {}", i));
  return spec;
}

v1::RoundSpec ManyLargeTasks() {
  v1::RoundSpec spec = ALargeRound();
  for (int i = 0; i < 100; ++i) spec.mutable_listed()->add_tasks()->set_payload(std::string(32 << 10, 'x'));
  return spec;
}

// Takes all the room there is.
void Fill(const std::string& path) {
  std::ofstream file(path);
  for (int64_t size : {1 << 20, 4096}) {
    const std::string block(static_cast<size_t>(size), 'x');
    while (file.write(block.data(), size).flush()) {
    }
    file.clear();
  }
}

TEST_CASE("A full disk refuses what needs room, keeps what was accepted, and goes on when there is room again") {
  const TemporaryDirectory directory = ScratchDirectory();
  // A small file system of the server's own, gone with it.
  const std::vector<std::string> unshare =
      ::geteuid() == 0 ? std::vector<std::string>{"unshare", "-m"} : std::vector<std::string>{"unshare", "-rm"};
  std::vector<std::string> wrapper = {"/usr/bin/env"};
  wrapper.insert(wrapper.end(), unshare.begin(), unshare.end());
  const std::string mount = fmt::format("mount -t tmpfs -o size=12m tmpfs {}", directory.path());
  std::vector<std::string> trial = wrapper;
  trial.insert(trial.end(), {"/bin/sh", "-c", mount});
  if (RunCommand(trial).exit_code != 0) return Measured("not run: this user may not mount a small file system");
  wrapper.insert(wrapper.end(), {"/bin/sh", "-c", mount + " && exec \"$@\"", "sh"});
  Federation federation({.server_wrapper = wrapper, .data_directory = directory.path() + "/data"});
  Transport& transport = federation.impatient_transport();
  const std::string filler = fmt::format("/proc/{}/root{}/filler", federation.server().pid(), directory.path());

  const std::string round = StartRound(federation, ALargeRound());
  const v1::SyncResponse granted = SyncOnce(transport, APoll("hand", "poll-1", 3));
  REQUIRE(granted.leases_size() == 3);
  v1::SyncRequest first = APoll("hand", "poll-2", 0);
  AddResult(granted.leases(0), first);
  CHECK(VerdictsOf(SyncOnce(transport, first)) == std::vector<std::string>{"ACCEPTED"});
  const std::string etag = RoundOf(transport, round).etag();

  Fill(filler);
  v1::SyncRequest second = APoll("hand", "poll-3", 0);
  AddResult(granted.leases(1), second);
  const absl::Status sync = BlockingCall(transport, kSync, second).status();
  const absl::Status upload = UploadBlob(transport, federation.random(), std::string(4 << 20, 'x')).status();
  const absl::Status create = CreateRound(transport, "request-2", ManyLargeTasks()).status();
  for (const absl::Status& status : {sync, upload, create}) {
    INFO(status.ToString());
    CHECK(status.code() == absl::StatusCode::kResourceExhausted);
    CHECK_THAT(std::string(status.message()), Contains("full") || Contains("space"));
  }
  // A worker that uploads waits for space, and does not call its task failed.
  CHECK(RetryAfter(upload) == absl::Seconds(10));
  // Reading goes on, and nothing has changed.
  REQUIRE(federation.server().IsRunning());
  CHECK(RoundOf(transport, round).etag() == etag);
  CHECK(RoundOf(transport, round).num_contributions() == 1);
  CHECK(BlockingCall(transport, kListRounds, {})->rounds_size() == 1);

  std::filesystem::remove(filler);
  AddResult(granted.leases(2), second);
  CHECK(VerdictsOf(SyncOnce(transport, second)) == std::vector<std::string>(2, "ACCEPTED"));
  CHECK(Await(federation, round).aggregate().num_contributions() == 3);
  Measured("Sync: {}; upload: {}; new round: {}", std::string(sync.message()), std::string(upload.message()),
           std::string(create.message()));
}

}  // namespace
}  // namespace sheaf
