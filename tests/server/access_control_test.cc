// Tokens in the core: what makes them, what ends them, and what a failed batch does to them.
#include "server/core/access/access_control.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Code = absl::StatusCode;

v1::CreateTokenRequest AToken(const std::string& name, v1::Role role, const std::string& population = "") {
  static int num_requests = 0;
  v1::CreateTokenRequest request;
  request.set_request_id(fmt::format("token-{}", ++num_requests));
  request.set_name(name);
  request.add_roles(role);
  if (!population.empty()) request.add_populations(population);
  return request;
}

// A server's AccessControl, each call in a batch of its own.
class Guarded {
 public:
  explicit Guarded(Limits limits = {}) : server_(limits) {}
  AccessControl& access() { return server_.core().access(); }
  CoreFederation& server() { return server_; }
  absl::Time now() { return server_.clock().Now(); }

  absl::StatusOr<v1::CreateTokenResponse> Create(const v1::CreateTokenRequest& request,
                                                 const Identity& creator = *Identity::Anybody()) {
    absl::StatusOr<v1::CreateTokenResponse> answer = absl::UnknownError("never run");
    server_.Post([&](absl::Time at) { answer = access().Create(request, creator, at); });
    server_.Run();
    return answer;
  }
  std::string Secret(const v1::CreateTokenRequest& request, const Identity& creator = *Identity::Anybody()) {
    const auto created = Create(request, creator);
    INFO(created.status().ToString());
    REQUIRE(created.ok());
    return created->secret();
  }
  absl::StatusOr<v1::RevokeTokenResponse> Revoke(const std::string& id, const Identity& caller = *Identity::Anybody()) {
    v1::RevokeTokenRequest request;
    request.set_request_id("revoke");
    request.set_token(id);
    absl::StatusOr<v1::RevokeTokenResponse> answer = absl::UnknownError("never run");
    server_.Post([&](absl::Time at) { answer = access().Revoke(request, caller, at); });
    server_.Run();
    return answer;
  }
  absl::StatusOr<IdentityPtr> Show(const std::string& secret) { return access().Authenticate("Bearer " + secret, {}); }
  int NumListed(const Identity& caller = *Identity::Anybody()) {
    const auto listed = access().List({}, caller, now());
    REQUIRE(listed.ok());
    return listed->tokens_size();
  }

 private:
  CoreFederation server_;
};

TEST_CASE("A server without tokens lets anybody do everything; the first token must be an operator's") {
  Guarded guarded;
  CHECK(guarded.access().Authenticate("", {})->get() == Identity::Anybody().get());
  for (const auto& refused : {AToken("w", v1::WORKER), AToken("o", v1::OPERATOR, "default")}) {
    CHECK(guarded.Create(refused).status().code() == Code::kFailedPrecondition);
  }
  CHECK_FALSE(guarded.access().is_required());
  const std::string admin = guarded.Secret(AToken("admin", v1::OPERATOR));
  CHECK(guarded.access().is_required());
  CHECK(guarded.access().Authenticate("", {}).status().code() == Code::kUnauthenticated);
  CHECK((*guarded.Show(admin))->name == "admin");
  guarded.server().CrashAndRestart();
  CHECK(guarded.Show(admin).ok());
}

