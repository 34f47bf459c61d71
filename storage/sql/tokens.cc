// Tokens.
#include <algorithm>

#include "base/status_macros.h"
#include "storage/arguments.h"
#include "storage/sql/sql_task_store.h"
#include "storage/sql/token_columns.h"

namespace sheaf {

TokenRecord ReadToken(const SqlRow& row) {
  return {.id = TokenId(row.Bytes(0)),
          .request_id = row.String(1),
          .name = row.String(2),
          .hash = row.String(3),
          .certificate = row.String(4),
          .roles = row.Int(5),
          .creator = row.String(6),
          .create_time = row.Time(7),
          .expire_time = row.Time(8),
          .revoke_time = row.Time(9)};
}

absl::StatusOr<std::vector<std::string>> SqlTaskStore::PopulationsOf(const TokenId& id) {
  std::vector<std::string> populations;
  RETURN_IF_ERROR(Run("-- list_token_populations\nSELECT population FROM token_populations WHERE token_id = ? "
                      "ORDER BY population",
                      {SqlText(id.value())}, [&](const SqlRow& row) { populations.push_back(row.String(0)); })
                      .status());
  return populations;
}

absl::StatusOr<TaskStore::CreateTokenResult> SqlTaskStore::CreateToken(const TokenRecord& token) {
  RETURN_IF_ERROR(CheckArguments(token));
  std::optional<TokenRecord> earlier;
  RETURN_IF_ERROR(Run(R"(-- find_token
      SELECT id, request_id, name, hash, certificate, roles, creator, create_time, expire_time, revoke_time
        FROM tokens WHERE request_id = ? OR id = ? OR hash = ?)",
                      {SqlText(token.request_id), SqlText(token.id.value()), SqlText(token.hash)},
                      [&](const SqlRow& row) {
                        if (!earlier || row.Bytes(1) == token.request_id) earlier = ReadToken(row);
                      })
                      .status());
  if (earlier && earlier->request_id != token.request_id) return TokenIsTaken(token);
  if (earlier) {
    ASSIGN_OR_RETURN(earlier->populations, PopulationsOf(earlier->id));
    return CreateTokenResult{.token = *std::move(earlier), .created = false};
  }
  const TokenRecord fresh = FreshToken(token);
  RETURN_IF_ERROR(Change(1, R"(-- create_token
      INSERT INTO tokens (id, request_id, name, hash, certificate, roles, creator, create_time, expire_time,
                          revoke_time)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?))",
                         {SqlText(fresh.id.value()), SqlText(fresh.request_id), SqlText(fresh.name),
                          SqlText(fresh.hash), SqlText(fresh.certificate), fresh.roles, SqlText(fresh.creator),
                          ToSql(fresh.create_time), ToSql(fresh.expire_time), ToSql(fresh.revoke_time)}));
  for (const std::string& population : fresh.populations) {
    RETURN_IF_ERROR(
        Change(1, "-- create_token_population\nINSERT INTO token_populations (token_id, population) VALUES (?, ?)",
               {SqlText(fresh.id.value()), SqlText(population)}));
  }
  return CreateTokenResult{.token = fresh, .created = true};
}

absl::StatusOr<TokenRecord> SqlTaskStore::FindToken(const TokenId& id) {
  std::optional<TokenRecord> token;
  RETURN_IF_ERROR(Run(R"(-- get_token
      SELECT id, request_id, name, hash, certificate, roles, creator, create_time, expire_time, revoke_time
        FROM tokens WHERE id = ?)",
                      {SqlText(id.value())}, [&](const SqlRow& row) { token = ReadToken(row); })
                      .status());
  if (!token) return NoSuchToken(id);
  ASSIGN_OR_RETURN(token->populations, PopulationsOf(id));
  return *std::move(token);
}

absl::StatusOr<TokenRecord> SqlTaskStore::RevokeToken(const RevokeTokenParams& params) {
  ASSIGN_OR_RETURN(TokenRecord token, FindToken(params.token));
  if (token.revoke_time != absl::InfiniteFuture()) return token;
  token.revoke_time = params.now;
  RETURN_IF_ERROR(Change(1, "-- revoke_token\nUPDATE tokens SET revoke_time = ? WHERE id = ? AND revoke_time = ?",
                         {ToSql(params.now), SqlText(params.token.value()), ToSql(absl::InfiniteFuture())}));
  return token;
}

absl::Status SqlTaskStore::DeleteToken(const TokenId& id) {
  ASSIGN_OR_RETURN(const TokenRecord token, FindToken(id));
  RETURN_IF_ERROR(Change(static_cast<int64_t>(token.populations.size()),
                         "-- delete_token_populations\nDELETE FROM token_populations WHERE token_id = ?",
                         {SqlText(id.value())}));
  return Change(1, "-- delete_token\nDELETE FROM tokens WHERE id = ?", {SqlText(id.value())});
}

absl::StatusOr<std::vector<TokenRecord>> SqlTaskStore::ListTokens(const ListTokensParams& params) {
  std::vector<TokenRecord> tokens;
  RETURN_IF_ERROR(Run(R"(-- list_tokens
      SELECT id, request_id, name, hash, certificate, roles, creator, create_time, expire_time, revoke_time
        FROM tokens WHERE id > ? ORDER BY id LIMIT ?)",
                      {SqlText(params.after.value()), int64_t{std::max(params.limit, 0)}},
                      [&](const SqlRow& row) { tokens.push_back(ReadToken(row)); })
                      .status());
  if (tokens.empty()) return tokens;
  // In the same order, and none of a token that is not there.
  auto token = tokens.begin();
  RETURN_IF_ERROR(Run(R"(-- list_tokens_populations
      SELECT token_id, population FROM token_populations WHERE token_id >= ? AND token_id <= ?
       ORDER BY token_id, population)",
                      {SqlText(tokens.front().id.value()), SqlText(tokens.back().id.value())},
                      [&](const SqlRow& row) {
                        while (token != tokens.end() && token->id.value() != row.Bytes(0)) ++token;
                        if (token != tokens.end()) token->populations.push_back(row.String(1));
                      })
                      .status());
  return tokens;
}

}  // namespace sheaf
