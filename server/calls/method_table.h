// MethodTable: the rows of all methods that a server answers, by name.
//
//   const MethodTable methods(MethodRows(handlers));
//   const MethodRow* sync = methods.Find("sheaf.v1.WorkService/Sync");
//
// Owns the rows, which refer to their handlers. Nothing changes it once it is made, so that it is thread-safe.
#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/calls/method_row.h"

namespace sheaf {

class MethodTable {
 public:
  // CHECKs that no two have the same name.
  explicit MethodTable(std::vector<MethodRow> rows);
  // Others hold rows of it.
  MethodTable(const MethodTable&) = delete;
  MethodTable& operator=(const MethodTable&) = delete;

  // Null if there is no such method.
  const MethodRow* Find(std::string_view name) const;

  // In the order in which they were given: those of one service stand together.
  const std::vector<MethodRow>& rows() const { return rows_; }

 private:
  const std::vector<MethodRow> rows_;
  std::unordered_map<std::string_view, const MethodRow*> by_name_;
};

}  // namespace sheaf
