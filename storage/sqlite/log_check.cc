#include "storage/sqlite/log_check.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/check.h"

namespace sheaf {
namespace {

// See "The WAL file format" in SQLite's file format document. All numbers are big-endian.
constexpr int64_t kLogHeaderBytes = 32;
constexpr int64_t kFrameHeaderBytes = 24;
constexpr uint32_t kLogMagic = 0x377f0682;
constexpr uint32_t kLogPageBytesMax = 65536;
// The least that a disk writes as a whole.
constexpr int64_t kSectorBytes = 512;

uint32_t BigEndian(const unsigned char* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

uint32_t LittleEndian(const unsigned char* bytes) {
  return uint32_t{bytes[3]} << 24 | uint32_t{bytes[2]} << 16 | uint32_t{bytes[1]} << 8 | bytes[0];
}

struct Sum {
  uint32_t a = 0;
  uint32_t b = 0;

  void Add(const unsigned char* bytes, int64_t length, bool is_big_endian) {
    const auto number = is_big_endian ? BigEndian : LittleEndian;
    for (int64_t i = 0; i + 8 <= length; i += 8) {
      a += number(bytes + i) + b;
      b += number(bytes + i + 4) + a;
    }
  }
  static Sum At(const unsigned char* bytes) { return {BigEndian(bytes), BigEndian(bytes + 4)}; }
  friend bool operator==(const Sum&, const Sum&) = default;
};

class LogFile {
 public:
  LogFile(sqlite3_vfs* vfs, const std::string& path)
      : memory_(new unsigned char[static_cast<size_t>(vfs->szOsFile)]()),
        file_(reinterpret_cast<sqlite3_file*>(memory_.get())) {
    int is_there = 0;
    vfs->xAccess(vfs, path.c_str(), SQLITE_ACCESS_EXISTS, &is_there);
    if (is_there != 0) vfs->xOpen(vfs, path.c_str(), file_, SQLITE_OPEN_READONLY | SQLITE_OPEN_WAL, nullptr);
  }
  ~LogFile() {
    if (file_->pMethods != nullptr) file_->pMethods->xClose(file_);
  }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  int64_t size() {
    sqlite3_int64 size = 0;
    if (file_->pMethods != nullptr) file_->pMethods->xFileSize(file_, &size);
    return size;
  }
  bool Read(int64_t offset, std::vector<unsigned char>& to) {
    return file_->pMethods->xRead(file_, to.data(), static_cast<int>(to.size()), offset) == SQLITE_OK;
  }

 private:
  const std::unique_ptr<unsigned char[]> memory_;
  sqlite3_file* const file_;
};

}  // namespace

absl::Status CheckLog(const std::string& database, const std::string& vfs) {
  const std::string path = database + "-wal";
  sqlite3_vfs* found = sqlite3_vfs_find(vfs.empty() ? nullptr : vfs.c_str());
  SHEAF_CHECK(found != nullptr, "there is no SQLite VFS '{}'", vfs);
  LogFile file(found, path);
  const int64_t size = file.size();
  std::vector<unsigned char> header(kLogHeaderBytes);
  // What cannot be read is for SQLite to complain about.
  if (size < kLogHeaderBytes || !file.Read(0, header)) return absl::OkStatus();
  const auto is_zero = [](unsigned char byte) { return byte == 0; };
  if (std::all_of(header.begin(), header.end(), is_zero)) return absl::OkStatus();
  const auto damaged = [&path](int64_t offset) {
    return absl::DataLossError(
        fmt::format("{} is damaged at byte {}, before transactions that were flushed; restore the store from a backup",
                    path, offset));
  };

  const bool is_big_endian = (header[3] & 1) != 0;
  const uint32_t page_bytes = BigEndian(&header[8]);
  Sum before;
  before.Add(header.data(), 24, is_big_endian);
  // It lies in one sector and was flushed before the first frame: no crash leaves another.
  if ((BigEndian(header.data()) & ~1U) != kLogMagic || !std::has_single_bit(page_bytes) ||
      page_bytes > kLogPageBytesMax || before != Sum::At(&header[24])) {
    return damaged(0);
  }

  // What a crash leaves: transactions that match, then at most one that was not flushed, cut off anywhere, then
  // whatever lay there before. SQLite flushes a transaction before it begins the next one, so a whole transaction that
  // follows the end of another proves that both were flushed, and what does not match before it is damage.
  //
  // Where the frames stop matching; from there on, whether all since the newest end of a transaction have matched.
  int64_t first_bad = -1;
  bool follows_end = false;
  // What the newest frame's checksum is by its content. Its header says `before`: one is right if the other is damaged.
  Sum computed = before;
  std::vector<unsigned char> frame(kFrameHeaderBytes + page_bytes);
  const auto frame_bytes = static_cast<int64_t>(frame.size());
  for (int64_t at = kLogHeaderBytes; at + frame_bytes <= size && file.Read(at, frame); at += frame_bytes) {
    const auto sum_after = [&](Sum sum) {
      sum.Add(frame.data(), 8, is_big_endian);
      sum.Add(&frame[kFrameHeaderBytes], page_bytes, is_big_endian);
      return sum;
    };
    // Checksums go on from frame to frame. Behind a damaged frame the chain is taken up from what that frame says and
    // from what its content gives: the damage is in one of the two, so that what comes after it still matches.
    const Sum said = Sum::At(&frame[16]);
    const Sum sum = sum_after(before);
    const bool matches = sum == said || (computed != before && sum_after(computed) == said);
    before = said;
    computed = sum;
    const bool has_salt[] = {std::equal(&frame[8], &frame[12], &header[16]),
                             std::equal(&frame[12], &frame[16], &header[20])};
    const bool is_good = has_salt[0] && has_salt[1] && matches;
    if (!is_good && first_bad < 0) first_bad = at;
    if (first_bad < 0) continue;
    // Only a whole transaction behind the end of another proves that one was promised after the damage. A crash leaves
    // frames that match, and the end of what it cut off; and so may one before it, farther back. But what follows the
    // end of either was not written after it, and its checksums do not go on from there.
    const bool is_last_of_transaction = BigEndian(&frame[4]) != 0;
    if (is_good && is_last_of_transaction && follows_end) return damaged(first_bad);
    // An end that does not match is one nevertheless if its header cannot be of two writes: a frame of an earlier use
    // of the file has neither salt, but where a sector begins between the two, a crash leaves its size before our
    // salts.
    const bool is_of_one_write = at / kSectorBytes == (at + kFrameHeaderBytes - 1) / kSectorBytes;
    const bool is_ours = is_good || (is_of_one_write && (has_salt[0] || has_salt[1]));
    follows_end = is_last_of_transaction ? is_ours : follows_end && is_good;
  }
  return absl::OkStatus();
}

}  // namespace sheaf
