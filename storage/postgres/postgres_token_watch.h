// PostgresTokenWatch: the tokens of a store that another server owns, and its schema, for a server that lets callers in
// and sends their calls on.
//
//   ASSIGN_OR_RETURN(auto watch, PostgresTokenWatch::Open({.conninfo = "postgresql://db/sheaf"}));
//   ASSIGN_OR_RETURN(std::optional<std::vector<TokenRecord>> changed, watch->Look());    // Each second.
//
// Has a connection of its own, which writes nothing. A look is one round trip, and costs the database O(tokens). The
// codes of PostgresConnection: UNAVAILABLE while the database does not serve; the next look connects again. Not
// thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/postgres/postgres_connection.h"
#include "storage/records.h"

namespace sheaf {

class PostgresTokenWatch {
 public:
  // Of a database with its schema.
  static absl::StatusOr<std::unique_ptr<PostgresTokenWatch>> Open(const PostgresConnection::Options& options);

  // All tokens, in the order of their ids, if any is new, revoked or forgotten since the last look; at first, always.
  absl::StatusOr<std::optional<std::vector<TokenRecord>>> Look();

  // At the last look the schema was this build's own: neither older nor newer.
  bool has_own_schema() const { return has_own_schema_; }

 private:
  explicit PostgresTokenWatch(std::unique_ptr<PostgresConnection> connection) : connection_(std::move(connection)) {}

  const std::unique_ptr<PostgresConnection> connection_;
  // Of what was there at the last look.
  std::optional<std::string> digest_;
  bool has_own_schema_ = false;
};

}  // namespace sheaf
