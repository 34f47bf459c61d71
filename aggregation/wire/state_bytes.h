// StateWriter and StateReader: the little-endian bytes of serialised accumulators.
//
//   StateWriter out;
//   out.Put<int64_t>(3);
//   StateReader in(out.bytes());
//   ASSIGN_OR_RETURN(const int64_t three, in.Get<int64_t>());
//
// A writer gathers its bytes, or hands them to a ByteSink in pieces, so that a state of any size is written in the
// memory of one piece; Finish hands on the last.
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
#include "base/byte_sink.h"

namespace sheaf {

static_assert(std::endian::native == std::endian::little, "tensors are read and written in place, little-endian");

class StateWriter {
 public:
  // Below what stays in the cache from being written until it is checked and copied.
  static constexpr size_t kPieceBytes = 64 << 10;

  // Gathers.
  StateWriter() = default;
  // Hands on, in pieces of at most so many bytes or of what is put at once; what comes after an error is dropped.
  // `sink` outlives this.
  explicit StateWriter(const ByteSink& sink, size_t piece_bytes = kPieceBytes)
      : sink_(&sink), piece_bytes_(piece_bytes) {}
  StateWriter(const StateWriter&) = delete;
  StateWriter& operator=(const StateWriter&) = delete;

  template <typename T>
  void Put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    PutBytes({raw, sizeof(T)});
  }
  template <typename T>
  void PutArray(const T* values, int64_t n) {
    PutBytes({reinterpret_cast<const char*>(values), static_cast<size_t>(n) * sizeof(T)});
  }
  void PutString(std::string_view text) {
    Put<int64_t>(static_cast<int64_t>(text.size()));
    PutBytes(text);
  }
  void PutBytes(std::string_view bytes) {
    if (bytes_.size() + bytes.size() <= piece_bytes_) {
      bytes_.append(bytes);
    } else {
      PutThrough(bytes);
    }
  }

  // Of a writer that gathers.
  std::string_view bytes() const { return bytes_; }
  std::string Take() && { return std::move(bytes_); }
  // So far, handed on or not.
  int64_t size() const { return handed_bytes_ + static_cast<int64_t>(bytes_.size()); }
  const absl::Status& status() const { return status_; }
  // Hands on what is left. The first error of the sink.
  absl::Status Finish() {
    if (!bytes_.empty()) Hand(bytes_);
    bytes_.clear();
    return status_;
  }

 private:
  void PutThrough(std::string_view bytes) {
    static_cast<void>(Finish());
    if (bytes.size() >= piece_bytes_) {
      Hand(bytes);
    } else {
      bytes_.append(bytes);
    }
  }
  void Hand(std::string_view bytes) {
    handed_bytes_ += static_cast<int64_t>(bytes.size());
    if (status_.ok()) status_ = (*sink_)(bytes);
  }

  const ByteSink* sink_ = nullptr;
  size_t piece_bytes_ = std::string::npos;
  std::string bytes_;
  int64_t handed_bytes_ = 0;
  absl::Status status_;
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
