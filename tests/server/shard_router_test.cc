// Goal: on a server of a database that is divided into shards each call comes to the store that it is about, and a
// broadcast is there before the round that names it.
#include "server/calls/shard_router.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/retry_hint.h"
#include "tests/server/noted_calls.h"
#include "tests/server/waiting_server.h"

namespace sheaf {
namespace {

using Strings = std::vector<std::string>;

const std::string kDigest(64, 'd');

// Places populations where it is told to, and notes what it is asked.
class NotedDirectory final : public ShardDirectory {
 public:
  explicit NotedDirectory(Notes& notes) : notes_(notes) {}

  absl::StatusOr<Shard> Place(const std::string& population) override {
    notes_.Add("place " + population);
    if (!status.ok()) return status;
    return shards.contains(population) ? shards.at(population) : kHomeShard;
  }
  absl::StatusOr<std::vector<Shard>> FindBlob(const std::string& digest) override {
    notes_.Add("find");
    if (!status.ok()) return status;
    return blobs.contains(digest) ? blobs.at(digest) : std::vector<Shard>();
  }
  absl::Status CopyBlob(const std::string& digest, Shard from, Shard to) override {
    notes_.Add(fmt::format("copy {} to {}", from, to));
    if (!copied.ok()) return copied;
    blobs[digest].push_back(to);
    return absl::OkStatus();
  }

  std::map<std::string, Shard> shards;
  std::map<std::string, std::vector<Shard>> blobs;
  absl::Status status;
  absl::Status copied;

 private:
  Notes& notes_;
};

// A server with three shards: 0, 2 and 3.
class Sharded {
 public:
  Sharded() {
    router.Add(0, home);
    router.SetDirectory(directory, pool, table.parts().core);
    router.Add(2, second);
    router.Add(3, third);
  }

  // What comes of a call, in its order.
  template <typename M>
  Strings Call(const M& method, const typename M::Request& request, const ForwardedCaller& by = {}) {
    notes.Take();
    calls.push_back(
        std::make_unique<ACall>(CallId(static_cast<int64_t>(calls.size()) + 1), table.Row(method), request));
    calls.back()->GoTo(router, by);
    return notes.Take();
  }
  // Of the last call.
  ACall& call() { return *calls.back(); }
  absl::Status status() { return call().status(); }

