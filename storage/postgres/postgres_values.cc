#include "storage/postgres/postgres_values.h"

#include <variant>

namespace sheaf {

// The wire's order of bytes is the network's.
void PostgresValues::AppendInt32(uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes_.push_back(static_cast<char>(value >> shift));
}

void PostgresValues::AppendInt64(uint64_t value) {
  AppendInt32(static_cast<uint32_t>(value >> 32));
  AppendInt32(static_cast<uint32_t>(value));
}

void PostgresValues::AppendElement(std::string_view bytes) {
  AppendInt32(static_cast<uint32_t>(bytes.size()));
  bytes_.append(bytes);
}

PostgresValues& PostgresValues::AddOne(unsigned type, std::string_view bytes) {
  begins_.push_back(bytes_.size());
  types_.push_back(type);
  bytes_.append(bytes);
  return *this;
}

PostgresValues& PostgresValues::Add(int64_t number) {
  AddOne(kInt, {});
  AppendInt64(static_cast<uint64_t>(number));
  return *this;
}

// A page in four bytes, and a row's number on it in two, from 1.
void PostgresValues::AppendPage(PostgresPage page) {
  AppendInt32(page.number);
  bytes_.append(2, '\0');
}

PostgresValues& PostgresValues::Add(PostgresPage page) {
  AddOne(kTid, {});
  AppendPage(page);
  return *this;
}

PostgresValues& PostgresValues::AddPages(std::span<const PostgresPage> pages) {
  BeginArray(kTids, kTid, pages.size(), false);
  for (const PostgresPage page : pages) {
    AppendInt32(kTidBytes);
    AppendPage(page);
  }
  return *this;
}

PostgresValues& PostgresValues::Add(SqlNull) { return AddOne(kAny, {}); }

PostgresValues& PostgresValues::Add(const SqlValue& value) {
  return std::visit([this](const auto& one) -> PostgresValues& { return Add(one); }, value);
}

// An array has a header (dimensions, whether there are nulls, type of its elements, and of the one dimension size and
// first index), and of each element length and bytes; a null has length -1.
void PostgresValues::BeginArray(unsigned type, unsigned element, size_t size, bool has_nulls) {
  AddOne(type, {});
  AppendInt32(1);
  AppendInt32(has_nulls ? 1 : 0);
  AppendInt32(element);
  AppendInt32(static_cast<uint32_t>(size));
  AppendInt32(1);
}

PostgresValues& PostgresValues::AddInts(std::span<const int64_t> numbers) {
  BeginArray(kInts, kInt, numbers.size(), false);
  for (const int64_t number : numbers) {
    AppendInt32(sizeof number);
    AppendInt64(static_cast<uint64_t>(number));
  }
  return *this;
}

PostgresValues& PostgresValues::AddInts(std::span<const std::optional<int64_t>> numbers) {
  BeginArray(kInts, kInt, numbers.size(), true);
  for (const std::optional<int64_t>& number : numbers) {
    AppendInt32(number ? sizeof *number : UINT32_MAX);
    if (number) AppendInt64(static_cast<uint64_t>(*number));
  }
  return *this;
}

PostgresValues& PostgresValues::AddBytes(std::span<const std::string_view> values) {
  BeginArray(kListOfBytes, kBytes, values.size(), false);
  for (const std::string_view value : values) AppendElement(value);
  return *this;
}

PostgresValues& PostgresValues::AddBytes(std::span<const std::optional<std::string_view>> values) {
  BeginArray(kListOfBytes, kBytes, values.size(), true);
  for (const std::optional<std::string_view>& value : values) {
    if (value) {
      AppendElement(*value);
    } else {
      AppendInt32(UINT32_MAX);
    }
  }
  return *this;
}

std::vector<const char*> PostgresValues::Addresses() const {
  std::vector<const char*> addresses;
  addresses.reserve(size());
  for (size_t i = 0; i < size(); ++i) {
    addresses.push_back(types_[i] == kAny ? nullptr : bytes_.data() + begins_[i]);
  }
  return addresses;
}

std::vector<int> PostgresValues::Lengths() const {
  std::vector<int> lengths;
  lengths.reserve(size());
  for (size_t i = 0; i < size(); ++i) {
    const size_t end = i + 1 < size() ? begins_[i + 1] : bytes_.size();
    lengths.push_back(static_cast<int>(end - begins_[i]));
  }
  return lengths;
}

}  // namespace sheaf
