// The way of a call, by a transport that is nothing but memory: what any transport may rely on.
#include "server/calls/call.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>

#include "proto/methods.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

// What came of a call, and how often its transport was asked for something.
struct Seen {
  std::optional<absl::Status> sent;
  std::string answer;
  int num_sends = 0;
  int num_credentials = 0;
  int num_reads = 0;
  int num_cuts = 0;
  bool is_deleted = false;
};

class MemoryCall final : public Call {
 public:
  MemoryCall(CallPipeline& pipeline, const MethodRow& method, std::string request, std::string authorization,
             std::shared_ptr<Seen> seen)
      : Call(pipeline, method, "memory"),
        request_(std::move(request)),
        authorization_(std::move(authorization)),
        seen_(std::move(seen)) {}
  ~MemoryCall() override { seen_->is_deleted = true; }

  std::function<void()> Cut() override {
    return [seen = seen_] { ++seen->num_cuts; };
  }

 private:
  Credentials credentials() const override {
    ++seen_->num_credentials;
    return {.authorization = authorization_};
  }
  int64_t request_bytes() const override { return static_cast<int64_t>(request_.size()); }
  absl::Status Read(Reader read) const override {
    ++seen_->num_reads;
    google::protobuf::io::ArrayInputStream stream(request_.data(), static_cast<int>(request_.size()));
    return read(stream);
  }
  void FreeRequest() override { request_.clear(); }
  absl::StatusOr<int64_t> Write(const google::protobuf::Message& answer) override {
    seen_->answer = answer.SerializeAsString();
    return static_cast<int64_t>(seen_->answer.size());
  }
  void FreeAnswer() override { seen_->answer.clear(); }
  void Send(const absl::Status& status) override {
    seen_->sent = status;
    ++seen_->num_sends;
  }

  std::string request_;
  const std::string authorization_;
  const std::shared_ptr<Seen> seen_;
};

// A call that was begun. `taken` says that the caller has its answer; then the call is gone.
struct Begun {
  MemoryCall* call;
  std::shared_ptr<Seen> seen;

  void Take() const { call->OnSent(); }
};

template <typename Request, typename Response>
Begun Begin(CoreFederation& server, const Method<Request, Response>& method, const Request& request,
            const std::string& authorization = "") {
  auto seen = std::make_shared<Seen>();
  auto* call = new MemoryCall(server.parts().pipeline, *server.parts().methods.Find(method.name),
                              request.SerializeAsString(), authorization, seen);
  call->Begin();
  server.Run();
  return {call, seen};
}

v1::SyncRequest APoll(const std::string& worker) {
  v1::SyncRequest poll = Ask(worker, 1);
  poll.mutable_wait()->set_seconds(50);
  return poll;
}

TEST_CASE("A call of any transport is answered in bytes, and gives back all that it took when its answer is taken") {
  CoreFederation server;
  const Begun call = Begin(server, kGetServerInfo, {});
  REQUIRE(call.seen->sent.has_value());
  INFO(call.seen->sent->ToString());
  REQUIRE(call.seen->sent->ok());
  v1::GetServerInfoResponse info;
  REQUIRE(info.ParseFromString(call.seen->answer));
  CHECK(info.data_directory() == "memory");
  CHECK(server.parts().admission.bytes() == 0);
  CHECK(server.parts().answers.bytes() > 0);
  CHECK_FALSE(call.seen->is_deleted);
  call.Take();
  CHECK(call.seen->is_deleted);
  CHECK(server.parts().answers.bytes() == 0);
  CHECK(call.seen->num_sends == 1);
}

TEST_CASE("What a call shows of its caller is asked for only where tokens are, and a stranger's request is not read") {
  CoreFederation server;
  const Begun open = Begin(server, kGetServerInfo, {});
  CHECK(open.seen->num_credentials == 0);
  open.Take();
  v1::CreateTokenRequest token;
  token.set_request_id("request");
  token.set_name("op");
  token.add_roles(v1::OPERATOR);
  REQUIRE(server.Call<v1::CreateTokenResponse>("AccessService/CreateToken", token).ok());
  for (const char* shown : {"", "Bearer sheaf_nonsense", "Basic eDp5"}) {
    INFO(shown);
    const Begun stranger = Begin(server, kGetServerInfo, {}, shown);
    REQUIRE(stranger.seen->sent.has_value());
    CHECK(absl::IsUnauthenticated(*stranger.seen->sent));
    CHECK(stranger.seen->num_credentials == 1);
    CHECK(stranger.seen->num_reads == 0);
    stranger.Take();
  }
}

