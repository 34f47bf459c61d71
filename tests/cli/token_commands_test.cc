// The commands that make, show and end tokens: what they print, and where the secret goes.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/processes/temporary_directory.h"
#include "tests/cli/command_run.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

constexpr char kSecret[] = "sheaf_0123456789abcdefghijklmnopqrstuv";
// CommandRun's clock.
constexpr int64_t kNow = 1'769'860'800;
constexpr int64_t kDay = 86'400;

v1::Token AToken(const std::string& id, const std::string& name, const std::vector<v1::Role>& roles) {
  v1::Token token;
  token.set_id(id);
  token.set_name(name);
  for (const v1::Role role : roles) token.add_roles(role);
  token.mutable_create_time()->set_seconds(kNow - 3 * kDay);
  token.set_is_valid(true);
  return token;
}

// Answers with a token of what was asked for.
void MakeTokens(CommandRun& run) {
  run.server.On(kCreateToken, [](const v1::CreateTokenRequest& request) -> absl::StatusOr<v1::CreateTokenResponse> {
    CHECK(request.request_id().size() == 16);
    v1::CreateTokenResponse response;
    v1::Token& token = *response.mutable_token();
    token.set_id("t-7k2m9q4x");
    token.set_name(request.name());
    *token.mutable_roles() = request.roles();
    *token.mutable_populations() = request.populations();
    token.set_certificate(request.certificate());
    token.mutable_create_time()->set_seconds(kNow);
    if (request.has_lifetime()) token.mutable_expire_time()->set_seconds(kNow + request.lifetime().seconds());
    token.set_is_valid(true);
    if (request.certificate().empty()) response.set_secret(kSecret);
    return response;
  });
}

std::string ContentOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("token create prints the secret alone on stdout, and what it is for beside it") {
  CommandRun run;
  MakeTokens(run);
  CHECK(run({"token", "create", "edge-7", "--role", "worker", "--role", "viewer", "--for", "edge", "--for", "lab",
             "--expires", "720h"}) == 0);
  CHECK(run.out() == std::string(kSecret) + "\n");
  CHECK(run.err() == "token t-7k2m9q4x of edge-7: worker,viewer, edge,lab; its secret is shown only now\n");
  CHECK_THAT(run.server.requests.back(), Contains("name: \"edge-7\"") && Contains("roles: WORKER roles: VIEWER") &&
                                             Contains("populations: \"edge\" populations: \"lab\"") &&
                                             Contains("lifetime { seconds: 2592000 }"));
  CHECK(run({"token", "create", "admin", "--role", "operator"}) == 0);
  CHECK(run.err() == "token t-7k2m9q4x of admin: operator, everywhere; its secret is shown only now\n");
}

TEST_CASE("token create -o json is the API's own message, with the secret") {
  CommandRun run;
  MakeTokens(run);
  CHECK(run({"token", "create", "edge-7", "--role", "worker", "--for", "edge", "--expires", "1h", "-o", "json"}) == 0);
  CHECK(run.out() == R"({
 "token": {
  "id": "t-7k2m9q4x",
  "name": "edge-7",
  "roles": [
   "WORKER"
  ],
  "populations": [
   "edge"
  ],
  "certificate": "",
  "creator": "",
  "isValid": true,
  "createTime": "2026-01-31T12:00:00Z",
  "expireTime": "2026-01-31T13:00:00Z"
 },
 "secret": "sheaf_0123456789abcdefghijklmnopqrstuv"
}
)");
  CHECK(run.err().empty());
}

