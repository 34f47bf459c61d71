// Goal: a server that has several stores of one database serves each by itself: it takes them, gives them away, and
// whoever calls meanwhile is answered by whoever has them.
#include "server/shared_store.h"

#include <fmt/format.h>
#include <poll.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/retry_hint.h"
#include "sdk/cpp/client/blob_client.h"
#include "tests/server/waiting_server.h"
#include "tests/wait_until.h"

namespace sheaf {
namespace {

using Catch::Matchers::StartsWith;

// What a server serves.
struct AStore {
  MemoryTaskStore tasks;
  std::shared_ptr<MemoryPayloadStore> payloads = std::make_shared<MemoryPayloadStore>();
  SystemRandom random;
};

void RequireOk(const absl::Status& status) {
  INFO(status.ToString());
  REQUIRE(status.ok());
}

template <typename T>
bool IsReady(const std::future<T>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

std::string RoundIn(Transport& transport, const std::string& population, const std::string& broadcast = "") {
  v1::CreateRoundRequest create = ARound(fmt::format("{} {}", population, broadcast.substr(0, 8)));
  create.mutable_spec()->set_population(population);
  create.mutable_spec()->set_broadcast_digest(broadcast);
  return Ok(BlockingCall(transport, kCreateRound, create)).round().id();
}

absl::StatusOr<v1::GetRoundResponse> LookAt(Transport& transport, const std::string& round) {
  v1::GetRoundRequest get;
  get.set_round(round);
  return BlockingCall(transport, kGetRound, get);
}

int NumParked(Transport& transport, const std::string& population) {
  v1::DescribeQueueRequest describe;
  describe.set_population(population);
  return static_cast<int>(Ok(BlockingCall(transport, kDescribeQueue, describe)).num_parked_polls());
}

v1::SyncRequest APollOf(const std::string& population, const std::string& worker) {
  v1::SyncRequest poll = AParkedPoll(worker);
  poll.set_population(population);
  return poll;
}

v1::DescribeQueueRequest AboutPhones() {
  v1::DescribeQueueRequest describe;
  describe.set_population("phones");
  return describe;
}

TEST_CASE("Workers who wait for a population that was placed elsewhere are answered, and nobody else is") {
  AStore store;
  WaitingServer server;
  const std::unique_ptr<Transport> transport = server.Connect();
  server.store().Hold();
  RequireOk(server.store().Serve(store.tasks, *store.payloads, store.random));
  std::vector<std::future<absl::StatusOr<v1::SyncResponse>>> moved;
  for (int i = 0; i < 3; ++i) {
    moved.push_back(CallLater(*transport, kSync, APollOf("phones", fmt::format("worker-{}", i))));
  }
  auto stays = CallLater(*transport, kSync, APollOf("tablets", "worker-0"));
  auto stays_too = CallLater(*transport, kSync, APollOf("phone", "worker-0"));
  WaitUntil("all wait", absl::Seconds(10), [&] {
    return NumParked(*transport, "phones") == 3 && NumParked(*transport, "tablets") == 1 &&
           NumParked(*transport, "phone") == 1;
  });
  server.store().SendAway("phones");
  server.store().SendAway("nobody's");
  for (auto& each : moved) {
    const v1::SyncResponse answer = Ok(each.get());
    CHECK(answer.leases_size() == 0);
    // And come back at once.
    CHECK(answer.next_min().seconds() == 0);
  }
  CHECK(NumParked(*transport, "phones") == 0);
  CHECK_FALSE(IsReady(stays));
  CHECK_FALSE(IsReady(stays_too));
  RequireOk(server.server().Stop());
  CHECK(stays.get().ok());
  CHECK(stays_too.get().ok());
}

// Of two stores in memory: "phones" is in the second.
class TwoStores final : public ShardDirectory {
 public:
  absl::StatusOr<Shard> Place(const std::string& population) override { return population == "phones" ? 1 : 0; }
  absl::StatusOr<std::vector<Shard>> FindBlob(const std::string& digest) override {
    std::vector<Shard> found;
    for (Shard shard = 0; shard < 2; ++shard) {
      if (payloads(shard).HasBlob(digest)) found.push_back(shard);
    }
    return found;
  }
  absl::Status CopyBlob(const std::string& digest, Shard from, Shard to) override {
    const auto blob = payloads(from).OpenBlob(digest);
    if (!blob.ok()) return blob.status();
    const ByteRange all = {.offset = 0, .length = (*blob)->size_bytes()};
    std::string bytes;
    if (absl::Status status = (*blob)->Append({&all, 1}, bytes); !status.ok()) return status;
    return payloads(to).PutBlob(bytes).status();
  }

  PayloadStore& payloads(Shard shard) { return *stores[static_cast<size_t>(shard)].payloads; }

  AStore stores[2];
};

// A server that has both.
class ServerOfTwo {
 public:
  explicit ServerOfTwo(const std::vector<TokenRecord>& tokens = {}) : server_(tokens, nullptr, &stores_) {
    server_.server().AddStore(1, nullptr);
    server_.server().router().SetPlacement({{"phones", 1}});
    for (Shard shard = 0; shard < 2; ++shard) Take(shard);
  }
  ~ServerOfTwo() { CHECK(server_.server().Stop().ok()); }

  void Take(Shard shard) {
    AStore& store = stores_.stores[shard];
    this->store(shard).Hold();
    RequireOk(this->store(shard).Serve(store.tasks, *store.payloads, store.random));
  }
  SharedStore& store(Shard shard) { return server_.server().store(shard); }
  WaitingServer& server() { return server_; }
  TwoStores& stores() { return stores_; }

 private:
  TwoStores stores_;
  WaitingServer server_;
};

TEST_CASE("A shard is given away: who waits in it is answered, and who calls then is answered by the next owner") {
  Owner owner;
  ServerOfTwo server;
  const std::unique_ptr<Transport> transport = server.server().Connect();
  CHECK(server.store(1).is_here());
  const std::string round = RoundIn(*transport, "phones");
  CHECK(Ok(BlockingCall(*transport, kSync, APollOf("phones", "worker"))).leases_size() == 1);
  auto parked = CallLater(*transport, kSync, APollOf("phones", "patient"));
  WaitUntil("it waits", absl::Seconds(10), [&] { return NumParked(*transport, "phones") == 1; });

  RequireOk(server.store(1).HandOver(absl::Seconds(10)));
  CHECK(Ok(parked.get()).leases_size() == 0);
  CHECK_FALSE(server.store(1).is_here());
  CHECK_FALSE(server.store(1).forwarder().is_here());
  auto held = CallLater(*transport, kDescribeQueue, AboutPhones());
  ::poll(nullptr, 0, 50);
  CHECK_FALSE(IsReady(held));
  server.store(1).SetOwner(owner.contact());
  CHECK(held.get().ok());
  // The other one has other rounds.
  CHECK(absl::IsNotFound(LookAt(*transport, round).status()));

  // It comes back, with all that was in it.
  server.store(1).Hold();
  auto early = CallLater(*transport, kDescribeQueue, AboutPhones());
  server.Take(1);
  CHECK(Ok(early.get()).num_live_rounds() == 1);
  CHECK(Ok(LookAt(*transport, round)).round().id() == round);
}

TEST_CASE("A shard is taken and given away many times, under calls, of which none is lost") {
  ServerOfTwo server;
  const std::unique_ptr<Transport> transport = server.server().Connect();
  constexpr int kTurns = 10;
  std::vector<std::future<absl::StatusOr<v1::CreateRoundResponse>>> created;
  std::vector<std::future<absl::StatusOr<v1::SyncResponse>>> polls;
  for (int turn = 0; turn < kTurns; ++turn) {
    RequireOk(server.store(1).HandOver(absl::Seconds(10)));
    for (int i = 0; i < 5; ++i) {
      v1::CreateRoundRequest create = ARound(fmt::format("round {} of turn {}", i, turn));
      create.mutable_spec()->set_population("phones");
      created.push_back(CallLater(*transport, kCreateRound, create));
    }
    v1::SyncRequest poll = APollOf("phones", fmt::format("worker-{}", turn));
    poll.mutable_wait()->set_seconds(1);
    polls.push_back(CallLater(*transport, kSync, poll));
    server.Take(1);
  }
  for (auto& each : created) RequireOk(each.get().status());
  for (auto& each : polls) RequireOk(each.get().status());
  CHECK(Ok(BlockingCall(*transport, kDescribeQueue, AboutPhones())).num_live_rounds() == 5 * kTurns);
}

TEST_CASE("A server that stops sends those away who wait for a shard that nobody has, and they may come again") {
  std::vector<std::future<absl::StatusOr<v1::DescribeQueueResponse>>> held;
  std::unique_ptr<Transport> transport;
  const SystemClock clock;
  absl::Time begin;
  {
    ServerOfTwo server;
    transport = server.server().Connect();
    RequireOk(server.store(1).HandOver(absl::Seconds(10)));
    for (int i = 0; i < 2; ++i) held.push_back(CallLater(*transport, kDescribeQueue, AboutPhones()));
    ::poll(nullptr, 0, 50);
    for (const auto& each : held) CHECK_FALSE(IsReady(each));
    begin = clock.Now();
  }
  // Nobody needs the time that open calls have to end.
  CHECK(clock.Now() - begin < absl::Milliseconds(900));
  for (auto& each : held) {
    const absl::Status status = each.get().status();
    INFO(status.ToString());
    CHECK(absl::IsUnavailable(status));
  }
}

TEST_CASE("What is made in a shard has a name that says so, by which everybody finds it") {
  ServerOfTwo server;
  const std::unique_ptr<Transport> transport = server.server().Connect();
  const std::string round = RoundIn(*transport, "phones");
  const std::string other = RoundIn(*transport, "tablets");
  CHECK_THAT(round, StartsWith("r1-"));
  CHECK_THAT(other, StartsWith("r-"));
  CHECK(Ok(LookAt(*transport, round)).round().spec().population() == "phones");
  CHECK(Ok(LookAt(*transport, other)).round().spec().population() == "tablets");
  // The same request again.
  CHECK(RoundIn(*transport, "phones") == round);
  CHECK(absl::IsNotFound(LookAt(*transport, "r-" + round.substr(3)).status()));

  v1::SyncRequest poll = APollOf("phones", "worker");
  const v1::SyncResponse leased = Ok(BlockingCall(*transport, kSync, poll));
  REQUIRE(leased.leases_size() == 1);
  const std::string task = leased.leases(0).task();
  CHECK(task == round + "/0");
  v1::GetTaskRequest get;
  get.set_task(task);
  CHECK(Ok(BlockingCall(*transport, kGetTask, get)).task().worker() == "worker");

  const std::string bytes(2 << 20, 'x');
  v1::StartUploadRequest upload;
  upload.set_request_id("upload");
  upload.set_size_bytes(static_cast<int64_t>(bytes.size()));
  upload.set_digest(Sha256Hex(bytes));
  upload.mutable_contribution()->set_task(task);
  upload.mutable_contribution()->set_lease_token(leased.leases(0).lease_token());
  const v1::StartUploadResponse of_worker = Ok(BlockingCall(*transport, kStartUpload, upload));
  INFO(of_worker.ShortDebugString());
  CHECK_THAT(of_worker.upload_id(), StartsWith("c1-" + Sha256Hex(bytes)));
  upload.clear_contribution();
  upload.set_population("phones");
  const std::string id = Ok(BlockingCall(*transport, kStartUpload, upload)).upload_id();
  CHECK_THAT(id, StartsWith("b1-" + Sha256Hex(bytes)));
  v1::WriteChunkRequest chunk;
  chunk.set_upload_id(id);
  chunk.set_data(bytes.substr(0, 1000));
  CHECK(Ok(BlockingCall(*transport, kWriteChunk, chunk)).committed_bytes() == 1000);
  v1::QueryUploadRequest query;
  query.set_upload_id(id);
  CHECK(Ok(BlockingCall(*transport, kQueryUpload, query)).committed_bytes() == 1000);
  query.set_upload_id("b-" + id.substr(3));
  CHECK(absl::IsNotFound(BlockingCall(*transport, kQueryUpload, query).status()));
}

TEST_CASE("A broadcast that was uploaded for nobody in particular comes to the shard of the round that names it") {
  ServerOfTwo server;
  const std::unique_ptr<Transport> transport = server.server().Connect();
  SystemRandom random;
  const std::string bytes(3 << 20, 'y');
  const std::string digest = Ok(UploadBlob(*transport, random, bytes));
  CHECK(Ok(server.stores().FindBlob(digest)) == std::vector<Shard>{0});
  const std::string round = RoundIn(*transport, "phones", digest);
  CHECK_THAT(round, StartsWith("r1-"));
  CHECK(Ok(server.stores().FindBlob(digest)) == std::vector<Shard>{0, 1});
  CHECK(Ok(ReadBlob(*transport, digest)) == bytes);
}

TEST_CASE("A shard that is given away takes nothing from the others, and its callers wait for it alone") {
  ServerOfTwo server;
  const std::unique_ptr<Transport> transport = server.server().Connect();
  const std::string round = RoundIn(*transport, "phones");
  const std::string other = RoundIn(*transport, "tablets");
  auto parked = CallLater(*transport, kSync, APollOf("watches", "worker"));
  WaitUntil("it waits", absl::Seconds(10), [&] { return NumParked(*transport, "watches") == 1; });
  RequireOk(server.store(1).HandOver(absl::Seconds(10)));
  v1::GetRoundRequest get;
  get.set_round(round);
  auto held = CallLater(*transport, kGetRound, get);
  CHECK(Ok(LookAt(*transport, other)).round().id() == other);
  CHECK_FALSE(IsReady(held));
  CHECK_FALSE(IsReady(parked));
  server.Take(1);
  CHECK(Ok(held.get()).round().id() == round);
  CHECK_FALSE(IsReady(parked));
}

TEST_CASE(
    "When the first shard is given away its tokens are known here as they were then, and nobody asks it any more") {
  const SecretFile admin_file("octopus", "admin");
  const std::vector<TokenRecord> tokens = {RecordOf("octopus", "admin", v1::OPERATOR)};
  ServerOfTwo server(tokens);
  RequireOk(server.store(0).SetTokens(tokens));
  const std::unique_ptr<Transport> by_admin = server.server().Connect(admin_file.security());
  // Another server with the same tokens has it then.
  const SecretFile viewer_file(CreateToken(*by_admin, "viewer", v1::VIEWER), "viewer");
  const SecretFile gone_file(CreateToken(*by_admin, "gone", v1::VIEWER), "gone");
  const v1::ListTokensResponse made = Ok(BlockingCall(*by_admin, kListTokens, {}));
  for (const v1::Token& token : made.tokens()) {
    if (token.name() != "gone") continue;
    v1::RevokeTokenRequest revoke;
    revoke.set_request_id("gone");
    revoke.set_token(token.id());
    RequireOk(BlockingCall(*by_admin, kRevokeToken, revoke).status());
  }
  const std::unique_ptr<Transport> by_viewer = server.server().Connect(viewer_file.security());
  const std::unique_ptr<Transport> by_gone = server.server().Connect(gone_file.security());
  for (int turn = 0; turn < 3; ++turn) {
    INFO(turn);
    CHECK(BlockingCall(*by_viewer, kDescribeQueue, AboutPhones()).ok());
    CHECK(absl::IsUnauthenticated(BlockingCall(*by_gone, kDescribeQueue, AboutPhones()).status()));
    RequireOk(server.store(0).HandOver(absl::Seconds(10)));
    // What is about another shard needs no first one, but its tokens.
    CHECK(BlockingCall(*by_viewer, kDescribeQueue, AboutPhones()).ok());
    CHECK(absl::IsUnauthenticated(BlockingCall(*by_gone, kDescribeQueue, AboutPhones()).status()));
    auto held = CallLater(*by_admin, kListTokens, v1::ListTokensRequest());
    ::poll(nullptr, 0, 20);
    CHECK_FALSE(IsReady(held));
    // Nothing is sent away from a store that is not here.
    server.store(0).SendAway("phones");
    server.Take(0);
    CHECK(Ok(held.get()).tokens_size() == 3);
  }
}

TEST_CASE("Who waits in a shard by a token that is void is sent away when its server hears of it") {
  const std::string secret = "swordfish";
  const std::string other_secret = "sardines!";
  const std::vector<TokenRecord> tokens = {RecordOf(secret, "edge", v1::WORKER),
                                           RecordOf(other_secret, "other-edge", v1::WORKER),
                                           RecordOf("octopus", "admin", v1::OPERATOR)};
  ServerOfTwo server(tokens);
  // Those of the first store are its own.
  RequireOk(server.store(0).SetTokens(tokens));
  RequireOk(server.store(1).SetTokens(tokens));
  const SecretFile file(secret, "edge");
  const SecretFile other_file(other_secret, "other");
  const SecretFile admin_file("octopus", "admin");
  const std::unique_ptr<Transport> by_edge = server.server().Connect(file.security());
  const std::unique_ptr<Transport> by_other = server.server().Connect(other_file.security());
  const std::unique_ptr<Transport> by_admin = server.server().Connect(admin_file.security());
  auto sent_away = CallLater(*by_edge, kSync, APollOf("phones", "worker"));
  auto stays = CallLater(*by_other, kSync, APollOf("phones", "other-worker"));
  WaitUntil("both wait", absl::Seconds(10), [&] { return NumParked(*by_admin, "phones") == 2; });
  std::vector<TokenRecord> fewer = tokens;
  fewer[0].revoke_time = SystemClock().Now();
  RequireOk(server.store(1).SetTokens(fewer));
  CHECK(sent_away.wait_for(std::chrono::seconds(5)) == std::future_status::ready);
  if (IsReady(sent_away)) CHECK(absl::IsUnauthenticated(sent_away.get().status()));
  CHECK_FALSE(IsReady(stays));
  CHECK(NumParked(*by_admin, "phones") == 1);
}

}  // namespace
}  // namespace sheaf
