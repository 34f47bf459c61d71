#include "storage/sql/sql_connection.h"

#include <fmt/format.h>

#include <limits>

#include "base/status_macros.h"

namespace sheaf {
namespace {
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
}  // namespace

int64_t ToSql(absl::Time time) { return time == absl::InfiniteFuture() ? kNever : absl::ToUnixNanos(time); }

absl::Time FromSql(int64_t nanos) { return nanos == kNever ? absl::InfiniteFuture() : absl::FromUnixNanos(nanos); }

absl::Status SqlConnection::Change(int64_t num_rows, std::string_view sql, std::initializer_list<SqlValue> values) {
  ASSIGN_OR_RETURN(const int64_t num_changed, Execute(sql, values));
  return num_changed == num_rows ? absl::OkStatus() : ChangedOtherwise(sql, num_rows);
}

absl::Status SqlConnection::ChangedOtherwise(std::string_view sql, int64_t num_rows) const {
  return absl::DataLossError(fmt::format("{} of {} did not change {} rows: the store contradicts itself",
                                         sql.substr(0, sql.find('\n')), name(), num_rows));
}

}  // namespace sheaf
