// PostgresValues: the values of one statement, in the binary format of the wire. They are copied: a statement may wait
// in a flight until long after whoever queued it has returned.
//
//   PostgresValues().Add(key).Add(SqlBlob(bytes)).AddInts(keys).AddBytes(names)
//
// Two types suffice: bigint, and bytea for all bytes and all text (docs/adr/0032). A list is one value, an array of
// either; `unnest` makes rows of it. A third is tid, by which a page is named.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/sql/sql_connection.h"

namespace sheaf {

// The tid that no row of this page of a table is before.
struct PostgresPage {
  uint32_t number = 0;
};

class PostgresValues {
 public:
  PostgresValues& Add(int64_t number);
  PostgresValues& Add(SqlText text) { return AddOne(kBytes, text.value); }
  PostgresValues& Add(SqlBlob blob) { return AddOne(kBytes, blob.value); }
  // Of the type that the statement asks for.
  PostgresValues& Add(SqlNull);
  PostgresValues& Add(const SqlValue& value);
  PostgresValues& Add(PostgresPage page);
  PostgresValues& AddPages(std::span<const PostgresPage> pages);
  PostgresValues& AddInts(std::span<const int64_t> numbers);
  PostgresValues& AddInts(std::span<const std::optional<int64_t>> numbers);
  PostgresValues& AddBytes(std::span<const std::string_view> values);
  PostgresValues& AddBytes(std::span<const std::optional<std::string_view>> values);

  size_t size() const { return types_.size(); }
  size_t num_bytes() const { return bytes_.size(); }
  // As libpq wants them, one of each per value. An address is null for NULL.
  const std::vector<unsigned>& types() const { return types_; }
  std::vector<const char*> Addresses() const;
  std::vector<int> Lengths() const;

 private:
  // Numbers of PostgreSQL's own types, the same in every database.
  static constexpr unsigned kAny = 0;
  static constexpr unsigned kBytes = 17;
  static constexpr unsigned kInt = 20;
  static constexpr unsigned kTid = 27;
  static constexpr unsigned kTids = 1010;
  static constexpr uint32_t kTidBytes = 6;
  static constexpr unsigned kInts = 1016;
  static constexpr unsigned kListOfBytes = 1001;

  PostgresValues& AddOne(unsigned type, std::string_view bytes);
  void BeginArray(unsigned type, unsigned element, size_t size, bool has_nulls);
  void AppendInt32(uint32_t value);
  void AppendInt64(uint64_t value);
  void AppendElement(std::string_view bytes);
  void AppendPage(PostgresPage page);

  std::string bytes_;
  std::vector<unsigned> types_;
  // Of each value, where it begins; it ends where the next one begins.
  std::vector<size_t> begins_;
};

}  // namespace sheaf
