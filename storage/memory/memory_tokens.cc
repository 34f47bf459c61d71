// Tokens.
#include <algorithm>

#include "base/check.h"
#include "storage/arguments.h"
#include "storage/memory/memory_task_store.h"

namespace sheaf {

absl::StatusOr<TaskStore::CreateTokenResult> MemoryTaskStore::CreateToken(const TokenRecord& token) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  if (absl::Status status = CheckArguments(token); !status.ok()) return status;
  if (const auto earlier = token_requests_.find(token.request_id); earlier != token_requests_.end()) {
    return CreateTokenResult{.token = tokens_.at(earlier->second), .created = false};
  }
  if (tokens_.contains(token.id) || token_hashes_.contains(token.hash)) return TokenIsTaken(token);
  const TokenRecord created = FreshToken(token);
  PutToken(created);
  undo_.push_back([this, id = token.id] { EraseToken(id); });
  return CreateTokenResult{.token = created, .created = true};
}

void MemoryTaskStore::PutToken(const TokenRecord& token) {
  tokens_[token.id] = token;
  token_requests_[token.request_id] = token.id;
  token_hashes_.insert(token.hash);
}

void MemoryTaskStore::EraseToken(const TokenId& id) {
  const auto found = tokens_.find(id);
  token_requests_.erase(found->second.request_id);
  token_hashes_.erase(found->second.hash);
  tokens_.erase(found);
}

absl::StatusOr<TokenRecord> MemoryTaskStore::RevokeToken(const RevokeTokenParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  const auto found = tokens_.find(params.token);
  if (found == tokens_.end()) return NoSuchToken(params.token);
  TokenRecord& token = found->second;
  if (token.revoke_time == absl::InfiniteFuture()) {
    undo_.push_back([this, id = params.token] { tokens_.at(id).revoke_time = absl::InfiniteFuture(); });
    token.revoke_time = params.now;
  }
  return token;
}

absl::Status MemoryTaskStore::DeleteToken(const TokenId& id) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  const auto found = tokens_.find(id);
  if (found == tokens_.end()) return NoSuchToken(id);
  undo_.push_back([this, image = found->second] { PutToken(image); });
  EraseToken(id);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TokenRecord>> MemoryTaskStore::ListTokens(const ListTokensParams& params) {
  std::vector<TokenRecord> page;
  for (auto it = tokens_.upper_bound(params.after); it != tokens_.end() && static_cast<int>(page.size()) < params.limit;
       ++it) {
    page.push_back(it->second);
  }
  return page;
}

}  // namespace sheaf
