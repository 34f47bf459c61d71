// Tokens.
#include "tests/conformance/store_fixture.h"

namespace sheaf {
namespace {

// 64 of one digit: no SHA-256 of anything, but one in form.
TokenRecord AToken(StoreFixture& f, const std::string& id, char digit, std::vector<std::string> populations = {}) {
  return {.id = TokenId(id),
          .request_id = "request-" + id,
          .name = "edge",
          .hash = std::string(64, digit),
          .certificate = "edge-7.example.org",
          .roles = 5,
          .populations = std::move(populations),
          .creator = "admin",
          .create_time = f.now,
          .expire_time = f.now + absl::Hours(1)};
}

absl::StatusOr<TaskStore::CreateTokenResult> Create(StoreFixture& f, const TokenRecord& token) {
  return f.Do([&](TaskStore& s) { return s.CreateToken(token); });
}

std::vector<TokenRecord> All(StoreFixture& f) {
  auto tokens = f.store().ListTokens({});
  REQUIRE(tokens.ok());
  return *tokens;
}

STORE_TEST("A token is kept as it was created, not revoked, its populations sorted and each once") {
  TokenRecord token = AToken(f, "t-1", 'a', {"b", "a", "b"});
  token.revoke_time = f.now;
  auto created = Create(f, token);
  REQUIRE(created.ok());
  CHECK(created->created);
  token.populations = {"a", "b"};
  token.revoke_time = absl::InfiniteFuture();
  CHECK(Describe(created->token) == Describe(token));
  f.Reopen();
  REQUIRE(All(f).size() == 1);
  CHECK(Describe(All(f)[0]) == Describe(token));
}

STORE_TEST("The same request creates one token and gets the same answer") {
  REQUIRE(Create(f, AToken(f, "t-1", 'a', {"p"})).ok());
  TokenRecord again = AToken(f, "t-2", 'b');
  again.request_id = "request-t-1";
  auto answer = Create(f, again);
  REQUIRE(answer.ok());
  CHECK_FALSE(answer->created);
  CHECK(answer->token.id == TokenId("t-1"));
  CHECK(answer->token.populations == std::vector<std::string>{"p"});
  CHECK(All(f).size() == 1);
}

STORE_TEST("Two tokens share neither id nor hash") {
  REQUIRE(Create(f, AToken(f, "t-1", 'a')).ok());
  TokenRecord same_id = AToken(f, "t-1", 'b');
  same_id.request_id = "other";
  CHECK(Create(f, same_id).status().code() == absl::StatusCode::kAlreadyExists);
  CHECK(Create(f, AToken(f, "t-2", 'a')).status().code() == absl::StatusCode::kAlreadyExists);
  CHECK(All(f).size() == 1);
}

STORE_TEST("A token without id, request, name, hash or roles is refused") {
  for (int i = 0; i < 5; ++i) {
    TokenRecord token = AToken(f, "t-1", 'a');
    if (i == 0) token.id = TokenId();
    if (i == 1) token.request_id.clear();
    if (i == 2) token.name.clear();
    if (i == 3) token.hash = "the secret itself";
    if (i == 4) token.roles = 0;
    INFO("without part " << i);
    CHECK(Create(f, token).status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(All(f).empty());
}

STORE_TEST("A revoked token stays revoked, with the time of the first time") {
  REQUIRE(Create(f, AToken(f, "t-1", 'a', {"p"})).ok());
  const absl::Time first = f.now;
  auto revoked = f.Do([&](TaskStore& s) { return s.RevokeToken({.token = TokenId("t-1"), .now = f.now}); });
  REQUIRE(revoked.ok());
  CHECK(revoked->revoke_time == first);
  CHECK(revoked->populations == std::vector<std::string>{"p"});
  f.now += absl::Hours(1);
  revoked = f.Do([&](TaskStore& s) { return s.RevokeToken({.token = TokenId("t-1"), .now = f.now}); });
  REQUIRE(revoked.ok());
  CHECK(revoked->revoke_time == first);
  CHECK(All(f)[0].revoke_time == first);
  auto missing = f.Do([&](TaskStore& s) { return s.RevokeToken({.token = TokenId("t-9"), .now = f.now}); });
  CHECK(missing.status().code() == absl::StatusCode::kNotFound);
}

STORE_TEST("Tokens are listed by id, in pages") {
  for (char c : {'c', 'a', 'b'}) REQUIRE(Create(f, AToken(f, std::string("t-") + c, c)).ok());
  auto page = f.store().ListTokens({.limit = 2});
  REQUIRE(page.ok());
  REQUIRE(page->size() == 2);
  CHECK((*page)[0].id == TokenId("t-a"));
  page = f.store().ListTokens({.after = (*page)[1].id, .limit = 2});
  REQUIRE(page->size() == 1);
  CHECK((*page)[0].id == TokenId("t-c"));
}

STORE_TEST("A deleted token is gone, and its hash is free") {
  REQUIRE(Create(f, AToken(f, "t-1", 'a', {"p", "q"})).ok());
  CHECK(f.Do([&](TaskStore& s) { return s.DeleteToken(TokenId("t-1")); }).ok());
  CHECK(All(f).empty());
  CHECK(f.Do([&](TaskStore& s) { return s.DeleteToken(TokenId("t-1")); }).code() == absl::StatusCode::kNotFound);
  CHECK(Create(f, AToken(f, "t-2", 'a')).ok());
}

STORE_TEST("What a batch did to tokens is undone with it") {
  REQUIRE(Create(f, AToken(f, "t-1", 'a')).ok());
  REQUIRE(Create(f, AToken(f, "t-2", 'b', {"p"})).ok());
  const std::string before = f.DumpNow();
  REQUIRE(f.store().BeginBatch().ok());
  REQUIRE(f.store().CreateToken(AToken(f, "t-3", 'c', {"p"})).ok());
  REQUIRE(f.store().RevokeToken({.token = TokenId("t-1"), .now = f.now}).ok());
  REQUIRE(f.store().DeleteToken(TokenId("t-2")).ok());
  CHECK(f.DumpNow() != before);
  f.store().RollbackBatch();
  CHECK(f.DumpNow() == before);
}

}  // namespace
}  // namespace sheaf
