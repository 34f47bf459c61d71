#include "storage/postgres/table_copy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>

#include "base/checksum.h"
#include "base/status_macros.h"
#include "storage/postgres/postgres_values.h"

namespace sheaf {
namespace {

constexpr size_t kRowsMax = 1000;
constexpr size_t kBytesMax = 1 << 20;
// The database reads so many rows to answer once.
constexpr int64_t kHashesMax = 500;

// Big-endian, as int8send writes it.
void AddNumber(int64_t number, Sha256& hash) {
  char bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(static_cast<uint64_t>(number) >> (56 - 8 * i));
  hash.Update({bytes, sizeof bytes});
}

constexpr std::string_view kNull("\0", 1);
constexpr std::string_view kValue("\1", 1);

}  // namespace

// Some rows, column by column.
class TableCopy::Rows {
 public:
  explicit Rows(const std::vector<Column>& columns)
      : columns_(columns), numbers_(columns.size()), texts_(columns.size()) {}

  void Add(const SqlRow& row) {
    for (size_t i = 0; i < columns_.size(); ++i) {
      const int place = static_cast<int>(i);
      if (columns_[i].is_bytes) {
        std::optional<std::string>& text = texts_[i].emplace_back();
        if (!row.IsNull(place)) text = row.String(place);
        num_bytes_ += text.has_value() ? text->size() : 0;
      } else {
        std::optional<int64_t>& number = numbers_[i].emplace_back();
        if (!row.IsNull(place)) number = row.Int(place);
        num_bytes_ += sizeof(int64_t);
      }
    }
    ++num_rows_;
  }
  void Clear() { *this = Rows(columns_); }
  bool is_empty() const { return num_rows_ == 0; }
  bool is_full() const { return num_rows_ >= kRowsMax || num_bytes_ >= kBytesMax; }

  PostgresValues Values() const {
    PostgresValues values;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (!columns_[i].is_bytes) {
        values.AddInts(numbers_[i]);
        continue;
      }
      std::vector<std::optional<std::string_view>> views(texts_[i].begin(), texts_[i].end());
      values.AddBytes(views);
    }
    return values;
  }

 private:
  std::vector<Column> columns_;
  // Of each column one of both.
  std::vector<std::vector<std::optional<int64_t>>> numbers_;
  std::vector<std::vector<std::optional<std::string>>> texts_;
  size_t num_rows_ = 0;
  size_t num_bytes_ = 0;
};

// What the database has, hashed row by row in the order of the keys.
class TableCopy::Hashes {
 public:
  explicit Hashes(const TableCopy& table) : table_(table) {
    std::vector<std::string> parts;
    for (const Column& column : table.columns_) {
      const std::string bytes = column.is_bytes ? fmt::format("int8send(length({0})::bigint) || {0}", column.name)
                                                : fmt::format("int8send({}::bigint)", column.name);
      parts.push_back(fmt::format("coalesce('\\x01'::bytea || {}, '\\x00'::bytea)", bytes));
    }
    std::vector<std::string> keys;
    std::vector<std::string> places;
    for (const size_t place : table.key_) {
      keys.push_back(table.columns_[place].name);
      places.push_back(fmt::format("${}", keys.size()));
    }
    select_ = fmt::format("-- hash_{0}\nSELECT encode(sha256({1}), 'hex'), {2}\nFROM {0}", table.table_,
                          fmt::join(parts, "\n|| "), fmt::join(keys, ", "));
    after_ = fmt::format("\nWHERE ({}) > ({})", fmt::join(keys, ", "), fmt::join(places, ", "));
    order_ = fmt::format("\nORDER BY {} LIMIT {}", fmt::join(keys, ", "), kHashesMax);
  }

  // Nothing behind the last.
  absl::StatusOr<std::optional<std::string>> Next() {
    if (read_.empty() && !is_end_) RETURN_IF_ERROR(Read());
    if (read_.empty()) return std::nullopt;
    std::string hash = std::move(read_.front());
    read_.pop_front();
    return hash;
  }

 private:
  absl::Status Read() {
    const bool is_first = last_.size() == 0;
    PostgresValues last = std::exchange(last_, {});
    int64_t num_rows = 0;
    RETURN_IF_ERROR(table_.to_->Run({.sql = select_ + (is_first ? "" : after_) + order_,
                                     .values = std::move(last),
                                     .on_row = [&](const SqlRow& row) {
                                       read_.push_back(row.String(0));
                                       if (++num_rows == kHashesMax) last_ = KeyIn(row);
                                     }}));
    is_end_ = num_rows < kHashesMax;
    return absl::OkStatus();
  }
  PostgresValues KeyIn(const SqlRow& row) const {
    PostgresValues key;
    for (size_t i = 0; i < table_.key_.size(); ++i) {
      const int place = static_cast<int>(i) + 1;
      if (table_.columns_[table_.key_[i]].is_bytes) {
        key.Add(SqlBlob(row.Bytes(place)));
      } else {
        key.Add(row.Int(place));
      }
    }
    return key;
  }

  const TableCopy& table_;
  std::string select_;
  std::string after_;
  std::string order_;
  std::deque<std::string> read_;
  // The key of the last that was read; nothing before the first.
  PostgresValues last_;
  bool is_end_ = false;
};

absl::StatusOr<std::vector<std::string>> TableCopy::ListTables(SqlConnection& from) {
  std::vector<std::string> tables;
  RETURN_IF_ERROR(from.Execute("-- list_tables\nSELECT name FROM sqlite_master WHERE type = 'table' AND name <> "
                               "'schema' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
                               {}, [&](const SqlRow& row) { tables.push_back(row.String(0)); })
                      .status());
  return tables;
}

