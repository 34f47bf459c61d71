// What is wrong with the machine: one sentence that names the thing and the remedy, the right code, nothing broken.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/retry_hint.h"
#include "proto/methods.h"
#include "sdk/cpp/client/blob_client.h"
#include "sdk/cpp/client/round_client.h"
#include "storage/sqlite/sqlite_connection.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

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
  CHECK_THAT(run.err, Contains("version 99") && Contains("98") && Contains("version 9") && Contains(database));
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

TEST_CASE("A server refuses a backup, which restores afterwards as before") {
  const TemporaryDirectory directory = ScratchDirectory();
  const std::string backup = directory.path() + "/backup";
  Federation federation;
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = 2}));
  REQUIRE(federation.Sheaf({"store", "backup", federation.data_directory(), "--to", backup}).exit_code == 0);
  const CommandRun run = RunServer({"--listen", "127.0.0.1:0", "--data-dir", backup});
  INFO(run.err);
  CHECK(run.exit_code == 1);
  CHECK_THAT(run.err, Contains("sheaf store restore " + backup));
  const CommandRun restored = federation.Sheaf({"store", "restore", backup, "--to", directory.path() + "/data"});
  INFO(restored.err);
  CHECK(restored.exit_code == 0);
  Federation again({.data_directory = directory.path() + "/data"});
  CHECK(RoundOf(again.transport(), round).state() == v1::COLLECTING);
}

TEST_CASE("Nothing that lies in a store's directories and cannot be deleted keeps its server from starting") {
  namespace fs = std::filesystem;
  Federation federation;
  const std::string data = federation.data_directory();
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = 3}));
  const v1::SyncResponse granted = SyncOnce(federation.transport(), APoll("hand", "poll", 3));
  const auto hand_in = [&](int index) {
    v1::SyncRequest request = APoll("hand", fmt::format("result-{}", index), 0);
    AddResult(granted.leases(index), request);
    CHECK(VerdictsOf(SyncOnce(federation.transport(), request)) == std::vector<std::string>{"ACCEPTED"});
  };
  hand_in(0);
  // Has a checkpoint.
  federation.StopServer();
  federation.StartServer();
  hand_in(1);
  federation.KillServer();
  const std::string digest(64, 'd');
  // A directory where a file was cannot be unlinked, like a file that is immutable.
  const std::vector<std::string> strays = {"uploads/dir",
                                           "uploads/u.3." + digest + ".part",
                                           "blobs/dir",
                                           "blobs/" + digest,
                                           "spools/r-old22/1.log",
                                           "checkpoints/r-old44/c1.ckpt",
                                           "spools/r-old33/x",
                                           "spools/" + round + "/stray",
                                           "checkpoints/" + round + "/stray"};
  for (const std::string& stray : strays) fs::create_directories(data + "/" + stray + "/inside");
  std::ofstream(data + "/spools/file") << "x";
  std::ofstream(data + "/checkpoints/file") << "x";
  std::ofstream(data + "/spools/r-old22/2.log") << "a contribution of long ago";

  federation.StartServer();
  const std::string log = federation.server().LogTail(1'000'000);
  for (const std::string& stray : strays) {
    INFO(stray);
    CHECK(fs::exists(data + "/" + stray + "/inside"));
    // What lies beside the segments of a live spool is nobody's business until the round has ended.
    if (stray != "spools/" + round + "/stray" && stray != "blobs/" + digest) CHECK_THAT(log, Contains(stray));
  }
  // What could be deleted was.
  CHECK_FALSE(fs::exists(data + "/spools/r-old22/2.log"));
  CHECK(RoundOf(federation.transport(), round).num_contributions() == 2);
  hand_in(2);
  Await(federation, round);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(3, 1));
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
  StartRound(federation, OneHotRound({.num_tasks = 200, .lease = absl::Seconds(1)}));
  REQUIRE(SyncOnce(transport, APoll("dead", "poll-dead", 200)).leases_size() > 0);

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
  CHECK(BlockingCall(transport, kListRounds, {})->rounds_size() == 2);
  // Also while every batch fails, because leases have expired and there is no room to say so.
  ::poll(nullptr, 0, 1500);
  int num_refused = 0;
  for (int i = 0; i < 20; ++i) {
    for (const std::vector<std::string>& words : {std::vector<std::string>{"server", "info"},
                                                  {"round", "explain", round},
                                                  {"task", "list", "--round", round}}) {
      const CommandRun run = federation.Sheaf(words);
      if (run.exit_code != 0) ++num_refused;
      INFO(run.err);
      CHECK(run.exit_code == 0);
    }
    // What was written back leaves room.
    if (i % 5 == 0) Fill(filler + std::to_string(i));
  }
  for (int i = 0; i < 20; ++i) std::filesystem::remove(filler + std::to_string(i));

  std::filesystem::remove(filler);
  AddResult(granted.leases(2), second);
  CHECK(VerdictsOf(SyncOnce(transport, second)) == std::vector<std::string>(2, "ACCEPTED"));
  CHECK(Await(federation, round).aggregate().num_contributions() == 3);
  Measured("Sync: {}; upload: {}; new round: {}; {} of 60 looks refused", std::string(sync.message()),
           std::string(upload.message()), std::string(create.message()), num_refused);
}

}  // namespace
}  // namespace sheaf
