// ValueLists: the columns of many rows, as the values of one statement that makes rows of them again by unnest.
//
//   ValueLists lists;
//   for (const WorkerRecord& w : workers) lists.BeginRow().Add(w.name.value()).Add(w.num_leased);
//   const std::string sql = "-- put\nINSERT INTO t SELECT * FROM unnest($1, $2)";
//   session.Queue(lists.num_rows(), sql, lists.Values());
//
// All rows have the same columns. Bytes are viewed until Values. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "base/check.h"
#include "storage/postgres/postgres_values.h"

namespace sheaf {

class ValueLists {
 public:
  ValueLists& BeginRow() {
    SHEAF_CHECK(column_ == columns_.size(), "a row lacks columns");
    column_ = 0;
    ++num_rows_;
    return *this;
  }
  ValueLists& Add(int64_t number) { return Put(std::optional<int64_t>(number)); }
  // Nothing is NULL.
  ValueLists& AddOptional(std::optional<int64_t> number) { return Put(number); }
  ValueLists& AddOptional(std::optional<std::string_view> bytes) { return Put(bytes); }
  ValueLists& Add(std::string_view bytes) { return Put(std::optional<std::string_view>(bytes)); }
  ValueLists& Add(PostgresPage page) { return Put(page); }

  int64_t num_rows() const { return num_rows_; }
  bool empty() const { return num_rows_ == 0; }
  PostgresValues Values() const {
    SHEAF_CHECK(column_ == columns_.size(), "a row lacks columns");
    PostgresValues values;
    for (const Column& column : columns_) {
      if (const auto* numbers = std::get_if<Numbers>(&column)) values.AddInts(*numbers);
      if (const auto* texts = std::get_if<Texts>(&column)) values.AddBytes(*texts);
      if (const auto* pages = std::get_if<Pages>(&column)) values.AddPages(*pages);
    }
    return values;
  }

 private:
  using Numbers = std::vector<std::optional<int64_t>>;
  using Texts = std::vector<std::optional<std::string_view>>;
  using Pages = std::vector<PostgresPage>;
  using Column = std::variant<Numbers, Texts, Pages>;

  template <typename Value>
  ValueLists& Put(Value value) {
    if (column_ == columns_.size()) {
      SHEAF_CHECK(num_rows_ == 1, "a row has more columns than the first");
      columns_.emplace_back(std::vector<Value>());
    }
    std::get<std::vector<Value>>(columns_[column_++]).push_back(value);
    return *this;
  }

  std::vector<Column> columns_;
  size_t column_ = 0;
  int64_t num_rows_ = 0;
};

}  // namespace sheaf