absl::StatusOr<TableCopy> TableCopy::Open(SqlConnection& from, PostgresConnection& to, const std::string& table) {
  TableCopy copy(from, to, table);
  RETURN_IF_ERROR(copy.ReadColumns());
  return copy;
}

absl::Status TableCopy::ReadColumns() {
  std::vector<std::pair<int64_t, size_t>> key;
  RETURN_IF_ERROR(to_->Run({.sql = R"(-- list_columns
      SELECT a.attname::text, a.atttypid = 'bytea'::regtype,
             coalesce(array_position(i.indkey::smallint[], a.attnum), -1)::bigint
        FROM pg_attribute a
        LEFT JOIN pg_index i ON i.indexrelid = (SELECT k.indexrelid FROM pg_index k WHERE k.indrelid = a.attrelid
                                                 ORDER BY k.indisprimary DESC, k.indexrelid LIMIT 1)
       WHERE a.attrelid = to_regclass(convert_from($1, 'UTF8')) AND a.attnum > 0 AND NOT a.attisdropped
       ORDER BY a.attnum)",
                            .values = PostgresValues().Add(SqlText(table_)),
                            .on_row = [&](const SqlRow& row) {
                              if (row.Int(2) >= 0) key.emplace_back(row.Int(2), columns_.size());
                              columns_.push_back({.name = row.String(0), .is_bytes = row.Int(1) != 0});
                            }}));
  std::sort(key.begin(), key.end());
  for (const auto& [number, place] : key) key_.push_back(place);

  std::vector<std::string> names;
  for (const Column& column : columns_) names.push_back(column.name);
  std::vector<std::string> others;
  RETURN_IF_ERROR(from_
                      ->Execute(fmt::format("-- list_columns\nSELECT name FROM pragma_table_info('{}')", table_), {},
                                [&](const SqlRow& row) { others.push_back(row.String(0)); })
                      .status());
  select_ = fmt::format("-- copy_{0}\nSELECT {1} FROM {0} ORDER BY ", table_, fmt::join(names, ", "));
  for (const size_t place : key_) select_ += (place == key_.front() ? "" : ", ") + columns_[place].name;
  std::sort(names.begin(), names.end());
  std::sort(others.begin(), others.end());
  if (names == others && !key_.empty()) return absl::OkStatus();
  return absl::InternalError(fmt::format("table {} has the columns {} on SQLite, and {} on PostgreSQL", table_,
                                         fmt::join(others, ", "), fmt::join(names, ", ")));
}

absl::Status TableCopy::Write() {
  Rows rows(columns_);
  absl::Status status;
  RETURN_IF_ERROR(from_
                      ->Execute(select_, {},
                                [&](const SqlRow& row) {
                                  if (!status.ok()) return;
                                  rows.Add(row);
                                  if (!rows.is_full()) return;
                                  status = Insert(rows);
                                  rows.Clear();
                                })
                      .status());
  RETURN_IF_ERROR(status);
  return rows.is_empty() ? absl::OkStatus() : Insert(rows);
}

absl::Status TableCopy::Insert(const Rows& rows) {
  std::vector<std::string> names;
  std::vector<std::string> places;
  for (const Column& column : columns_) {
    names.push_back(column.name);
    places.push_back(fmt::format("${}", names.size()));
  }
  return to_->Run({.sql = fmt::format("-- copy_{0}\nINSERT INTO {0} ({1}) SELECT * FROM unnest({2})", table_,
                                      fmt::join(names, ", "), fmt::join(places, ", ")),
                   .values = rows.Values()});
}

std::string TableCopy::HashOf(const SqlRow& row) const {
  Sha256 hash;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const int place = static_cast<int>(i);
    hash.Update(row.IsNull(place) ? kNull : kValue);
    if (row.IsNull(place)) continue;
    if (columns_[i].is_bytes) {
      AddNumber(static_cast<int64_t>(row.Bytes(place).size()), hash);
      hash.Update(row.Bytes(place));
    } else {
      AddNumber(row.Int(place), hash);
    }
  }
  return std::move(hash).Hex();
}

std::string TableCopy::KeyOf(const SqlRow& row) const {
  std::vector<std::string> values;
  for (const size_t place : key_) {
    const int column = static_cast<int>(place);
    values.push_back(columns_[place].is_bytes ? row.String(column) : fmt::format("{}", row.Int(column)));
  }
  return fmt::format("{}", fmt::join(values, ", "));
}

absl::StatusOr<CopiedTable> TableCopy::Verify() {
  CopiedTable copied{.name = table_};
  Hashes hashes(*this);
  Sha256 all;
  absl::Status status;
  RETURN_IF_ERROR(from_
                      ->Execute(select_, {},
                                [&](const SqlRow& row) {
                                  if (!status.ok()) return;
                                  const std::string expected = HashOf(row);
                                  const absl::StatusOr<std::optional<std::string>> found = hashes.Next();
                                  status = found.status();
                                  if (!status.ok()) return;
                                  if (*found != expected) {
                                    status = absl::DataLossError(
                                        fmt::format("{}: the row {} of table {} is not what was copied", to_->name(),
                                                    KeyOf(row), table_));
                                  }
                                  all.Update(expected);
                                  ++copied.num_rows;
                                })
                      .status());
  RETURN_IF_ERROR(status);
  ASSIGN_OR_RETURN(const std::optional<std::string> more, hashes.Next());
  if (more.has_value()) {
    return absl::DataLossError(
        fmt::format("{}: table {} has rows behind the {} that were copied", to_->name(), table_, copied.num_rows));
  }
  copied.digest = std::move(all).Hex();
  return copied;
}

}  // namespace sheaf