TEST_CASE("token create --to writes the secret for its owner alone, and shows it nowhere") {
  const TemporaryDirectory directory = *TemporaryDirectory::Create("/tmp", "sheaf-token-");
  const std::string path = directory.path() + "/edge.token";
  CommandRun run;
  MakeTokens(run);
  CHECK(run({"token", "create", "edge-7", "--role", "worker", "--to", path}) == 0);
  CHECK(run.out().empty());
  CHECK(run.err() == "token t-7k2m9q4x of edge-7: worker, everywhere; its secret is in " + path + "\n");
  CHECK(ContentOf(path) == std::string(kSecret) + "\n");
  struct stat file = {};
  REQUIRE(stat(path.c_str(), &file) == 0);
  CHECK((file.st_mode & 0777) == 0600);
  // A token whose secret could be written nowhere would be lost: none is made.
  const size_t num_requests = run.server.requests.size();
  CHECK(run({"token", "create", "edge-7", "--role", "worker", "--to", path}) != 0);
  CHECK_THAT(run.err(), Contains(path));
  CHECK(run.server.requests.size() == num_requests);
  CHECK(run({"token", "create", "edge-8", "--role", "worker", "--to", path + "-2", "-o", "json"}) == 0);
  CHECK_THAT(run.out(), Contains("\"secret\": \"\"") && !Contains(kSecret));
}

TEST_CASE("token create --certificate makes no secret") {
  CommandRun run;
  MakeTokens(run);
  CHECK(run({"token", "create", "edge-7", "--role", "worker", "--certificate", "edge-7.example"}) == 0);
  CHECK(run.out().empty());
  CHECK(run.err() == "token t-7k2m9q4x of edge-7: worker, everywhere; for the certificate edge-7.example\n");
}

TEST_CASE("A token without a role, or with one that nobody has, is wrong usage, and is not asked for") {
  CommandRun run;
  MakeTokens(run);
  CHECK(run({"token", "create", "edge-7", "--role", "root"}) == 2);
  CHECK_THAT(run.err(), StartsWith("error: --role: 'root' is none of submitter, worker, operator, viewer, relay\n") &&
                            Contains("hint: "));
  CHECK(run({"token", "create", "edge-7"}) == 2);
  CHECK_THAT(run.err(), StartsWith("error: --role ROLE is missing\n"));
  CHECK(run({"token", "create", "--role", "worker"}) == 2);
  CHECK_THAT(run.err(), StartsWith("error: NAME is missing: the holder's name; tokens of one name are one identity\n"));
  CHECK(run({"token", "create", "edge-7", "--role", "worker", "--expires", "soon"}) == 2);
  CHECK(run({"token", "revoke"}) == 2);
  CHECK_THAT(run.err(), StartsWith("error: TOKEN is missing: "));
  CHECK(run.server.requests.empty());
}

void ListFour(CommandRun& run) {
  run.server.On(kListTokens, [](const v1::ListTokensRequest& request) -> absl::StatusOr<v1::ListTokensResponse> {
    v1::ListTokensResponse response;
    v1::Token& admin = *response.add_tokens() = AToken("t-aaaaaaaa", "admin", {v1::OPERATOR});
    admin.mutable_create_time()->set_seconds(kNow - 400 * kDay);
    v1::Token& expiring = *response.add_tokens() = AToken("t-bbbbbbbb", "edge-7", {v1::WORKER, v1::VIEWER});
    expiring.add_populations("edge");
    expiring.add_populations("lab");
    expiring.mutable_expire_time()->set_seconds(kNow + 29 * kDay + 3600);
    expiring.set_creator("admin");
    v1::Token& revoked = *response.add_tokens() = AToken("t-cccccccc", "edge-8", {v1::WORKER});
    revoked.set_is_valid(false);
    revoked.mutable_revoke_time()->set_seconds(kNow - 60);
    revoked.set_creator("admin");
    v1::Token& expired = *response.add_tokens() = AToken("t-dddddddd", "lab", {v1::SUBMITTER});
    expired.set_is_valid(false);
    expired.mutable_expire_time()->set_seconds(kNow - 60);
    expired.set_certificate("lab.example");
    expired.set_creator("admin");
    if (request.page_size() < response.tokens_size()) {
      response.mutable_tokens()->DeleteSubrange(request.page_size(), response.tokens_size() - request.page_size());
      response.set_next_page_token("more");
    }
    return response;
  });
}

