#include "server/core/access/access_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checksum.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "proto/time.h"
#include "server/core/limits/fixed_limits.h"
#include "server/core/limits/population_share.h"
#include "server/core/requests/names.h"
#include "server/core/requests/paging.h"

namespace sheaf {
namespace {

constexpr std::string_view kScheme = "Bearer ";
// Tells a token from other secrets, to people and to those who look for leaked ones.
constexpr std::string_view kSecretPrefix = "sheaf_";
// 32 characters of 5 bits: 160 random bits.
constexpr int kSecretCharacters = 32;
constexpr int kTokenIdCharacters = 8;
constexpr size_t kTagCharacters = 16;
constexpr int kPage = 1000;
// A later one has no form in JSON, nor has a list with it.
constexpr absl::Time kLastTime = absl::FromUnixSeconds(253'402'300'799);
constexpr absl::Duration kVoidKeep = absl::Hours(24 * 30);

std::string HashOfSecret(std::string_view secret) { return Sha256Hex(secret); }
// A prefix that no secret has.
std::string HashOfCertificate(std::string_view name) { return Sha256Hex(fmt::format("certificate\n{}", name)); }

// Tokens are stored with the bits of these numbers (TokenRecord::roles).
static_assert(v1::SUBMITTER == 1 && v1::WORKER == 2 && v1::OPERATOR == 3 && v1::VIEWER == 4 && v1::RELAY == 5 &&
              v1::Role_MAX == v1::RELAY);

// For the log.
std::string By(const Identity& caller) { return caller.name.empty() ? "" : fmt::format(" by {}", caller.name); }

v1::Token Show(const TokenRecord& record, bool is_valid) {
  v1::Token token;
  token.set_id(record.id.value());
  token.set_name(record.name);
  for (int role = v1::Role_MIN + 1; role <= v1::Role_MAX; ++role) {
    if (RoleSet(record.roles).has(static_cast<v1::Role>(role))) token.add_roles(static_cast<v1::Role>(role));
  }
  for (const std::string& population : record.populations) token.add_populations(population);
  token.set_certificate(record.certificate);
  *token.mutable_create_time() = ToProto(record.create_time);
  if (record.expire_time != absl::InfiniteFuture()) *token.mutable_expire_time() = ToProto(record.expire_time);
  if (record.revoke_time != absl::InfiniteFuture()) *token.mutable_revoke_time() = ToProto(record.revoke_time);
  token.set_creator(record.creator);
  token.set_is_valid(is_valid);
  return token;
}

IdentityPtr IdentityOf(const TokenRecord& record) {
  return std::make_shared<const Identity>(
      Identity{.name = record.name,
               .token = record.id,
               .roles = RoleSet(record.roles),
               .populations = record.populations,
               .lease_tag = "-" + Sha256Hex("lease\n" + record.name).substr(0, kTagCharacters),
               .upload_tag = Sha256Hex("upload\n" + record.name).substr(0, kTagCharacters)});
}

// What a token for these populations reaches lies within what `caller` reaches.
bool IsWithin(const std::vector<std::string>& populations, const Identity& caller) {
  if (caller.is_everywhere()) return true;
  return !populations.empty() && std::all_of(populations.begin(), populations.end(),
                                             [&](const std::string& population) { return caller.Reaches(population); });
}
bool IsWithin(const TokenRecord& record, const Identity& caller) { return IsWithin(record.populations, caller); }

absl::StatusOr<TokenRecord> PrepareToken(const v1::CreateTokenRequest& request, absl::Time now) {
  RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  RETURN_IF_ERROR(ValidateName("name", request.name()));
  TokenRecord record{.request_id = request.request_id(), .name = request.name(), .create_time = now};
  for (const int role : request.roles()) {
    if (role <= v1::ROLE_UNSPECIFIED || role > v1::Role_MAX) {
      return absl::InvalidArgumentError(fmt::format("there is no role {}", role));
    }
    record.roles |= RoleSet{static_cast<v1::Role>(role)}.bits();
  }
  if (record.roles == 0) {
    return absl::InvalidArgumentError(fmt::format("a token needs a role; the roles are {}", kEveryRole.ToString(", ")));
  }
  if (request.populations_size() > static_cast<int>(kTokenPopulationsMax)) {
    return absl::InvalidArgumentError(fmt::format("a token for {} populations; at most {}, or none for all of them",
                                                  request.populations_size(), kTokenPopulationsMax));
  }
  for (const std::string& population : request.populations()) {
    RETURN_IF_ERROR(ValidateName("population", population));
    record.populations.push_back(population);
  }
  if (request.certificate().size() > kCertificateNameCharactersMax) {
    return absl::InvalidArgumentError(fmt::format("the certificate's name has {} bytes; at most {}",
                                                  request.certificate().size(), kCertificateNameCharactersMax));
  }
  record.certificate = request.certificate();
  if (request.has_lifetime()) {
    const absl::Duration lifetime = FromProto(request.lifetime());
    if (lifetime <= absl::ZeroDuration()) {
      return absl::InvalidArgumentError("lifetime is not positive; leave it out for a token that does not expire");
    }
    record.expire_time = now + lifetime;
    if (record.expire_time > kLastTime) {
      return absl::InvalidArgumentError(
          "lifetime ends after the year 9999; leave it out for a token that does not expire");
    }
  }
  return record;
}

TokenId NewTokenId(Random& random) { return TokenId("t-" + random.Token(kTokenIdCharacters)); }
std::string NewSecret(Random& random) { return std::string(kSecretPrefix) + random.Token(kSecretCharacters); }

}  // namespace

// --- Tokens in memory ----------------------------------------------------------------------------

absl::Status AccessControl::Recover(bool is_required, absl::Time now) {
  is_required_always_ = is_required;
  return Load(now);
}

absl::Status AccessControl::Load(absl::Time now) {
  ASSIGN_OR_RETURN(std::vector<TokenRecord> tokens, ReadTokens(context_.store));
  std::map<TokenId, TokenRecord> records;
  for (TokenRecord& record : tokens) records[record.id] = std::move(record);
  std::unordered_map<std::string, Entry> entries;
  num_by_reach_.clear();
  expiries_.clear();
  for (const auto& [id, record] : records) {
    const Validity validity = ValidityOf(record, now);
    if (validity == Validity::kValid) expiries_.emplace(record.expire_time, id);
    ++num_by_reach_[record.populations];
    entries[record.hash] = {.identity = IdentityOf(record), .validity = validity};
  }
  records_ = std::move(records);
  {
    // In one step: a call that looks meanwhile finds the old ones or the new ones.
    MutexLock lock(mutex_);
    entries_.swap(entries);
  }
  is_required_.store(is_required_always_ || !records_.empty(), std::memory_order_release);
  return absl::OkStatus();
}

absl::Status AccessControl::Reload(absl::Time now) {
  const std::set<std::pair<absl::Time, TokenId>> before = expiries_;
  RETURN_IF_ERROR(Load(now));
  std::set<TokenId> valid;
  for (const auto& [time, id] : expiries_) valid.insert(id);
  for (const auto& [time, id] : before) {
    if (!valid.contains(id)) on_void_(id);
  }
  return absl::OkStatus();
}

void AccessControl::OnRollback(absl::Time now) {
  // While the store cannot be read, what is in memory goes on: it was true once, or nobody was told.
  Load(now).IgnoreError();
}

AccessControl::Validity AccessControl::ValidityOf(const TokenRecord& record, absl::Time now) {
  if (record.revoke_time != absl::InfiniteFuture()) return Validity::kRevoked;
  return record.expire_time <= now ? Validity::kExpired : Validity::kValid;
}

void AccessControl::Put(const TokenRecord& record, absl::Time now) {
  if (records_.insert_or_assign(record.id, record).second) ++num_by_reach_[record.populations];
  const Validity validity = ValidityOf(record, now);
  expiries_.erase({record.expire_time, record.id});
  if (validity == Validity::kValid) expiries_.emplace(record.expire_time, record.id);
  Entry entry{.identity = IdentityOf(record), .validity = validity};
  MutexLock lock(mutex_);
  entries_[record.hash] = std::move(entry);
}

void AccessControl::Tick(absl::Time now) {
  while (NextTick() <= now) {
    const TokenRecord& record = records_.at(expiries_.extract(expiries_.begin()).value().second);
    {
      MutexLock lock(mutex_);
      entries_[record.hash].validity = Validity::kExpired;
    }
    LogInfo("token {} of {} has expired", record.id, record.name);
    on_void_(record.id);
  }
}

void AccessControl::Prune(absl::Time now) {
  for (auto it = records_.begin(); it != records_.end();) {
    const TokenRecord& record = it->second;
    const bool is_old = std::min(record.revoke_time, record.expire_time) + kVoidKeep < now;
    if (!is_old || RoleSet(record.roles).has(v1::OPERATOR) || !context_.store.DeleteToken(record.id).ok()) {
      ++it;
      continue;
    }
    {
      MutexLock lock(mutex_);
      entries_.erase(record.hash);
    }
    if (--num_by_reach_[record.populations] == 0) num_by_reach_.erase(record.populations);
    it = records_.erase(it);
  }
}

int64_t AccessControl::NumWithin(const Identity& identity) const {
  if (identity.populations.size() == 1) {
    const auto found = num_by_reach_.find(identity.populations);
    return found == num_by_reach_.end() ? 0 : found->second;
  }
  int64_t num_within = 0;
  for (const auto& [populations, count] : num_by_reach_) {
    if (IsWithin(populations, identity)) num_within += count;
  }
  return num_within;
}

bool AccessControl::HasOperator(absl::Time now) const {
  return std::any_of(records_.begin(), records_.end(), [&](const auto& entry) {
    return RoleSet(entry.second.roles).has(v1::OPERATOR) && ValidityOf(entry.second, now) == Validity::kValid;
  });
}

absl::StatusOr<IdentityPtr> AccessControl::Authenticate(std::string_view authorization,
                                                        std::span<const std::string> certificate_names) const {
  if (!is_required()) return Identity::Anybody();
  if (authorization.empty() && certificate_names.empty()) {
    return absl::UnauthenticatedError("the server lets nobody in without a token");
  }
  std::vector<std::string> hashes;
  if (authorization.starts_with(kScheme)) {
    hashes.push_back(HashOfSecret(authorization.substr(kScheme.size())));
  } else if (!authorization.empty()) {
    return absl::UnauthenticatedError("the authorization of the call is not of the form \"Bearer TOKEN\"");
  } else {
    for (const std::string& name : certificate_names) hashes.push_back(HashOfCertificate(name));
  }
  for (const std::string& hash : hashes) {
    Entry found;
    {
      MutexLock lock(mutex_);
      const auto entry = entries_.find(hash);
      if (entry == entries_.end()) continue;
      found = entry->second;
    }
    if (found.validity == Validity::kValid) return std::move(found.identity);
    return absl::UnauthenticatedError(
        fmt::format("token {} of {} {}", found.identity->token, found.identity->name,
                    found.validity == Validity::kRevoked ? "was revoked" : "has expired"));
  }
  return absl::UnauthenticatedError(
      authorization.empty() ? fmt::format("there is no token for the certificate \"{}\"",
                                          certificate_names.front().substr(0, kCertificateNameCharactersMax))
                            : "the server does not know this token");
}

// --- AccessService -------------------------------------------------------------------------------

absl::StatusOr<v1::CreateTokenResponse> AccessControl::Create(const v1::CreateTokenRequest& request,
                                                              const Identity& creator, absl::Time now) {
  ASSIGN_OR_RETURN(TokenRecord record, PrepareToken(request, now));
  if (!IsWithin(record, creator)) {
    return absl::PermissionDeniedError(fmt::format("token {} of {} reaches only {}; the new one must reach no more",
                                                   creator.token, creator.name, fmt::join(creator.populations, ", ")));
  }
  if (records_.empty() &&
      (!RoleSet(record.roles).has(v1::OPERATOR) || !record.populations.empty() || !record.certificate.empty())) {
    return absl::FailedPreconditionError(
        "the first token must be an operator's, for all populations and with a secret, or nobody could make another; "
        "run `sheaf token create admin --role operator` first");
  }
  if (static_cast<int64_t>(records_.size()) >= context_.limits.tokens_max) {
    return context_.limits.Refuse(&Limits::tokens_max, fmt::format("there are {} tokens,", records_.size()));
  }
  if (!creator.is_everywhere()) {
    // Whoever made them: an operator may make others, who make more.
    const int64_t own = NumWithin(creator);
    const Limits& limits = context_.limits;
    const int64_t others = static_cast<int64_t>(records_.size()) - own;
    if (own >= PopulationShare::Max(others, limits.tokens_max, limits.population_percent_max)) {
      return limits.RefuseShare(
          &Limits::tokens_max,
          fmt::format(
              "there are {} tokens for {}, and an operator who does not reach all populations makes no more when "
              "its own have",
              own, fmt::join(creator.populations, ", ")));
    }
  }
  const std::string secret = record.certificate.empty() ? NewSecret(context_.random) : "";
  record.id = NewTokenId(context_.random);
  record.hash = secret.empty() ? HashOfCertificate(record.certificate) : HashOfSecret(secret);
  record.creator = creator.name;
  ASSIGN_OR_RETURN(const TaskStore::CreateTokenResult result, context_.store.CreateToken(record));
  if (!IsWithin(result.token, creator)) {
    return absl::AlreadyExistsError("this request_id made a token that reaches beyond yours; choose another");
  }
  v1::CreateTokenResponse response;
  if (result.created) {
    Put(result.token, now);
    is_required_.store(true, std::memory_order_release);
    response.set_secret(secret);
    LogInfo("token {} of {} is made{}: {}, for {}", result.token.id, result.token.name, By(creator),
            RoleSet(result.token.roles).ToString(" and "),
            result.token.populations.empty() ? "all populations"
                                             : fmt::format("{}", fmt::join(result.token.populations, ", ")));
  }
  *response.mutable_token() = Show(result.token, ValidityOf(result.token, now) == Validity::kValid);
  return response;
}

absl::StatusOr<v1::ListTokensResponse> AccessControl::List(const v1::ListTokensRequest& request, const Identity& caller,
                                                           absl::Time now) {
  ASSIGN_OR_RETURN(const int page_size, PageSize(request.page_size(), context_.limits.page_size_max));
  v1::ListTokensResponse response;
  PageRoom room(context_.limits.page_bytes_max);
  for (auto it = records_.upper_bound(TokenId(request.page_token())); it != records_.end(); ++it) {
    if (!IsWithin(it->second, caller)) continue;
    v1::Token token = Show(it->second, ValidityOf(it->second, now) == Validity::kValid);
    if (response.tokens_size() == page_size || !room.Take(token)) {
      response.set_next_page_token(response.tokens().rbegin()->id());
      break;
    }
    *response.add_tokens() = std::move(token);
  }
  return response;
}

absl::StatusOr<v1::RevokeTokenResponse> AccessControl::Revoke(const v1::RevokeTokenRequest& request,
                                                              const Identity& caller, absl::Time now) {
  RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  const TokenId id(request.token());
  const auto known = records_.find(id);
  if (known == records_.end() || !IsWithin(known->second, caller)) {
    return absl::NotFoundError(fmt::format("there is no token \"{}\"", request.token().substr(0, 128)));
  }
  ASSIGN_OR_RETURN(const TokenRecord record, context_.store.RevokeToken({.token = id, .now = now}));
  if (ValidityOf(known->second, now) == Validity::kValid) {
    LogInfo("token {} of {} is revoked{}", id, record.name, By(caller));
  }
  // At once, before it is durable: nobody loses by that but the holder.
  Put(record, now);
  on_void_(id);
  v1::RevokeTokenResponse response;
  *response.mutable_token() = Show(record, false);
  return response;
}

absl::StatusOr<std::vector<TokenRecord>> ReadTokens(TaskStore& store) {
  std::vector<TokenRecord> tokens;
  TokenId after;
  do {
    ASSIGN_OR_RETURN(std::vector<TokenRecord> page,
                     store.ListTokens({.after = std::exchange(after, TokenId()), .limit = kPage}));
    if (static_cast<int>(page.size()) == kPage) after = page.back().id;
    for (TokenRecord& record : page) tokens.push_back(std::move(record));
  } while (!after.empty());
  return tokens;
}

absl::Status ReplaceTokens(TaskStore& store, const std::vector<TokenRecord>& tokens) {
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<TokenRecord> old, store.ListTokens({.limit = kPage}));
    if (old.empty()) break;
    for (const TokenRecord& token : old) RETURN_IF_ERROR(store.DeleteToken(token.id));
  }
  for (const TokenRecord& token : tokens) {
    RETURN_IF_ERROR(store.CreateToken(token).status());
    if (token.revoke_time == absl::InfiniteFuture()) continue;
    RETURN_IF_ERROR(store.RevokeToken({.token = token.id, .now = token.revoke_time}).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CreateOperatorToken(TaskStore& store, Random& random, absl::Time now) {
  const std::string secret = NewSecret(random);
  RETURN_IF_ERROR(store.BeginBatch());
  const absl::Status created = store
                                   .CreateToken({.id = NewTokenId(random),
                                                 .request_id = random.Token(26),
                                                 .name = "operator",
                                                 .hash = HashOfSecret(secret),
                                                 .roles = RoleSet{v1::OPERATOR}.bits(),
                                                 .create_time = now})
                                   .status();
  if (!created.ok()) {
    store.RollbackBatch();
    return created;
  }
  RETURN_IF_ERROR(store.CommitBatch());
  return secret;
}

}  // namespace sheaf
