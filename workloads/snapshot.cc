#include "workloads/snapshot.h"

#include <fmt/format.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/checksum.h"

namespace sheaf {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr size_t kMagicBytes = 8;
constexpr size_t kHeadBytes = 24;

template <typename T>
T HeadField(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

}  // namespace

absl::Status DamagedSnapshot(std::string_view what) {
  return absl::DataLossError(fmt::format("not a usable snapshot of the package index: {}; make it anew", what));
}

std::string SealSnapshot(std::string_view magic, uint32_t version, std::string_view body) {
  const uint32_t crc = Crc32(body);
  const uint64_t size = body.size();
  std::string bytes(kHeadBytes, '\0');
  std::memcpy(bytes.data(), magic.data(), kMagicBytes);
  std::memcpy(bytes.data() + 8, &version, 4);
  std::memcpy(bytes.data() + 12, &crc, 4);
  std::memcpy(bytes.data() + 16, &size, 8);
  return bytes.append(body);
}

absl::StatusOr<std::string_view> OpenSnapshot(std::string_view magic, uint32_t version, std::string_view bytes) {
  if (bytes.size() < kHeadBytes || bytes.substr(0, kMagicBytes) != magic) {
    return DamagedSnapshot("it does not begin as one");
  }
  const uint32_t found = HeadField<uint32_t>(bytes, 8);
  if (found != version) {
    return absl::FailedPreconditionError(fmt::format(
        "this snapshot of the package index has version {}, and this program reads version {}; make it anew", found,
        version));
  }
  const std::string_view body = bytes.substr(kHeadBytes);
  if (HeadField<uint64_t>(bytes, 16) != body.size()) return DamagedSnapshot("bytes are missing or follow its end");
  if (HeadField<uint32_t>(bytes, 12) != Crc32(body)) return DamagedSnapshot("its checksum is wrong");
  return body;
}

absl::Status SaveSnapshot(const std::string& path, std::string_view bytes) {
  const std::string partial = path + ".partial";
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  if (!file || std::rename(partial.c_str(), path.c_str()) != 0) {
    std::remove(partial.c_str());
    return absl::UnavailableError(
        fmt::format("cannot write {}: {}; is there space, and may this user write there?", path, std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadSnapshot(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(fmt::format("cannot read the snapshot {}: {}", path, std::strerror(errno)));
  }
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return std::move(bytes).str();
}

absl::Status NamingSnapshot(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), fmt::format("{}: {}", path, std::string(status.message())));
}

bool IsPlainText(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

void PutVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

uint64_t SnapshotReader::Varint(uint64_t max) {
  uint64_t value = 0;
  for (int shift = 0; shift < 63 && !bytes_.empty(); shift += 7) {
    const uint8_t byte = static_cast<uint8_t>(bytes_.front());
    bytes_.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value <= max ? value : Fail();
  }
  return Fail();
}

std::string_view SnapshotReader::Text(uint64_t max) {
  // Count() is never more than what is left.
  const uint64_t size = Count(max);
  const std::string_view text = bytes_.substr(0, size);
  bytes_.remove_prefix(text.size());
  return text;
}

uint64_t SnapshotReader::Fail() {
  ok_ = false;
  bytes_ = {};
  return 0;
}

}  // namespace sheaf
