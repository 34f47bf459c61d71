// VerifyStore: whether a store holds what it promises, law by law. Reads only, while a server runs too.
//
//   ASSIGN_OR_RETURN(StoreReport report, VerifyStore(directory, scratch));
//   if (!report.holds()) return absl::DataLossError("the store does not hold what it promises");
//
// The laws are those of conservation (every task is in one state, every accepted contribution is folded or waits in the
// spool), and that database and payload files agree. What a crash leaves, and the next start deletes, breaks none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/sql/sql_connection.h"

namespace sheaf {

struct Law {
  std::string name;
  // The sums over all rounds, where the law has some: "120 = 96 + 0 + 4 + 0 + 20".
  std::string sums;
  // Rounds, rows or files looked at.
  int64_t num_checked = 0;
  // One sentence each, naming the round, row or file.
  std::vector<std::string> violations;
};

struct StoreReport {
  std::vector<Law> laws;
  // Worth knowing, and no violation.
  std::vector<std::string> notes;

  bool holds() const;
};

// A copy of the database is made in `scratch`, a directory of the caller's. NOT_FOUND if `directory` is no store;
// FAILED_PRECONDITION if a newer build wrote it. Damage is not an error but a violation.
absl::StatusOr<StoreReport> VerifyStore(const std::string& directory, const std::string& scratch);

// The laws of the database alone.
absl::StatusOr<std::vector<Law>> VerifyDatabase(SqlConnection& connection);

}  // namespace sheaf