  Notes notes;
  TableOfMethods table;
  NotedCalls home{notes, "home"};
  NotedCalls second{notes, "shard 2"};
  NotedCalls third{notes, "shard 3"};
  NotedDirectory directory{notes};
  HeldPool pool;
  ShardRouter router;
  std::vector<std::unique_ptr<ACall>> calls;
};

v1::CreateRoundRequest NewRound(const std::string& population, const std::string& broadcast = "") {
  v1::CreateRoundRequest request;
  request.mutable_spec()->set_population(population);
  request.mutable_spec()->set_broadcast_digest(broadcast);
  return request;
}

v1::SyncRequest APoll(const std::string& population) {
  v1::SyncRequest request;
  request.set_population(population);
  return request;
}

v1::GetRoundRequest LookAt(const std::string& round) {
  v1::GetRoundRequest request;
  request.set_round(round);
  return request;
}

v1::OpenRoundRequest Opening(const std::string& round, const std::string& broadcast) {
  v1::OpenRoundRequest request;
  request.set_round(round);
  request.set_broadcast_digest(broadcast);
  return request;
}

v1::ReadBlobRequest Reading(const std::string& digest) {
  v1::ReadBlobRequest request;
  request.set_digest(digest);
  return request;
}

// --- What a request is about ---------------------------------------------------------------------

std::string Text(const Subject& subject) {
  const std::string first = subject.may_be_first ? ", perhaps the first of it" : "";
  switch (subject.kind) {
    case Subject::kServer:
      return "the server" + first;
    case Subject::kPopulation:
      return fmt::format("population {}{}", subject.name, first);
    case Subject::kNamed:
      return fmt::format("{}{}", subject.name, first);
    case Subject::kBroadcast:
      return fmt::format("broadcast {}{}", subject.name, first);
  }
  return "nothing";
}

TEST_CASE("The row of each method says what a request is about") {
  TableOfMethods table;
  std::set<std::string> seen;
  const auto about = [&](const auto& method, auto fill) {
    typename std::decay_t<decltype(method)>::Request request;
    fill(request);
    seen.insert(method.name);
    return Text(table.Row(method).about(request));
  };
  const auto nothing = [](auto&) {};
  const auto phones = [](auto& request) { request.set_population("phones"); };
  const auto round = [](auto& request) { request.set_round("r3-abcdefgh"); };
  const auto task = [](auto& request) { request.set_task("r3-abcdefgh/7"); };
  const auto upload = [](auto& request) { request.set_upload_id("b3-digest-owner"); };
  const auto digest = [](auto& request) { request.set_digest(kDigest); };

  CHECK(about(kSync, phones) == "population phones");
  CHECK(about(kSync, nothing) == "population default");

  const auto new_round = [](v1::CreateRoundRequest& request) { request.mutable_spec()->set_population("phones"); };
  CHECK(about(kCreateRound, new_round) == "population phones, perhaps the first of it");
  CHECK(about(kCreateRound, nothing) == "population default, perhaps the first of it");
  CHECK(about(kOpenRound, round) == "r3-abcdefgh");
  CHECK(about(kGetRound, round) == "r3-abcdefgh");
  CHECK(about(kCancelRound, round) == "r3-abcdefgh");
  CHECK(about(kReadAggregate, round) == "r3-abcdefgh");
  CHECK(about(kListRounds, phones) == "population phones");
  CHECK(about(kListRounds, nothing) == "population default");

  CHECK(about(kStartUpload, phones) == "population phones, perhaps the first of it");
  // Of clients before 0.2.
  CHECK(about(kStartUpload, nothing) == "the server");
  CHECK(about(kStartUpload, [](v1::StartUploadRequest& request) {
          request.set_population("phones");
          request.mutable_contribution()->set_task("r3-abcdefgh/7");
        }) == "r3-abcdefgh/7");
  CHECK(about(kWriteChunk, upload) == "b3-digest-owner");
  CHECK(about(kQueryUpload, upload) == "b3-digest-owner");
  CHECK(about(kFinishUpload, upload) == "b3-digest-owner");
  CHECK(about(kReadBlob, digest) == "broadcast " + kDigest);
  CHECK(about(kSelectRows, digest) == "broadcast " + kDigest);

  CHECK(about(kListTasks, phones) == "population phones");
  CHECK(about(kGetTask, task) == "r3-abcdefgh/7");
  CHECK(about(kRequeueTask, task) == "r3-abcdefgh/7");
  CHECK(about(kDescribeQueue, phones) == "population phones");
  CHECK(about(kListWorkers, phones) == "population phones");
  CHECK(about(kDrainWorker, phones) == "population phones");
  CHECK(about(kExplainRound, round) == "r3-abcdefgh");
  CHECK(about(kListServers, nothing) == "the server");
  CHECK(about(kDrainServer, nothing) == "the server");
  CHECK(about(kGetServerInfo, nothing) == "the server");
  CHECK(about(kCreateToken, [](v1::CreateTokenRequest& request) { request.add_populations("phones"); }) ==
        "the server");
  CHECK(about(kListTokens, nothing) == "the server");
  CHECK(about(kRevokeToken, nothing) == "the server");

  for (const MethodRow& row : table.table().rows()) {
    INFO(row.name);
    CHECK(seen.contains(row.name));
  }
}

// --- Where it goes -------------------------------------------------------------------------------

TEST_CASE("Without a directory there is but one store, and all is about it") {
  Notes notes;
  TableOfMethods table;
  NotedCalls home(notes, "home");
  ShardRouter router;
  router.Add(kHomeShard, home);
  router.SetPlacement({{"phones", 3}});
  ACall poll(CallId(1), table.Row(kSync), APoll("phones"));
  ACall look(CallId(2), table.Row(kGetRound), LookAt("r3-abcdefgh"));
  ACall create(CallId(3), table.Row(kCreateRound), NewRound("phones", kDigest));
  ACall read(CallId(4), table.Row(kReadBlob), Reading(kDigest));
  for (ACall* call : {&poll, &look, &create, &read}) {
    call->GoTo(router);
    CHECK(call->status().ok());
  }
  CHECK(notes.Take() == Strings{"home: Sync", "home: GetRound", "home: CreateRound", "home: ReadBlob"});
}

TEST_CASE("A call goes to the shard of its population, or of the round, task or upload that it names") {
  Sharded server;
  server.router.SetPlacement({{"phones", 2}, {"tablets", 3}, {"default", 3}});
  server.router.SetPlacement({{"watches", 0}});
  CHECK(server.Call(kSync, APoll("phones")) == Strings{"shard 2: Sync"});
  CHECK(server.Call(kSync, APoll("tablets")) == Strings{"shard 3: Sync"});
  CHECK(server.Call(kSync, APoll("")) == Strings{"shard 3: Sync"});
  CHECK(server.Call(kSync, APoll("watches")) == Strings{"home: Sync"});
  CHECK(server.Call(kGetRound, LookAt("r2-abcdefgh")) == Strings{"shard 2: GetRound"});
  CHECK(server.Call(kGetRound, LookAt("r-abcdefgh")) == Strings{"home: GetRound"});
  CHECK(server.Call(kGetRound, LookAt("nonsense")) == Strings{"home: GetRound"});
  v1::GetTaskRequest task;
  task.set_task("r3-abcdefgh/7");
  CHECK(server.Call(kGetTask, task) == Strings{"shard 3: GetTask"});
  v1::WriteChunkRequest chunk;
  chunk.set_upload_id(fmt::format("b2-{}-{}", kDigest, std::string(32, 'e')));
  CHECK(server.Call(kWriteChunk, chunk) == Strings{"shard 2: WriteChunk"});
  v1::StartUploadRequest upload;
  upload.set_population("phones");
  upload.mutable_contribution()->set_task("r3-abcdefgh/7");
  CHECK(server.Call(kStartUpload, upload) == Strings{"shard 3: StartUpload"});
  upload.clear_contribution();
  CHECK(server.Call(kStartUpload, upload) == Strings{"shard 2: StartUpload"});
  upload.clear_population();
  CHECK(server.Call(kStartUpload, upload) == Strings{"home: StartUpload"});
  CHECK(server.Call(kListTokens, {}) == Strings{"home: ListTokens"});
  CHECK(server.Call(kCreateRound, NewRound("phones")) == Strings{"shard 2: CreateRound"});
  CHECK(server.status().ok());
  CHECK(server.second.last().request == NewRound("phones").ShortDebugString());
}

TEST_CASE("A population that nobody has seen is placed by its first round or broadcast, and by nothing else") {
  Sharded server;
  server.directory.shards = {{"phones", 2}, {"tablets", 3}};
  v1::DescribeQueueRequest queue;
  queue.set_population("phones");
  CHECK(server.Call(kSync, APoll("phones")) == Strings{"home: Sync"});
  CHECK(server.Call(kDescribeQueue, queue) == Strings{"home: DescribeQueue"});
  CHECK(server.Call(kCreateRound, NewRound("phones")) == Strings{"place phones", "shard 2: CreateRound"});
  CHECK(server.status().ok());
  // It is known from then on.
  CHECK(server.Call(kCreateRound, NewRound("phones")) == Strings{"shard 2: CreateRound"});
  CHECK(server.Call(kSync, APoll("phones")) == Strings{"shard 2: Sync"});
  CHECK(server.Call(kDescribeQueue, queue) == Strings{"shard 2: DescribeQueue"});
  v1::StartUploadRequest upload;
  upload.set_population("tablets");
  CHECK(server.Call(kStartUpload, upload) == Strings{"place tablets", "shard 3: StartUpload"});
  CHECK(server.Call(kCreateRound, NewRound("tablets")) == Strings{"shard 3: CreateRound"});
  // One without a name is "default".
  CHECK(server.Call(kCreateRound, NewRound("")) == Strings{"place default", "home: CreateRound"});
  CHECK(server.Call(kCreateRound, NewRound("default")) == Strings{"home: CreateRound"});
}

TEST_CASE("While the directory cannot say where a population is, no round of it is created") {
  Sharded server;
  server.directory.shards = {{"phones", 2}};
  server.directory.status = absl::UnavailableError("the database does not serve");
  CHECK(server.Call(kCreateRound, NewRound("phones")) == Strings{"place phones"});
  CHECK(server.status() == server.directory.status);
  server.directory.status = absl::OkStatus();
  CHECK(server.Call(kCreateRound, NewRound("phones")) == Strings{"place phones", "shard 2: CreateRound"});
}

TEST_CASE("A call about a shard of which the server has not heard yet is told to come again") {
  Sharded server;
  server.directory.shards = {{"watches", 7}};
  CHECK(server.Call(kGetRound, LookAt("r7-abcdefgh")).empty());
  CHECK(absl::IsUnavailable(server.status()));
  CHECK(RetryAfter(server.status()).has_value());
  CHECK(server.Call(kCreateRound, NewRound("watches")) == Strings{"place watches"});
  CHECK(absl::IsUnavailable(server.status()));
  CHECK(RetryAfter(server.status()).has_value());
  NotedCalls seventh(server.notes, "shard 7");
  server.router.Add(7, seventh);
  CHECK(server.Call(kGetRound, LookAt("r7-abcdefgh")) == Strings{"shard 7: GetRound"});
  CHECK(server.Call(kCreateRound, NewRound("watches")) == Strings{"shard 7: CreateRound"});
}

TEST_CASE("What another server has sent to a shard goes there, whatever it is about, and nowhere else") {
  Sharded server;
  server.router.SetPlacement({{"phones", 2}});
  server.directory.blobs[kDigest] = {2};
  const ForwardedCaller to_third = {.forwarded_to = 3};
  const ForwardedCaller to_home = {.forwarded_to = kHomeShard};
  CHECK(server.Call(kSync, APoll("phones"), to_third) == Strings{"shard 3: Sync"});
  CHECK(server.third.last().forwarded_to == 3);
  CHECK(server.Call(kSync, APoll("phones"), to_home) == Strings{"home: Sync"});
  CHECK(server.Call(kCreateRound, NewRound("nobody's", kDigest), to_third) == Strings{"shard 3: CreateRound"});
  CHECK(server.Call(kReadBlob, Reading(kDigest), to_third) == Strings{"shard 3: ReadBlob"});
  // What it answers is the answer.
  server.third.AnswerWith(absl::PermissionDeniedError("no round has it"));
  CHECK(server.Call(kReadBlob, Reading(kDigest), to_third) == Strings{"shard 3: ReadBlob"});
  CHECK(absl::IsPermissionDenied(server.status()));
  CHECK(server.Call(kSync, APoll("phones"), {.forwarded_to = 9}).empty());
  CHECK(absl::IsUnavailable(server.status()));
  CHECK(RetryAfter(server.status()).has_value());
}

// --- Broadcasts ----------------------------------------------------------------------------------

TEST_CASE("A broadcast that is in another shard is copied before the round that names it is created or opened") {
  Sharded server;
  server.router.SetPlacement({{"phones", 2}, {"tablets", 3}});
  server.directory.shards = {{"watches", 3}};
  server.directory.blobs[kDigest] = {0};
  CHECK(server.Call(kCreateRound, NewRound("phones", kDigest)) ==
        Strings{"find", "copy 0 to 2", "shard 2: CreateRound"});
  CHECK(server.status().ok());
  // It is there, as the next look finds.
  CHECK(server.Call(kCreateRound, NewRound("phones", kDigest)) == Strings{"find", "shard 2: CreateRound"});
  CHECK(server.Call(kOpenRound, Opening("r3-abcdefgh", kDigest)) ==
        Strings{"find", "copy 0 to 3", "shard 3: OpenRound"});
  CHECK(server.Call(kCreateRound, NewRound("watches", kDigest)) ==
        Strings{"place watches", "find", "shard 3: CreateRound"});
  // A round without one asks nobody.
  CHECK(server.Call(kCreateRound, NewRound("phones")) == Strings{"shard 2: CreateRound"});
  CHECK(server.Call(kOpenRound, Opening("r3-abcdefgh", "")) == Strings{"shard 3: OpenRound"});
}

TEST_CASE("A broadcast that is nowhere is told so by the shard of the round, and one that cannot be copied stops it") {
  Sharded server;
  server.router.SetPlacement({{"phones", 2}});
  server.second.AnswerWith(absl::NotFoundError("the broadcast was not uploaded"));
  CHECK(server.Call(kCreateRound, NewRound("phones", kDigest)) == Strings{"find", "shard 2: CreateRound"});
  CHECK(absl::IsNotFound(server.status()));

  server.directory.blobs[kDigest] = {0};
  server.directory.copied = absl::NotFoundError("it has just been deleted");
  CHECK(server.Call(kCreateRound, NewRound("phones", kDigest)) ==
        Strings{"find", "copy 0 to 2", "shard 2: CreateRound"});
  CHECK(absl::IsNotFound(server.status()));

  server.directory.copied = absl::UnavailableError("the database does not serve");
  CHECK(server.Call(kCreateRound, NewRound("phones", kDigest)) == Strings{"find", "copy 0 to 2"});
  CHECK(server.status() == server.directory.copied);
  server.directory.status = absl::UnavailableError("the database does not even look");
  CHECK(server.Call(kCreateRound, NewRound("phones", kDigest)) == Strings{"find"});
  CHECK(server.status() == server.directory.status);
}

TEST_CASE("A broadcast that its shard has deleted, and another one has, is copied there again") {
  Sharded server;
  server.router.SetPlacement({{"phones", 2}});
  // A worker has read it.
  server.directory.blobs[kDigest] = {0, 2};
  server.home.AnswerWith(absl::PermissionDeniedError("no round has it"));
  CHECK(server.Call(kReadBlob, Reading(kDigest)) == Strings{"find", "home: ReadBlob", "shard 2: ReadBlob"});
  // Its round has ended since; and somebody has uploaded it again.
  server.directory.blobs[kDigest] = {0};
  server.Call(kCreateRound, NewRound("phones", kDigest));
  CHECK(server.directory.blobs[kDigest] == std::vector<Shard>{0, 2});
}

TEST_CASE("Of the shards that have a broadcast the next one is asked where one refuses its reader") {
  Sharded server;
  server.directory.blobs[kDigest] = {0, 2, 3};
  const absl::Status refused = absl::PermissionDeniedError("no round that the caller reaches has it");
  const absl::Status gone = absl::NotFoundError("there is no such blob");
  SECTION("and no other where one lets them read") {
    CHECK(server.Call(kReadBlob, Reading(kDigest)) == Strings{"find", "home: ReadBlob"});
    CHECK(server.status().ok());
    // Where it is, is known for a while.
    CHECK(server.Call(kReadBlob, Reading(kDigest)) == Strings{"home: ReadBlob"});
  }
  SECTION("with nothing left of the answer before") {
    server.home.AnswerWith(refused);
    server.second.AnswerWith(gone);
    CHECK(server.Call(kReadBlob, Reading(kDigest)) ==
          Strings{"find", "home: ReadBlob", "shard 2: ReadBlob", "shard 3: ReadBlob"});
    CHECK(server.third.last().is_answer_empty);
    CHECK(server.status().ok());
    CHECK(dynamic_cast<const v1::ReadBlobResponse&>(server.call().response()).data() == "by shard 3");
    v1::SelectRowsRequest rows;
    rows.set_digest(kDigest);
    CHECK(server.Call(kSelectRows, rows) == Strings{"home: SelectRows", "shard 2: SelectRows", "shard 3: SelectRows"});
  }
  SECTION("unless it fails otherwise") {
    server.home.AnswerWith(refused);
    server.second.AnswerWith(absl::UnavailableError("the server has just started"));
    CHECK(server.Call(kReadBlob, Reading(kDigest)) == Strings{"find", "home: ReadBlob", "shard 2: ReadBlob"});
    CHECK(absl::IsUnavailable(server.status()));
  }
  SECTION("and all of them where all refuse") {
    for (NotedCalls* store : {&server.home, &server.second, &server.third}) store->AnswerWith(refused);
    CHECK(server.Call(kReadBlob, Reading(kDigest)).size() >= 4);
    CHECK(server.status() == refused);
    // Whether others have it now is asked again.
    server.directory.blobs[kDigest] = {3};
    server.third.AnswerWith(absl::OkStatus());
    CHECK(server.Call(kReadBlob, Reading(kDigest)) == Strings{"find", "shard 3: ReadBlob"});
    CHECK(server.status().ok());
  }
}

TEST_CASE("A broadcast that another server has copied elsewhere since it was looked for is found there") {
  Sharded server;
  server.directory.blobs[kDigest] = {0};
  CHECK(server.Call(kReadBlob, Reading(kDigest)) == Strings{"find", "home: ReadBlob"});
  // Of a round in a third shard, whose workers come here, too.
  server.directory.blobs[kDigest] = {0, 3};
  server.home.AnswerWith(absl::PermissionDeniedError("no round that the caller reaches has it"));
  const Strings calls = server.Call(kReadBlob, Reading(kDigest));
  INFO(server.status().ToString());
  CHECK(server.status().ok());
  CHECK(calls.back() == "shard 3: ReadBlob");
}

TEST_CASE("A broadcast that is nowhere is the first shard's to refuse") {
  Sharded server;
  server.home.AnswerWith(absl::PermissionDeniedError("no round has it"));
  CHECK(server.Call(kReadBlob, Reading(kDigest)).back() == "home: ReadBlob");
  CHECK(absl::IsPermissionDenied(server.status()));
  server.directory.status = absl::UnavailableError("the database does not serve");
  CHECK(server.Call(kReadBlob, Reading(kDigest)) == Strings{"find"});
  CHECK(server.status() == server.directory.status);
}

TEST_CASE("While there is but the first shard nobody asks where a broadcast is") {
  Notes notes;
  TableOfMethods table;
  NotedCalls home(notes, "home");
  NotedDirectory directory(notes);
  HeldPool pool;
  ShardRouter router;
  router.Add(kHomeShard, home);
  router.SetDirectory(directory, pool, table.parts().core);
  router.SetPlacement({{"phones", 0}});
  ACall read(CallId(1), table.Row(kReadBlob), Reading(kDigest));
  read.GoTo(router);
  ACall create(CallId(2), table.Row(kCreateRound), NewRound("phones", kDigest));
  create.GoTo(router);
  CHECK(notes.Take() == Strings{"home: ReadBlob", "home: CreateRound"});
}

// --- Callers who go ------------------------------------------------------------------------------

TEST_CASE("Who goes away takes their call along, in whichever shard it is") {
  Sharded server;
  server.router.SetPlacement({{"phones", 2}});
  server.home.AnswerWith(std::nullopt);
  server.second.AnswerWith(std::nullopt);
  server.third.AnswerWith(std::nullopt);
  const auto leave = [&] {
    server.notes.Take();
    server.call().Leave(server.router);
    return server.notes.Take();
  };
  server.Call(kSync, APoll("phones"));
  CHECK(leave() == Strings{"shard 2: Sync is abandoned"});
  CHECK(absl::IsCancelled(server.status()));
  server.Call(kSync, APoll("unknown"));
  CHECK(leave() == Strings{"home: Sync is abandoned"});
  server.Call(kGetRound, LookAt("r3-abcdefgh"));
  CHECK(leave() == Strings{"shard 3: GetRound is abandoned"});
  server.Call(kSync, APoll("phones"), {.forwarded_to = 3});
  CHECK(leave() == Strings{"shard 3: Sync is abandoned"});
  // A read, at the second of the shards that have what it reads.
  server.directory.blobs[kDigest] = {0, 3};
  server.Call(kReadBlob, Reading(kDigest));
  server.home.Answer(absl::PermissionDeniedError("no round has it"));
  CHECK(server.third.num_waiting() == 1);
  CHECK(leave() == Strings{"shard 3: ReadBlob is abandoned"});
  CHECK(absl::IsCancelled(server.status()));
  // One that was answered.
  server.Call(kSync, APoll("phones"));
  server.second.Answer(absl::OkStatus());
  leave();
  CHECK(server.status().ok());
}

TEST_CASE("Who goes away while the directory is asked has no call that waits in a shard") {
  Sharded server;
  server.directory.shards = {{"phones", 2}};
  server.second.AnswerWith(std::nullopt);
  server.pool.Hold();
  CHECK(server.Call(kCreateRound, NewRound("phones")).empty());
  CHECK(server.pool.num_held() == 1);
  server.call().Leave(server.router);
  server.pool.Go();
  // It may have been ended before it came there, or there.
  CHECK(server.second.num_waiting() == 0);
  CHECK(absl::IsCancelled(server.status()));
  if (server.second.num_waiting() > 0) server.second.Answer(absl::OkStatus());
}

TEST_CASE("A call that waits for the directory keeps what its caller has shown") {
  Sharded server;
  server.directory.shards = {{"phones", 2}};
  server.pool.Hold();
  {
    std::string secret = "Bearer swordfish, and more than fits into a short text";
    server.Call(kCreateRound, NewRound("phones"), {.shown = {.authorization = secret}});
    std::fill(secret.begin(), secret.end(), 'x');
  }
  server.pool.Go();
  CHECK(server.second.last().authorization == "Bearer swordfish, and more than fits into a short text");
  CHECK(server.second.last().id == server.call().id());
}

TEST_CASE("Calls of many threads, and news of shards and placements, do not get in each other's way") {
  Sharded server;
  constexpr int kThreads = 4;
  constexpr int kCalls = 300;
  server.directory.blobs[kDigest] = {0, 2, 3};
  server.directory.shards = {{"phones", 2}};
  server.home.AnswerWith(absl::PermissionDeniedError("no round has it"));
  std::vector<std::thread> threads;
  std::vector<int> num_right(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kCalls; ++i) {
        const CallId id(1 + thread * kCalls + i);
        ACall poll(id, server.table.Row(kSync), APoll(fmt::format("population-{}", i)));
        ACall read(CallId(id.value() + kThreads * kCalls), server.table.Row(kReadBlob), Reading(kDigest));
        poll.GoTo(server.router);
        poll.Leave(server.router);
        read.GoTo(server.router);
        read.Leave(server.router);
        num_right[static_cast<size_t>(thread)] += poll.is_answered() && read.status().ok() ? 1 : 0;
      }
    });
  }
  std::vector<std::unique_ptr<NotedCalls>> more;
  for (int i = 0; i < kCalls; ++i) {
    server.router.SetPlacement({{fmt::format("population-{}", i), i % 2 == 0 ? 2 : 3}});
    if (i % 10 != 0) continue;
    more.push_back(std::make_unique<NotedCalls>(server.notes, "more"));
    server.router.Add(10 + i / 10, *more.back());
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(num_right == std::vector<int>(kThreads, kCalls));
}

