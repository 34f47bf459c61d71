#include "storage/postgres/postgres_token_watch.h"

#include <map>

#include "base/status_macros.h"
#include "storage/postgres/postgres_migrations.h"
#include "storage/sql/token_columns.h"

namespace sheaf {

absl::StatusOr<std::unique_ptr<PostgresTokenWatch>> PostgresTokenWatch::Open(
    const PostgresConnection::Options& options) {
  ASSIGN_OR_RETURN(auto connection, PostgresConnection::Open(options));
  return std::unique_ptr<PostgresTokenWatch>(new PostgresTokenWatch(std::move(connection)));
}

absl::StatusOr<std::optional<std::vector<TokenRecord>>> PostgresTokenWatch::Look() {
  if (!connection_->is_connected()) RETURN_IF_ERROR(connection_->Connect());
  std::string digest;
  // Nothing else of a token ever changes.
  RETURN_IF_ERROR(connection_->Run({.sql = R"(-- token_digest
      SELECT coalesce(md5(string_agg(id || int8send(revoke_time), ''::bytea ORDER BY id)), ''),
             (SELECT version FROM schema)
        FROM tokens)",
                                    .on_row = [&](const SqlRow& row) {
                                      digest = row.String(0);
                                      has_own_schema_ = row.Int(1) == PostgresMigrations().back().version;
                                    }}));
  if (digest_ == digest) return std::nullopt;
  std::map<std::string, TokenRecord> tokens;
  // Each statement sees what is committed when it begins. Tokens that were made in between have only populations here,
  // and come with the next look; one whose populations have gone in between was long void.
  connection_->Queue({.sql = R"(-- watch_tokens
      SELECT id, request_id, name, hash, certificate, roles, creator, create_time, expire_time, revoke_time
        FROM tokens)",
                      .on_row = [&](const SqlRow& row) {
                        TokenRecord token = ReadToken(row);
                        tokens[token.id.value()] = std::move(token);
                      }});
  connection_->Queue({.sql = R"(-- watch_token_populations
      SELECT token_id, population FROM token_populations ORDER BY token_id, population)",
                      .on_row = [&](const SqlRow& row) {
                        const auto token = tokens.find(row.String(0));
                        if (token != tokens.end()) token->second.populations.push_back(row.String(1));
                      }});
  RETURN_IF_ERROR(connection_->Fly());
  digest_ = std::move(digest);
  std::vector<TokenRecord> all;
  for (auto& [id, token] : tokens) all.push_back(std::move(token));
  return all;
}

}  // namespace sheaf
