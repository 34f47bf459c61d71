// Tokens.
#include <algorithm>

#include "base/check.h"
#include "storage/arguments.h"
#include "storage/memory/memory_task_store.h"

namespace sheaf {

absl::StatusOr<TaskStore::CreateTokenResult> MemoryTaskStore::CreateToken(const TokenRecord& token) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  if (absl::Status status = CheckArguments(token); !status.ok()) return status;
  for (const auto& [id, earlier] : tokens_) {
    if (earlier.request_id == token.request_id) return CreateTokenResult{.token = earlier, .created = false};
  }
  for (const auto& [id, other] : tokens_) {
    if (other.id == token.id || other.hash == token.hash) return TokenIsTaken(token);
  }
  const TokenRecord& created = tokens_[token.id] = FreshToken(token);
  undo_.push_back([this, id = token.id] { tokens_.erase(id); });
  return CreateTokenResult{.token = created, .created = true};
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
  undo_.push_back([this, image = found->second] { tokens_[image.id] = image; });
  tokens_.erase(found);
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
