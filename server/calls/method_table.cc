#include "server/calls/method_table.h"

#include <utility>

#include "base/check.h"

namespace sheaf {

MethodTable::MethodTable(std::vector<MethodRow> rows) : rows_(std::move(rows)) {
  for (const MethodRow& row : rows_) {
    const bool is_new = by_name_.emplace(row.name, &row).second;
    SHEAF_CHECK(is_new, "two rows for the method {}", row.name);
  }
}

const MethodRow* MethodTable::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

}  // namespace sheaf
