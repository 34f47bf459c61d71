// What the command line, the SDK or a worker says wrong: one sentence, the right code, and the state as it was.
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/checksum.h"
#include "base/version.h"
#include "probe/one_hot.h"
#include "proto/methods.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

// "error: ..." and "hint: ..." on stderr, and nothing on stdout.
void CheckRefusal(const CommandRun& run, int exit_code, const std::string& says) {
  INFO(run.out << run.err);
  CHECK(run.exit_code == exit_code);
  CHECK(run.out.empty());
  CHECK_THAT(run.err, StartsWith("error: ") && Contains("\nhint: ") && Contains(says));
  CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 2);
}

TEST_CASE("An unknown round, task or worker is not found: exit code 3, and the sentence names it") {
  Federation federation;
  for (const char* verb : {"describe", "watch", "wait", "explain", "cancel", "result"}) {
    INFO(verb);
    CheckRefusal(federation.Sheaf({"round", verb, "r-nosuch22"}), 3, "r-nosuch22");
  }
  for (const char* verb : {"describe", "requeue"}) {
    CheckRefusal(federation.Sheaf({"task", verb, "r-nosuch22/0"}), 3, "r-nosuch22");
    CHECK(federation.Sheaf({"task", verb, "seventeen"}).exit_code != 0);
  }
  CheckRefusal(federation.Sheaf({"worker", "drain", "nobody"}), 3, "nobody");
}

std::string SpecFile(const Federation& federation, const std::string& computation, const std::string& symbol) {
  std::string path = fmt::format("{}/{}-{}.json", federation.directory(), computation, symbol);
  std::ofstream(path) << fmt::format(
      R"({{"computation": {{"name": "{}"}}, "aggregate": {{"outputs": [{{"name": "x", "operator": "{}",
          "dtype": "FLOAT32", "denseShape": [4]}}]}}, "listed": {{"tasks": [{{}}]}}}})",
      computation, symbol);
  return path;
}

TEST_CASE("An unknown operator is refused when the round is created, and those there are are named") {
  Federation federation;
  const CommandRun run = federation.Sheaf({"round", "create", "-f", SpecFile(federation, "noop", "summ")});
  CheckRefusal(run, 2, "summ");
  for (const char* symbol : {"sum", "weighted_mean", "coordinate_mean", "sparse_sum_to_dense"}) {
    CHECK_THAT(run.err, Contains(symbol));
  }
  CHECK(federation.Sheaf({"round", "list", "--no-headers"}).out.empty());
}

TEST_CASE("A computation that no worker offers stays queued, and `round explain` says so") {
  Federation federation;
  federation.StartWorker("w1");
  const CommandRun created = federation.Sheaf({"round", "create", "-f", SpecFile(federation, "dreams", "sum")});
  REQUIRE(created.exit_code == 0);
  const std::string round = created.out.substr(0, created.out.find('\n'));
  WaitUntil("the worker is known", absl::Seconds(10),
            [&] { return BlockingCall(federation.transport(), kListWorkers, {})->workers_size() == 1; });
  const CommandRun explained = federation.Sheaf({"round", "explain", round});
  CHECK(explained.exit_code == 0);
  CHECK_THAT(explained.out, Contains("No worker") && Contains("offers") && Contains("dreams"));
  CHECK(RoundOf(federation.transport(), round).tasks().queued() == 1);
  CHECK(BlockingCall(federation.transport(), kDescribeQueue, {})->num_unschedulable() == 1);
}

// --- Contributions ---

v1::RoundSpec AFloatRound(int num_tasks) {
  v1::RoundSpec spec;
  spec.mutable_computation()->set_name("noop");
  for (const auto& [name, symbol] : {std::pair("dense", "sum"), {"sparse", "coordinate_mean"}}) {
    v1::OutputSpec& output = *spec.mutable_aggregate()->add_outputs();
    output.set_name(name);
    output.set_operator_(symbol);
    output.set_dtype(v1::FLOAT32);
    output.add_dense_shape(4);
  }
  for (int i = 0; i < num_tasks; ++i) spec.mutable_listed()->add_tasks();
  spec.set_contribution_bytes_max(1024);
  return spec;
}

