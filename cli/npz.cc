#include "cli/npz.h"

#include <fmt/format.h>

#include "base/checksum.h"

namespace sheaf {
namespace {

constexpr int64_t kArchiveBytesMax = 0xffffffff;
constexpr size_t kMembersMax = 0xffff;
constexpr uint16_t kZipVersion = 20;
// Names are UTF-8.
constexpr uint16_t kFlags = 0x0800;
// 1980-01-01 00:00, the earliest a zip archive can say.
constexpr uint16_t kTime = 0;
constexpr uint16_t kDate = (1 << 5) | 1;

void AppendU16(std::string& out, size_t value) {
  out.push_back(static_cast<char>(value & 0xff));
  out.push_back(static_cast<char>(value >> 8 & 0xff));
}

void AppendU32(std::string& out, size_t value) {
  AppendU16(out, value & 0xffff);
  AppendU16(out, value >> 16 & 0xffff);
}

struct Member {
  std::string name;
  uint32_t crc = 0;
  size_t size = 0;
  size_t offset = 0;
};

// What the local header and the central directory say alike.
void AppendMemberFields(std::string& out, const Member& member) {
  AppendU16(out, kZipVersion);
  AppendU16(out, kFlags);
  AppendU16(out, 0);  // Stored.
  AppendU16(out, kTime);
  AppendU16(out, kDate);
  AppendU32(out, member.crc);
  AppendU32(out, member.size);
  AppendU32(out, member.size);
  AppendU16(out, member.name.size());
  AppendU16(out, 0);  // No extra field.
}

Member AppendMember(std::string& out, const NpyArray& array) {
  const std::string header = NpyHeader(array);
  Member member{.name = array.name + ".npy",
                .crc = Crc32(array.data, Crc32(header)),
                .size = header.size() + array.data.size(),
                .offset = out.size()};
  out += "PK\x03\x04";
  AppendMemberFields(out, member);
  out += member.name;
  out += header;
  out += array.data;
  return member;
}

void AppendDirectoryEntry(std::string& out, const Member& member) {
  out += "PK\x01\x02";
  AppendU16(out, kZipVersion);  // Made by: no host system.
  AppendMemberFields(out, member);
  AppendU16(out, 0);  // No comment.
  AppendU16(out, 0);  // First disk.
  AppendU16(out, 0);  // Internal attributes.
  AppendU32(out, 0);  // External attributes.
  AppendU32(out, member.offset);
  out += member.name;
}

// Upper bound of the archive's size.
int64_t ArchiveBytes(const std::vector<NpyArray>& arrays) {
  int64_t bytes = 22;
  for (const NpyArray& array : arrays) {
    bytes += static_cast<int64_t>(array.data.size() + NpyHeader(array).size() + 2 * (array.name.size() + 4)) + 76;
  }
  return bytes;
}

}  // namespace

std::string NpyHeader(const NpyArray& array) {
  std::string shape;
  for (int64_t size : array.shape) shape += fmt::format("{}{}", shape.empty() ? "" : ", ", size);
  // A tuple of one is written with its comma.
  if (array.shape.size() == 1) shape += ",";
  std::string dictionary =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", array.descr, shape);
  constexpr size_t kPrefix = 10;
  const size_t end = (kPrefix + dictionary.size() + 1 + 63) / 64 * 64;
  dictionary.append(end - kPrefix - dictionary.size() - 1, ' ');
  dictionary.push_back('\n');
  std::string header("\x93NUMPY\x01\x00", 8);
  AppendU16(header, dictionary.size());
  return header + dictionary;
}

absl::StatusOr<std::string> EncodeNpz(const std::vector<NpyArray>& arrays) {
  const int64_t bytes = ArchiveBytes(arrays);
  if (bytes > kArchiveBytesMax) {
    return absl::OutOfRangeError(
        fmt::format("the arrays need {} bytes, more than the 4 GiB that an .npz file can hold", bytes));
  }
  if (arrays.size() > kMembersMax) {
    return absl::OutOfRangeError(
        fmt::format("{} arrays are more than the {} that an .npz file can hold", arrays.size(), kMembersMax));
  }
  std::string file;
  file.reserve(static_cast<size_t>(bytes));
  std::vector<Member> members;
  for (const NpyArray& array : arrays) members.push_back(AppendMember(file, array));
  const size_t directory = file.size();
  for (const Member& member : members) AppendDirectoryEntry(file, member);
  const size_t directory_size = file.size() - directory;
  file += "PK\x05\x06";
  AppendU16(file, 0);  // This disk.
  AppendU16(file, 0);  // The directory's disk.
  AppendU16(file, members.size());
  AppendU16(file, members.size());
  AppendU32(file, directory_size);
  AppendU32(file, directory);
  AppendU16(file, 0);  // No comment.
  return file;
}

}  // namespace sheaf