// --- Strangers -----------------------------------------------------------------------------------

TEST_CASE("Who may not create rounds places no population, and has no broadcast copied") {
  Notes notes;
  NotedDirectory directory(notes);
  directory.blobs[kDigest] = {1};
  const std::string worker = "swordfish-of-a-worker";
  const std::string submitter = "swordfish-of-a-submitter";
  TokenRecord of_islands = RecordOf(submitter, "trainer", v1::SUBMITTER);
  of_islands.populations = {"islands"};
  WaitingServer server({RecordOf(worker, "edge", v1::WORKER), of_islands}, nullptr, &directory);
  server.server().AddStore(1, nullptr);
  const SecretFile worker_file(worker, "worker");
  const SecretFile submitter_file(submitter, "submitter");
  const std::unique_ptr<Transport> by_worker = server.Connect(worker_file.security());
  const std::unique_ptr<Transport> by_submitter = server.Connect(submitter_file.security());
  v1::CreateRoundRequest create = ARound("request");
  create.mutable_spec()->set_population("made up");
  create.mutable_spec()->set_broadcast_digest(kDigest);
  CHECK_FALSE(BlockingCall(*by_worker, kCreateRound, create).ok());
  v1::StartUploadRequest upload;
  upload.set_request_id("upload");
  upload.set_population("made up");
  upload.set_digest(kDigest);
  upload.set_size_bytes(1);
  CHECK_FALSE(BlockingCall(*by_worker, kStartUpload, upload).ok());
  CHECK_FALSE(BlockingCall(*by_submitter, kCreateRound, create).ok());
  CHECK(notes.Take() == Strings{});
  // Their own they may.
  create.mutable_spec()->set_population("islands");
  create.mutable_spec()->clear_broadcast_digest();
  INFO(BlockingCall(*by_submitter, kCreateRound, create).status().ToString());
  CHECK(notes.Take() == Strings{"place islands"});
  CHECK(server.server().Stop().ok());
}

}  // namespace
}  // namespace sheaf
