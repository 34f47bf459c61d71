#include "storage/sql/sql_connection.h"

#include <limits>

namespace sheaf {
namespace {
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
}  // namespace

int64_t ToSql(absl::Time time) { return time == absl::InfiniteFuture() ? kNever : absl::ToUnixNanos(time); }

absl::Time FromSql(int64_t nanos) { return nanos == kNever ? absl::InfiniteFuture() : absl::FromUnixNanos(nanos); }

}  // namespace sheaf
