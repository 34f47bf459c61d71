// StateWriter and StateReader: the little-endian bytes of serialised accumulators.
//
//   StateWriter out;                         StateReader in(bytes);
//   out.Put<int64_t>(n);                     ASSIGN_OR_RETURN(int64_t n, in.Get<int64_t>());
//
// A reader treats its bytes as untrusted: every read is bounds-checked, and callers ask `Has` before they allocate for
// a count that the bytes announce. DATA_LOSS when bytes are missing. Not thread-safe; a reader does not own its bytes.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sheaf {

static_assert(std::endian::native == std::endian::little, "tensors are read and written in place, little-endian");

class StateWriter {
 public:
  template <typename T>
  void Put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    bytes_.append(raw, sizeof(T));
  }
  template <typename T>
  void PutArray(const T* values, int64_t n) {
    bytes_.append(reinterpret_cast<const char*>(values), static_cast<size_t>(n) * sizeof(T));
  }
  void PutString(std::string_view text) {
    Put<int64_t>(static_cast<int64_t>(text.size()));
    bytes_.append(text);
  }
  std::string_view bytes() const { return bytes_; }
  std::string Take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class StateReader {
 public:
  explicit StateReader(std::string_view bytes) : bytes_(bytes) {}

  int64_t remaining() const { return static_cast<int64_t>(bytes_.size()); }
  // True if `n` items of `size` bytes each (size > 0) are still there. Cannot overflow.
  bool Has(int64_t n, int64_t size) const { return n >= 0 && n <= remaining() / size; }

  template <typename T>
  absl::StatusOr<T> Get() {
    T value;
    if (absl::Status status = GetArray(&value, 1); !status.ok()) return status;
    return value;
  }
  template <typename T>
  absl::Status GetArray(T* values, int64_t n) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (!Has(n, sizeof(T))) return Missing();
    if (n > 0) std::memcpy(values, bytes_.data(), static_cast<size_t>(n) * sizeof(T));
    bytes_.remove_prefix(static_cast<size_t>(n) * sizeof(T));
    return absl::OkStatus();
  }
  // A view into the reader's bytes.
  absl::StatusOr<std::string_view> GetString() {
    absl::StatusOr<int64_t> size = Get<int64_t>();
    if (!size.ok()) return size.status();
    if (!Has(*size, 1)) return Missing();
    const std::string_view text = bytes_.substr(0, static_cast<size_t>(*size));
    bytes_.remove_prefix(text.size());
    return text;
  }
  // OK if everything was read.
  absl::Status End() const {
    return bytes_.empty() ? absl::OkStatus() : absl::DataLossError("the state has bytes beyond its end");
  }
  static absl::Status Missing() { return absl::DataLossError("the state ends before its data does"); }

 private:
  std::string_view bytes_;
};

}  // namespace sheaf
