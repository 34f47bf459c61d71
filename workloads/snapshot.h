// The snapshots of datasets: files that a program makes once from the package index, and that its workers load.
//
//   std::string body;
//   PutVarint(names.size(), body);
//   RETURN_IF_ERROR(SaveSnapshot(path, SealSnapshot("SHEAFTAG", 1, body)));
//
//   ASSIGN_OR_RETURN(std::string bytes, ReadSnapshot(path));
//   ASSIGN_OR_RETURN(std::string_view content, OpenSnapshot("SHEAFTAG", 1, bytes));
//   SnapshotReader reader(content);
//   uint64_t num_names = reader.Count(kNamesMax);
//   if (!reader.ok()) return DamagedSnapshot("its names are malformed");
//
// A head of 24 bytes (magic, u32 version, u32 CRC-32 of the body, u64 size of the body; little-endian), then the body:
// LEB128 varints and text. What is read is untrusted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sheaf {

// DATA_LOSS: `what` is wrong with the snapshot.
absl::Status DamagedSnapshot(std::string_view what);

// `magic` has 8 bytes.
std::string SealSnapshot(std::string_view magic, uint32_t version, std::string_view body);
// The body, inside `bytes`. DATA_LOSS if they are damaged or have another magic; FAILED_PRECONDITION if they are of
// another version.
absl::StatusOr<std::string_view> OpenSnapshot(std::string_view magic, uint32_t version, std::string_view bytes);

// Replaces the file in one step. UNAVAILABLE, naming it, if it cannot be written.
absl::Status SaveSnapshot(const std::string& path, std::string_view bytes);
// NOT_FOUND, naming it, if it cannot be read.
absl::StatusOr<std::string> ReadSnapshot(const std::string& path);
// `status` of deserialising the file, with its name in front.
absl::Status NamingSnapshot(const std::string& path, const absl::Status& status);

// Names in snapshots are printable ASCII without blanks.
bool IsPlainText(std::string_view text);

void PutVarint(uint64_t value, std::string& out);
// Sorted and unique numbers as gaps to the previous one, the first counted from -1.
template <typename T>
void PutAscending(std::span<const T> numbers, std::string& out) {
  PutVarint(numbers.size(), out);
  int64_t previous = -1;
  for (T number : numbers) {
    PutVarint(static_cast<uint64_t>(number - previous), out);
    previous = number;
  }
}

// Reads a body; after the first fault everything reads as 0 and ok() is false. Not thread-safe.
class SnapshotReader {
 public:
  explicit SnapshotReader(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return bytes_.empty(); }

  // A number of at most `max`.
  uint64_t Varint(uint64_t max);
  // How many things follow, each of which takes a byte at least: so a count cannot ask for more memory than the file
  // has bytes.
  uint64_t Count(uint64_t max) { return Varint(std::min<uint64_t>(max, bytes_.size())); }
  // A length of at most `max`, and as many bytes.
  std::string_view Text(uint64_t max);
  // Sorted, unique and below `bound`.
  template <typename T>
  void Ascending(uint64_t bound, std::vector<T>& out) {
    out.clear();
    int64_t previous = -1;
    for (uint64_t left = Count(bound); left > 0 && ok_; --left) {
      previous += static_cast<int64_t>(Varint(bound));
      if (!out.empty() && previous == out.back()) Fail();
      if (previous < 0 || previous >= static_cast<int64_t>(bound)) Fail();
      if (ok_) out.push_back(static_cast<T>(previous));
    }
  }

 private:
  uint64_t Fail();

  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace sheaf