struct BadContribution {
  std::string says;
  std::function<void(v1::Contribution&)> spoil;
};

v1::SparseTensor& Sparse(v1::Contribution& contribution) { return *contribution.mutable_outputs(1)->mutable_sparse(); }

const BadContribution kBadContributions[] = {
    {"dense", [](v1::Contribution& c) { c.mutable_outputs(0)->mutable_dense()->set_shape(0, 5); }},
    {"dense",
     [](v1::Contribution& c) {
       const float nan = std::nanf("");
       std::memcpy(c.mutable_outputs(0)->mutable_dense()->mutable_data()->data(), &nan, sizeof nan);
     }},
    {"sparse", [](v1::Contribution& c) { c.mutable_outputs()->RemoveLast(); }},
    {"sparse",
     [](v1::Contribution& c) {
       const int64_t outside = 4;
       std::memcpy(Sparse(c).mutable_indices()->mutable_data()->data(), &outside, sizeof outside);
     }},
    {"contribution_bytes_max",
     [](v1::Contribution& c) {
       for (int i = 0; i < 100; ++i) (*c.mutable_metrics())[fmt::format("metric {}", i)] = i;
     }},
};

TEST_CASE("Malformed and oversize contributions are rejected, count as failed attempts, and fold nothing") {
  Federation federation({.server_arguments = {"--contribution-bytes-max", "1MiB"}});
  constexpr int kNumBad = static_cast<int>(std::size(kBadContributions)) + 1;
  const std::string round = StartRound(federation, AFloatRound(kNumBad));
  const v1::SyncResponse granted = SyncOnce(federation.transport(), APoll("hand", "poll-1", kNumBad));
  REQUIRE(granted.leases_size() == kNumBad);

  // One that is larger than the server takes at all is refused before its bytes travel.
  v1::StartUploadRequest upload;
  upload.set_request_id("upload-1");
  upload.set_size_bytes(2 << 20);
  upload.set_digest(Sha256Hex("anything"));
  upload.mutable_contribution()->set_task(granted.leases(0).task());
  upload.mutable_contribution()->set_lease_token(granted.leases(0).lease_token());
  const auto refused = BlockingCall(federation.transport(), kStartUpload, upload);
  CHECK(refused.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(refused.status().message()), Contains("contribution_bytes_max"));

  v1::SyncRequest results = APoll("hand", "poll-2", 0);
  for (int i = 0; i < kNumBad; ++i) {
    v1::TaskResult& result = *results.add_results();
    result.set_task(granted.leases(i).task());
    result.set_lease_token(granted.leases(i).lease_token());
    v1::Contribution contribution = *OneHotContribution(granted.leases(i).aggregate(), 1, OneHotForm::kMeeting);
    if (i < kNumBad - 1) kBadContributions[i].spoil(contribution);
    result.set_contribution(i < kNumBad - 1 ? contribution.SerializeAsString() : "\xff\xff no message at all");
  }
  const v1::SyncResponse rejected = SyncOnce(federation.transport(), results);
  CHECK(VerdictsOf(rejected) == std::vector<std::string>(kNumBad, "REJECTED"));
  for (int i = 0; i < kNumBad; ++i) {
    const std::string says = i < kNumBad - 1 ? kBadContributions[i].says : "Contribution";
    INFO(rejected.verdicts(i).message());
    CHECK_THAT(rejected.verdicts(i).message(), Contains(says));
    const v1::Task task = TaskOf(federation.transport(), granted.leases(i).task());
    CHECK(task.state() == v1::QUEUED);
    REQUIRE(task.attempts_size() == 1);
    CHECK(task.attempts(0).outcome() == v1::ATTEMPT_FAILED);
    // The kind of error and its output; what the contribution holds stays between the server and its worker.
    CHECK_THAT(task.last_error(), StartsWith("contribution rejected: ") && Contains(says));
  }
  const v1::Round after = RoundOf(federation.transport(), round);
  CHECK(after.num_failed_attempts() == kNumBad);
  CHECK(after.num_contributions() == 0);
  CHECK(after.bytes_up() == 0);

  // What is released is what the good ones add up to: nothing of the others is in it.
  federation.StartWorker("w1");
  const v1::Round ended = Await(federation, round);
  CHECK(ended.aggregate().num_contributions() == kNumBad);
  CHECK(ended.aggregate().outputs(1).touched() == 0);
  Measured("{} rejected, 1 refused before its bytes were sent, 0 folded", kNumBad);
}