TEST_CASE("token list says where each token holds, for how long, and which are void") {
  CommandRun run;
  ListFour(run);
  CHECK(run({"token", "list"}) == 0);
  CHECK(run.out() ==
        "TOKEN       NAME    ROLES          FOR         STATE          AGE  CREATOR  CERTIFICATE\n"
        "t-aaaaaaaa  admin   operator       everywhere  VALID         400d  -        -\n"
        "t-bbbbbbbb  edge-7  worker,viewer  edge,lab    VALID 29d01h    3d  admin    -\n"
        "t-cccccccc  edge-8  worker         everywhere  REVOKED         3d  admin    -\n"
        "t-dddddddd  lab     submitter      everywhere  EXPIRED         3d  admin    lab.example\n");
  CHECK(run.err().empty());
  CHECK(run({"token", "list", "--limit", "1", "--no-headers"}) == 0);
  CHECK(run.out() == "t-aaaaaaaa  admin  operator  everywhere  VALID  400d  -  -\n");
  CHECK(run.err() == "note: these are the first 1; --limit 0 shows all, --page-token more the next\n");
}

TEST_CASE("token list -o json is the API's own message, and has no secret") {
  CommandRun run;
  ListFour(run);
  CHECK(run({"token", "list", "-o", "json"}) == 0);
  CHECK_THAT(run.out(), StartsWith(R"({
 "tokens": [
  {
   "id": "t-aaaaaaaa",
   "name": "admin",
   "roles": [
    "OPERATOR"
   ],
   "populations": [],
   "certificate": "",
   "creator": "",
   "isValid": true,
   "createTime": "2024-12-27T12:00:00Z"
  },
)"));
  CHECK_THAT(run.out(), Contains("\"revokeTime\": \"2026-01-31T11:59:00Z\"") &&
                            Contains("\"expireTime\": \"2026-03-01T13:00:00Z\"") && !Contains("secret"));
}

TEST_CASE("token revoke says whose token ended, and passes on what the server says of one it does not show") {
  CommandRun run;
  run.server.On(kRevokeToken, [](const v1::RevokeTokenRequest& request) -> absl::StatusOr<v1::RevokeTokenResponse> {
    CHECK(request.request_id().size() == 16);
    if (request.token() != "t-cccccccc") return absl::NotFoundError("there is no token " + request.token());
    v1::RevokeTokenResponse response;
    *response.mutable_token() = AToken("t-cccccccc", "edge-8", {v1::WORKER});
    response.mutable_token()->set_is_valid(false);
    response.mutable_token()->mutable_revoke_time()->set_seconds(kNow);
    return response;
  });
  CHECK(run({"token", "revoke", "t-cccccccc"}) == 0);
  CHECK(run.out() == "token t-cccccccc of edge-8 is revoked\n");
  CHECK(run({"token", "revoke", "t-cccccccc", "-o", "json"}) == 0);
  CHECK_THAT(run.out(), Contains("\"revokeTime\": \"2026-01-31T12:00:00Z\"") && Contains("\"isValid\": false"));
  CHECK(run({"token", "revoke", "t-elsewhere"}) == 3);
  CHECK(run.out().empty());
  CHECK(run.err() == "error: there is no token t-elsewhere\nhint: 'sheaf token list' shows those there are\n");
}

TEST_CASE("A token that would reach further than its maker's, or a certificate that has one, is refused") {
  const std::pair<absl::Status, int> kRefusals[] = {
      {absl::PermissionDeniedError("this token does not reach population 'lab'"), 4},
      {absl::AlreadyExistsError("the certificate lab.example has the token t-dddddddd"), 7},
      {absl::InvalidArgumentError("name \"edge 7\" has a blank"), 2},
  };
  for (const auto& [refusal, code] : kRefusals) {
    CommandRun run;
    run.server.On(kCreateToken,
                  [&refusal = refusal](const v1::CreateTokenRequest&) -> absl::StatusOr<v1::CreateTokenResponse> {
                    return refusal;
                  });
    CHECK(run({"token", "create", "edge 7", "--role", "worker", "--for", "lab"}) == code);
    CHECK(run.out().empty());
    CHECK_THAT(run.err(), StartsWith("error: " + std::string(refusal.message()) + "\nhint: "));
  }
}

}  // namespace
}  // namespace sheaf
