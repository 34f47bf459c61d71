#include "tests/simulation/credentials.h"

#include "base/check.h"
#include "base/checksum.h"
#include "server/core/access/identity.h"

namespace sheaf::simulation {
namespace {

std::string CreateOne(TaskStore& store, Random& random, absl::Time now, const std::string& name, RoleSet roles,
                      std::vector<std::string> populations) {
  const std::string secret = random.Token(40);
  const auto created = store.CreateToken({.id = TokenId("t-" + random.Token(8)),
                                          .request_id = name,
                                          .name = name,
                                          .hash = Sha256Hex(secret),
                                          .roles = roles.bits(),
                                          .populations = std::move(populations),
                                          .create_time = now});
  SHEAF_CHECK(created.ok(), "{}", created.status().ToString());
  return "Bearer " + secret;
}

}  // namespace

Credentials Credentials::Create(TaskStore& store, Random& random, absl::Time now) {
  SHEAF_CHECK(store.BeginBatch().ok());
  Credentials made{.red_worker = CreateOne(store, random, now, "red-workers", {v1::WORKER}, {"red"}),
                   .blue_worker = CreateOne(store, random, now, "blue-workers", {v1::WORKER}, {"blue"}),
                   .submitter = CreateOne(store, random, now, "researcher", {v1::SUBMITTER}, {"blue", "red"}),
                   .operators = CreateOne(store, random, now, "operator", {v1::OPERATOR}, {}),
                   .all = CreateOne(store, random, now, "world", kEveryRole, {})};
  SHEAF_CHECK(store.CommitBatch().ok());
  return made;
}

}  // namespace sheaf::simulation
