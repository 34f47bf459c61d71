#include "storage/postgres/postgres_error.h"

#include <fmt/format.h>

namespace sheaf {
namespace {

struct Meaning {
  // Of the SQLSTATE: five characters, or two for all of their class.
  std::string_view begin;
  absl::StatusCode code;
  std::string_view advice;
};

// The first that fits.
constexpr Meaning kMeanings[] = {
    {"53100", absl::StatusCode::kResourceExhausted, "free some space where the database lies"},
    {"53300", absl::StatusCode::kUnavailable, "raise its max_connections, or end others"},
    {"53400", absl::StatusCode::kUnavailable, ""},
    {"53", absl::StatusCode::kResourceExhausted, ""},
    {"08", absl::StatusCode::kUnavailable, ""},
    {"57", absl::StatusCode::kUnavailable, ""},
    {"40", absl::StatusCode::kUnavailable, ""},
    {"55P03", absl::StatusCode::kUnavailable, ""},
    {"25006", absl::StatusCode::kUnavailable,
     "it is a standby; with several hosts, target_session_attrs=read-write finds the primary"},
    {"23", absl::StatusCode::kDataLoss, ""},
    {"XX001", absl::StatusCode::kDataLoss, "restore the database from a backup"},
    {"XX002", absl::StatusCode::kDataLoss, "its index is damaged: REINDEX, and look for what damaged it"},
    {"58P01", absl::StatusCode::kDataLoss, "restore the database from a backup"},
    {"28", absl::StatusCode::kPermissionDenied, "see its pg_hba.conf, and the user and password of the connection"},
    {"42501", absl::StatusCode::kPermissionDenied, "the role must own what it writes to"},
    {"3D000", absl::StatusCode::kFailedPrecondition, "create it with createdb"},
};

}  // namespace

absl::Status PostgresError(std::string_view sqlstate, std::string_view message) {
  if (sqlstate.empty()) return absl::UnavailableError(std::string(message));
  for (const Meaning& meaning : kMeanings) {
    if (!sqlstate.starts_with(meaning.begin)) continue;
    const std::string_view colon = meaning.advice.empty() ? "" : "; ";
    return {meaning.code, fmt::format("{} (SQLSTATE {}){}{}", message, sqlstate, colon, meaning.advice)};
  }
  return absl::InternalError(fmt::format("{} (SQLSTATE {})", message, sqlstate));
}

}  // namespace sheaf
