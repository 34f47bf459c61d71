// The snapshot format of TagsDataset. All numbers but those of the head are LEB128 varints.
//
//   head     "SHEAFTAG", u32 version, u32 CRC-32 of the body, u64 size of the body; little-endian
//   body     features, labels, clients
//            labels x (length, bytes)
//            clients x (held out 0|1, examples, examples x (n, n feature gaps, m, m label gaps))
//
// A gap is the distance to the previous number, the first one counted from -1: sorted and unique numbers have gaps
// >= 1.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/checksum.h"
#include "sdk/cpp/workloads/tags_dataset.h"
#include "sdk/cpp/workloads/tags_dataset_builder.h"

namespace sheaf {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr std::string_view kMagic = "SHEAFTAG";
constexpr uint32_t kVersion = 1;
constexpr size_t kHeadBytes = 24;
constexpr uint64_t kFeaturesMax = 1 << 28;
constexpr uint64_t kLabelsMax = 65535;
constexpr uint64_t kLabelNameBytesMax = 256;

absl::Status Damaged(std::string_view what) {
  return absl::DataLossError(fmt::format("not a usable snapshot of the package index: {}; make it anew", what));
}

void PutVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

template <typename T>
void PutAscending(std::span<const T> numbers, std::string& out) {
  PutVarint(numbers.size(), out);
  int64_t previous = -1;
  for (T number : numbers) {
    PutVarint(static_cast<uint64_t>(number - previous), out);
    previous = number;
  }
}

// Reads the body; after the first fault everything reads as 0 and ok() is false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return bytes_.empty(); }

  // A number of at most `max`.
  uint64_t Varint(uint64_t max) {
    uint64_t value = 0;
    for (int shift = 0; shift < 63 && !bytes_.empty(); shift += 7) {
      const uint8_t byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value <= max ? value : Fail();
    }
    return Fail();
  }
  // How many things follow, each of which takes a byte at least: so a count cannot ask for more memory than the file
  // has bytes.
  uint64_t Count(uint64_t max) { return Varint(std::min<uint64_t>(max, bytes_.size())); }

  std::string_view Bytes(uint64_t n) {
    const std::string_view taken = bytes_.substr(0, n);
    bytes_.remove_prefix(taken.size());
    return taken;
  }
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
  uint64_t Fail() {
    ok_ = false;
    bytes_ = {};
    return 0;
  }

  std::string_view bytes_;
  bool ok_ = true;
};

bool IsPlainText(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

absl::StatusOr<TagsDataset> ReadBody(std::string_view body) {
  Reader reader(body);
  const uint64_t num_features = reader.Varint(kFeaturesMax);
  const uint64_t num_labels = reader.Count(kLabelsMax);
  const uint64_t num_clients = reader.Count(body.size());
  std::vector<std::string> label_names;
  for (uint64_t i = 0; i < num_labels; ++i) {
    label_names.emplace_back(reader.Bytes(reader.Count(kLabelNameBytesMax)));
    if (!reader.ok() || !IsPlainText(label_names.back())) return Damaged(fmt::format("label {} is not text", i));
  }
  TagsDatasetBuilder builder(std::move(label_names));
  std::vector<uint32_t> features;
  std::vector<uint16_t> labels;
  for (uint64_t client = 0; client < num_clients; ++client) {
    const bool is_held_out = reader.Varint(1) == 1;
    for (uint64_t left = reader.Count(body.size()); left > 0 && reader.ok(); --left) {
      reader.Ascending(num_features, features);
      reader.Ascending(num_labels, labels);
      builder.AddExample(features, labels);
    }
    if (!reader.ok()) return Damaged(fmt::format("the examples of client {} are malformed", client));
    builder.EndClient(is_held_out);
  }
  if (!reader.at_end()) return Damaged("bytes follow its end");
  return std::move(builder).Build(static_cast<int>(num_features));
}

template <typename T>
T HeadField(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

}  // namespace

std::string TagsDataset::Serialize() const {
  std::string body;
  PutVarint(num_features(), body);
  PutVarint(num_labels(), body);
  PutVarint(num_clients(), body);
  for (const std::string& name : label_names_) {
    PutVarint(name.size(), body);
    body += name;
  }
  for (int client = 0; client < num_clients(); ++client) {
    const auto [begin, end] = ClientExamples(client);
    PutVarint(held_out_[client], body);
    PutVarint(end - begin, body);
    for (int i = begin; i < end; ++i) {
      PutAscending(example(i).features, body);
      PutAscending(example(i).labels, body);
    }
  }
  const uint32_t crc = Crc32(body);
  const uint64_t size = body.size();
  std::string head(kHeadBytes, '\0');
  std::memcpy(head.data(), kMagic.data(), kMagic.size());
  std::memcpy(head.data() + 8, &kVersion, 4);
  std::memcpy(head.data() + 12, &crc, 4);
  std::memcpy(head.data() + 16, &size, 8);
  return head + body;
}

absl::StatusOr<TagsDataset> TagsDataset::Deserialize(std::string_view bytes) {
  if (bytes.size() < kHeadBytes || bytes.substr(0, kMagic.size()) != kMagic) return Damaged("it does not begin as one");
  const uint32_t version = HeadField<uint32_t>(bytes, 8);
  if (version != kVersion) {
    return absl::FailedPreconditionError(fmt::format(
        "this snapshot of the package index has version {}, and this program reads version {}; make it anew", version,
        kVersion));
  }
  const std::string_view body = bytes.substr(kHeadBytes);
  if (HeadField<uint64_t>(bytes, 16) != body.size()) return Damaged("bytes are missing or follow its end");
  if (HeadField<uint32_t>(bytes, 12) != Crc32(body)) return Damaged("its checksum is wrong");
  return ReadBody(body);
}

absl::Status TagsDataset::Save(const std::string& path) const {
  const std::string partial = path + ".partial";
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  file << Serialize();
  file.close();
  if (!file || std::rename(partial.c_str(), path.c_str()) != 0) {
    std::remove(partial.c_str());
    return absl::UnavailableError(
        fmt::format("cannot write {}: {}; is there space, and may this user write there?", path, std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::StatusOr<TagsDataset> TagsDataset::Load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(fmt::format("cannot read the snapshot {}: {}", path, std::strerror(errno)));
  }
  std::ostringstream bytes;
  bytes << file.rdbuf();
  absl::StatusOr<TagsDataset> dataset = Deserialize(bytes.view());
  if (!dataset.ok()) {
    return absl::Status(dataset.status().code(), fmt::format("{}: {}", path, std::string(dataset.status().message())));
  }
  return dataset;
}

}  // namespace sheaf