// --- Tokens ---

TEST_CASE("A token that is stale or foreign has lost its lease, one that is replayed is a duplicate") {
  Federation federation;
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = 3, .lease = absl::Minutes(10)}));
  const v1::SyncResponse granted = SyncOnce(federation.transport(), APoll("hand", "poll-1", 3));
  REQUIRE(granted.leases_size() == 3);
  const v1::Lease& replayed = granted.leases(0);
  const v1::Lease& stale = granted.leases(1);
  v1::Lease foreign = granted.leases(2);
  foreign.set_lease_token(replayed.lease_token());
  v1::Lease invented = granted.leases(2);
  invented.set_lease_token("a-token-nobody-gave");
  v1::Lease unknown = granted.leases(2);
  unknown.set_task("r-nosuch22/0");

  // An operator takes the task away.
  v1::RequeueTaskRequest requeue;
  requeue.set_request_id("requeue-1");
  requeue.set_task(stale.task());
  REQUIRE(BlockingCall(federation.transport(), kRequeueTask, requeue).ok());
  v1::SyncRequest held = APoll("hand", "poll-2", 0);
  AddHeld(stale, 1, held);
  AddHeld(granted.leases(2), 1, held);
  const v1::SyncResponse updates = SyncOnce(federation.transport(), held);
  CHECK(updates.held(0).verdict() == v1::LeaseUpdate::LOST);
  CHECK(updates.held(1).verdict() == v1::LeaseUpdate::HELD);

  v1::SyncRequest first = APoll("hand", "poll-3", 0);
  AddResult(replayed, first);
  CHECK(VerdictsOf(SyncOnce(federation.transport(), first)) == std::vector<std::string>{"ACCEPTED"});
  const std::string etag = RoundOf(federation.transport(), round).etag();
  v1::SyncRequest bad = APoll("hand", "poll-4", 0);
  for (const v1::Lease* lease :
       std::initializer_list<const v1::Lease*>{&stale, &foreign, &invented, &replayed, &unknown}) {
    AddResult(*lease, bad);
  }
  AddHeld(granted.leases(2), 2, bad);
  CHECK(VerdictsOf(SyncOnce(federation.transport(), bad)) ==
        std::vector<std::string>{"LEASE_LOST", "LEASE_LOST", "LEASE_LOST", "DUPLICATE", "UNKNOWN_TASK"});
  const v1::Round after = RoundOf(federation.transport(), round);
  CHECK(after.etag() == etag);
  CHECK(after.num_contributions() == 1);

  v1::SyncRequest good = APoll("hand", "poll-5", 0);
  AddResult(granted.leases(2), good);
  SyncOnce(federation.transport(), good);
  federation.StartWorker("w1");
  Await(federation, round);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(3, 1));
  // After the end, too.
  CHECK(VerdictsOf(SyncOnce(federation.transport(), first)) == std::vector<std::string>{"DUPLICATE"});
}

TEST_CASE("A worker of another protocol version is refused, with the window that is served") {
  Federation federation;
  v1::SyncRequest poll = APoll("stranger", "poll-1", 1);
  poll.set_protocol_version(kProtocolVersionMin - 1);
  const auto refused = BlockingCall(federation.transport(), kSync, poll);
  CHECK(refused.status().code() == absl::StatusCode::kFailedPrecondition);
  const std::string message(refused.status().message());
  CHECK_THAT(message, Contains(fmt::format("version {}", kProtocolVersionMin - 1)) &&
                          Contains(fmt::format("{} to {}", kProtocolVersionMin, kProtocolVersionMax)));
  CHECK(BlockingCall(federation.transport(), kListWorkers, {})->workers_size() == 0);
  // One that speaks later ones, too, is answered in the server's.
  poll.set_protocol_version(99);
  CHECK(BlockingCall(federation.transport(), kSync, poll)->protocol_version() == kProtocolVersionMax);
}

}  // namespace
}  // namespace sheaf