TEST_CASE("What is shown wrongly is refused without being repeated") {
  Guarded guarded;
  const std::string admin = guarded.Secret(AToken("admin", v1::OPERATOR));
  for (const std::string& shown : std::vector<std::string>{
           admin, "Bearer", "Bearer ", "bearer " + admin, "Bearer  " + admin, "Bearer " + admin + "a",
           "Bearer " + admin.substr(1), "Basic " + admin, std::string(10'000, 'x')}) {
    const absl::Status status = guarded.access().Authenticate(shown, {}).status();
    CHECK(status.code() == Code::kUnauthenticated);
    CHECK(status.ToString().find(admin.substr(6)) == std::string::npos);
    CHECK(status.message().size() < 200);
  }
}

TEST_CASE("A secret is given once: a repeated call gets the token without it") {
  Guarded guarded;
  const v1::CreateTokenRequest request = AToken("admin", v1::OPERATOR);
  const auto first = guarded.Create(request);
  const auto second = guarded.Create(request);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(first->secret().size() == 38);
  CHECK(second->secret().empty());
  CHECK(second->token().id() == first->token().id());
}

TEST_CASE("A token ends at its time, and a wait under it with it") {
  Guarded guarded;
  guarded.Secret(AToken("admin", v1::OPERATOR));
  v1::CreateTokenRequest request = AToken("edge", v1::WORKER);
  request.mutable_lifetime()->set_seconds(20);
  const std::string secret = guarded.Secret(request);
  const IdentityPtr identity = *guarded.Show(secret);
  v1::SyncRequest poll = Ask("w1", 1);
  poll.mutable_wait()->set_seconds(50);
  absl::Status ended;
  guarded.server().Post([&](absl::Time now) {
    guarded.server().core().sync().Answer(
        poll, CallId(), identity, now,
        [&](const absl::StatusOr<v1::SyncResponse>& answer) { ended = answer.status(); });
  });
  guarded.server().Advance(absl::Seconds(19));
  CHECK(guarded.Show(secret).ok());
  CHECK(guarded.server().core().polls().Num("default") == 1);
  CHECK(guarded.access().NextTick() == guarded.now() + absl::Seconds(1));
  guarded.server().Advance(absl::Seconds(1));
  CHECK_THAT(guarded.Show(secret).status().ToString(), Contains("UNAUTHENTICATED") && Contains("has expired"));
  CHECK(ended.code() == Code::kUnauthenticated);
  CHECK(guarded.server().core().polls().Num("default") == 0);
}

TEST_CASE("A token that would outlive the calendar is refused") {
  Guarded guarded;
  guarded.Secret(AToken("admin", v1::OPERATOR));
  for (const int64_t seconds : {int64_t{400'000'000'000}, INT64_MAX}) {
    v1::CreateTokenRequest request = AToken("edge", v1::WORKER);
    request.mutable_lifetime()->set_seconds(seconds);
    const absl::Status refused = guarded.Create(request).status();
    CHECK(refused.code() == Code::kInvalidArgument);
    CHECK_THAT(std::string(refused.message()), Contains("lifetime") && Contains("leave it out"));
  }
}

TEST_CASE("Who waits for a round under a token that is revoked is sent away at once, and others wait on") {
  Guarded guarded;
  guarded.Secret(AToken("admin", v1::OPERATOR));
  const auto looker = guarded.Create(AToken("looker", v1::VIEWER));
  REQUIRE(looker.ok());
  const IdentityPtr revoked = *guarded.Show(looker->secret());
  const IdentityPtr other = *guarded.Show(guarded.Secret(AToken("other", v1::VIEWER)));
  const std::string round = guarded.server().CreateRound(SumRound(1));
  v1::GetRoundRequest watch;
  watch.set_round(round);
  watch.set_etag(guarded.server().GetRound(round).etag());
  watch.mutable_wait()->set_seconds(50);
  std::vector<std::pair<IdentityPtr, std::optional<absl::Status>>> waits = {{revoked, {}}, {other, {}}, {revoked, {}}};
  for (auto& [identity, ended] : waits) {
    guarded.server().Post([&, &identity = identity, &ended = ended](absl::Time now) {
      guarded.server().core().watch().Get(watch, CallId(), identity, now,
                                          [&ended](const auto& answer) { ended = answer.status(); });
    });
  }
  guarded.server().Run();
  REQUIRE(guarded.Revoke(looker->token().id()).ok());
  guarded.server().Run();
  for (const auto& [identity, ended] : waits) {
    CHECK(ended.has_value() == (identity == revoked));
    if (ended) CHECK(ended->code() == Code::kUnauthenticated);
  }
}

TEST_CASE("Of a batch that fails no token stays, and none is revoked") {
  Guarded guarded;
  const auto admin = guarded.Create(AToken("admin", v1::OPERATOR));
  REQUIRE(admin.ok());
  MemoryTaskStore& store = guarded.server().store();
  v1::RevokeTokenRequest revoke;
  revoke.set_request_id("revoke");
  revoke.set_token(admin->token().id());
  REQUIRE(store.BeginBatch().ok());
  const auto lost = guarded.access().Create(AToken("edge", v1::WORKER), *Identity::Anybody(), guarded.now());
  REQUIRE(lost.ok());
  REQUIRE(guarded.access().Revoke(revoke, *Identity::Anybody(), guarded.now()).ok());
  CHECK_FALSE(guarded.Show(admin->secret()).ok());
  store.RollbackBatch();
  guarded.access().OnRollback(guarded.now());
  CHECK(guarded.Show(admin->secret()).ok());
  CHECK_FALSE(guarded.Show(lost->secret()).ok());
  CHECK(guarded.NumListed() == 1);
}

TEST_CASE("An operator of one population makes, sees and revokes nothing beyond it") {
  Guarded guarded;
  guarded.Secret(AToken("admin", v1::OPERATOR));
  const auto other = guarded.Create(AToken("other", v1::WORKER, "other"));
  REQUIRE(other.ok());
  const Identity bound = **guarded.Show(guarded.Secret(AToken("local", v1::OPERATOR, "lab")));
  CHECK(guarded.Create(AToken("x", v1::WORKER), bound).status().code() == Code::kPermissionDenied);
  CHECK(guarded.Create(AToken("x", v1::WORKER, "other"), bound).status().code() == Code::kPermissionDenied);
  CHECK(guarded.Create(AToken("x", v1::WORKER, "lab"), bound).ok());
  CHECK(guarded.NumListed() == 4);
  CHECK(guarded.NumListed(bound) == 2);
  CHECK(guarded.Revoke(other->token().id(), bound).status().code() == Code::kNotFound);
  CHECK(guarded.Show(other->secret()).ok());
}

TEST_CASE("Whoever repeats the request of a token beyond its own reach is shown nothing of it") {
  Guarded guarded;
  const v1::CreateTokenRequest everywhere = AToken("admin", v1::OPERATOR);
  guarded.Secret(everywhere);
  const Identity bound = **guarded.Show(guarded.Secret(AToken("local", v1::OPERATOR, "lab")));
  v1::CreateTokenRequest guess = AToken("x", v1::WORKER, "lab");
  guess.set_request_id(everywhere.request_id());
  CHECK(guarded.Create(guess, bound).status().code() == Code::kAlreadyExists);
}

TEST_CASE("The name of a certificate is no secret: only the connection that has the certificate is let in by it") {
  Guarded guarded;
  guarded.Secret(AToken("admin", v1::OPERATOR));
  v1::CreateTokenRequest request = AToken("edge", v1::WORKER);
  request.set_certificate("edge-7.example.org");
  CHECK(guarded.Secret(request).empty());
  const std::vector<std::string> names = {"edge-7.example.org"};
  const auto let_in = guarded.access().Authenticate("", names);
  INFO(let_in.status().ToString());
  REQUIRE(let_in.ok());
  CHECK((*let_in)->name == "edge");
  CHECK_FALSE(guarded.Show(names[0]).ok());
}

TEST_CASE("However many tokens there are, all are known after a restart") {
  constexpr int kTokens = 2100;
  Guarded guarded;
  std::vector<std::string> secrets = {guarded.Secret(AToken("admin", v1::OPERATOR))};
  while (secrets.size() < kTokens) secrets.push_back(guarded.Secret(AToken("edge", v1::WORKER)));
  guarded.server().CrashAndRestart();
  int num_known = 0;
  for (const std::string& secret : secrets) num_known += guarded.Show(secret).ok() ? 1 : 0;
  CHECK(num_known == kTokens);
}

TEST_CASE("Tokens that are long void are forgotten, operators' never: the server does not open itself") {
  Guarded guarded;
  const auto admin = guarded.Create(AToken("admin", v1::OPERATOR));
  const auto edge = guarded.Create(AToken("edge", v1::WORKER));
  REQUIRE(guarded.Revoke(edge->token().id()).ok());
  REQUIRE(guarded.Revoke(admin->token().id()).ok());
  CHECK(guarded.NumListed() == 2);
  CHECK_FALSE(guarded.access().HasOperator(guarded.now()));
  guarded.server().Advance(absl::Hours(24 * 31));
  CHECK(guarded.NumListed() == 1);
  guarded.server().CrashAndRestart();
  CHECK(guarded.NumListed() == 1);
  CHECK(guarded.access().is_required());
  CHECK_THAT(guarded.Show(admin->secret()).status().ToString(), Contains("was revoked"));
  CHECK_THAT(guarded.Show(edge->secret()).status().ToString(), Contains("does not know"));
}

TEST_CASE("Operators of one population, and those that they make, leave others some of the tokens there may be") {
  Limits limits;
  limits.tokens_max = 100;
  Guarded guarded(limits);
  guarded.Secret(AToken("admin", v1::OPERATOR));
  Identity maker = **guarded.Show(guarded.Secret(AToken("local-0", v1::OPERATOR, "lab")));
  absl::Status refused;
  for (int generation = 1; generation <= 5; ++generation) {
    const auto next = guarded.Create(AToken(fmt::format("local-{}", generation), v1::OPERATOR, "lab"), maker);
    for (int i = 0; i < 100; ++i) refused = guarded.Create(AToken("edge", v1::WORKER, "lab"), maker).status();
    CHECK(refused.code() == Code::kResourceExhausted);
    CHECK_THAT(refused.ToString(), Contains("population_percent_max = 90") && Contains("tokens_max = 100"));
    if (next.ok()) maker = **guarded.Show(next->secret());
  }
  // What is left is 10 % of 99.
  CHECK(guarded.NumListed() == 91);
  const Identity other = **guarded.Show(guarded.Secret(AToken("other", v1::OPERATOR, "clinic")));
  CHECK(guarded.Create(AToken("edge", v1::WORKER, "clinic"), other).ok());
  CHECK(guarded.Create(AToken("edge", v1::WORKER, "lab")).ok());
}

TEST_CASE("There are no more tokens than tokens_max") {
  Limits limits;
  limits.tokens_max = 2;
  Guarded guarded(limits);
  guarded.Secret(AToken("admin", v1::OPERATOR));
  guarded.Secret(AToken("edge", v1::WORKER));
  const absl::Status status = guarded.Create(AToken("edge", v1::WORKER)).status();
  CHECK(status.code() == Code::kResourceExhausted);
  CHECK_THAT(status.ToString(), Contains("tokens_max = 2"));
}

}  // namespace
}  // namespace sheaf
