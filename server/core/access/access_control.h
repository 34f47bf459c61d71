// AccessControl: who calls, and what they may do. Tokens live in the task store; here they are in memory, by the hash
// of their secrets, so that looking at one costs a hash and a look-up, in whatever thread the call arrived.
//
//   ASSIGN_OR_RETURN(IdentityPtr caller, access.Authenticate("Bearer sheaf_...", {}));
//   RETURN_IF_ERROR(caller->CheckRole("sheaf.v1.WorkService/Sync", {v1::WORKER}));
//   RETURN_IF_ERROR(caller->CheckPopulation("default"));
//
// As long as the store holds no token, and the server can be reached from this machine alone, everybody is everybody's
// equal: Authenticate gives Identity::Anybody, who may do everything. From the first token on nobody gets in without
// one, and that stays so: tokens of operators are never forgotten. Authenticate is thread-safe; everything else runs in
// the core's thread, inside a batch unless said otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/random.h"
#include "server/core/access/identity.h"
#include "server/core/batches/core_context.h"
#include "sheaf/v1/access_service.pb.h"
#include "storage/records.h"

namespace sheaf {

class AccessControl {
 public:
  explicit AccessControl(CoreContext& context) : context_(context) {}

  // Called when a token was revoked or expired.
  void set_on_void(std::function<void(const TokenId&)> on_void) { on_void_ = std::move(on_void); }

  // Reads the tokens. Once, before anything else, outside a batch. With `is_required` nobody gets in without a token,
  // even while there is none.
  absl::Status Recover(bool is_required, absl::Time now);
  // Reads the tokens again: somebody else wrote some. On error what is known goes on.
  // Those that were valid and are not, or no more, are told as void.
  absl::Status Reload(absl::Time now);
  // Nothing of the batch has happened.
  void OnRollback(absl::Time now);
  // Tokens that expire.
  void Tick(absl::Time now);
  absl::Time NextTick() const { return expiries_.empty() ? absl::InfiniteFuture() : expiries_.begin()->first; }
  // Forgets tokens that have long been void, but for those of operators.
  void Prune(absl::Time now);

  // From the value of the metadata `authorization` (empty: none), or the names in the certificate of the connection.
  // UNAUTHENTICATED, saying what is missing or void, never what was shown. Thread-safe.
  absl::StatusOr<IdentityPtr> Authenticate(std::string_view authorization,
                                           std::span<const std::string> certificate_names) const EXCLUDES(mutex_);
  bool is_required() const { return is_required_.load(std::memory_order_acquire); }
  // Some operator could come in.
  bool HasOperator(absl::Time now) const;

  // See AccessService.
  absl::StatusOr<v1::CreateTokenResponse> Create(const v1::CreateTokenRequest& request, const Identity& creator,
                                                 absl::Time now);
  absl::StatusOr<v1::ListTokensResponse> List(const v1::ListTokensRequest& request, const Identity& caller,
                                              absl::Time now);
  absl::StatusOr<v1::RevokeTokenResponse> Revoke(const v1::RevokeTokenRequest& request, const Identity& caller,
                                                 absl::Time now);

 private:
  enum class Validity { kValid, kRevoked, kExpired };
  struct Entry {
    IdentityPtr identity;
    Validity validity = Validity::kValid;
  };

  absl::Status Load(absl::Time now);
  void Put(const TokenRecord& record, absl::Time now);
  static Validity ValidityOf(const TokenRecord& record, absl::Time now);
  // Tokens that reach no more than `identity`, which does not reach all populations.
  int64_t NumWithin(const Identity& identity) const;

  CoreContext& context_;
  std::function<void(const TokenId&)> on_void_ = [](const TokenId&) {};
  bool is_required_always_ = false;
  std::atomic<bool> is_required_ = false;
  std::map<TokenId, TokenRecord> records_;
  // How many reach just these populations.
  std::map<std::vector<std::string>, int64_t> num_by_reach_;
  // Of those that are valid.
  std::set<std::pair<absl::Time, TokenId>> expiries_;
  mutable Mutex mutex_;
  // By the hash of the secret, or of the certificate's name.
  std::unordered_map<std::string, Entry> entries_ GUARDED_BY(mutex_);
};

// All of a store's.
absl::StatusOr<std::vector<TokenRecord>> ReadTokens(TaskStore& store);

// Makes the store's tokens these, which are another store's. Inside a batch. O(those and these).
absl::Status ReplaceTokens(TaskStore& store, const std::vector<TokenRecord>& tokens);

// A token of an operator, for all populations, made while no server runs: its secret. In no batch.
absl::StatusOr<std::string> CreateOperatorToken(TaskStore& store, Random& random, absl::Time now);

}  // namespace sheaf