TEST_CASE("A request that is too large is refused before it is read, and one of nonsense when it is") {
  Limits limits;
  limits.request_bytes_max = 100;
  CoreFederation server(limits);
  v1::GetRoundRequest large;
  large.set_round(std::string(200, 'r'));
  const Begun refused = Begin(server, kGetRound, large);
  REQUIRE(refused.seen->sent.has_value());
  CHECK_THAT(refused.seen->sent->ToString(), Contains("request_bytes_max"));
  CHECK(refused.seen->num_reads == 0);
  CHECK(server.parts().admission.bytes() == 0);
  refused.Take();

  auto seen = std::make_shared<Seen>();
  auto* call =
      new MemoryCall(server.parts().pipeline, *server.parts().methods.Find(kGetRound.name), "\xff\xff", "", seen);
  call->Begin();
  REQUIRE(seen->sent.has_value());
  CHECK_THAT(seen->sent->ToString(), Contains("is not a serialised sheaf.v1.GetRoundRequest"));
  call->OnSent();
  CHECK(seen->is_deleted);
}

TEST_CASE("A poll whose caller goes is ended, once, and its worker's next poll waits on") {
  CoreFederation server;
  const Begun gone = Begin(server, kSync, APoll("w1"));
  const Begun stays = Begin(server, kSync, APoll("w2"));
  REQUIRE(server.core().polls().Num("default") == 2);
  CHECK_FALSE(server.parts().pipeline.WaitUntilIdle(absl::ZeroDuration()));
  gone.call->Cancel();
  gone.call->Cancel();
  server.Run();
  REQUIRE(gone.seen->sent.has_value());
  CHECK(absl::IsCancelled(*gone.seen->sent));
  gone.Take();
  CHECK(gone.seen->num_sends == 1);
  CHECK_FALSE(stays.seen->sent.has_value());
  server.CreateRound(SumRound(1));
  REQUIRE(stays.seen->sent.has_value());
  CHECK(stays.seen->sent->ok());
  // Too late: the answer is on its way.
  stays.call->Cancel();
  server.Run();
  stays.Take();
  CHECK(stays.seen->num_sends == 1);
  CHECK(server.parts().pipeline.WaitUntilIdle(absl::ZeroDuration()));
}

TEST_CASE("A call that waits for room for its answer ends when its caller goes, before it was read") {
  CoreFederation server;
  AnswerBooks& answers = server.parts().answers;
  // One client holds its share of the room for lists.
  std::vector<AnswerEntry*> held;
  for (int i = 0; answers.num_waiting() == 0; ++i) {
    answers.Reserve(CallId(-1 - i), AnswerKind::kList, {.connection = "memory"}, server.clock().Now(),
                    [&](absl::StatusOr<AnswerEntry*> entry) {
                      if (entry.ok()) held.push_back(*entry);
                    });
  }
  const Begun waits = Begin(server, kListRounds, {});
  CHECK(answers.num_waiting() == 2);
  CHECK_FALSE(waits.seen->sent.has_value());
  waits.call->Cancel();
  REQUIRE(waits.seen->sent.has_value());
  CHECK(absl::IsCancelled(*waits.seen->sent));
  CHECK(waits.seen->num_reads == 0);
  waits.Take();
  CHECK(answers.num_waiting() == 1);
  answers.Abandon(CallId(-1 - static_cast<int64_t>(held.size())));
  for (AnswerEntry* entry : held) answers.Release(entry);
}

TEST_CASE("An answer that nobody takes is cut off") {
  CoreFederation server;
  const Begun call = Begin(server, kGetServerInfo, {});
  server.parts().pipeline.Tick(server.clock().Now());
  CHECK(call.seen->num_cuts == 0);
  server.Advance(server.core().limits().answer_time_max + absl::Seconds(1));
  server.parts().pipeline.Tick(server.clock().Now());
  CHECK(call.seen->num_cuts == 1);
  call.Take();
}

}  // namespace
}  // namespace sheaf
