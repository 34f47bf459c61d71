#include "storage/sqlite/log_check.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <string>

#include "tests/storage/temporary_directory.h"

namespace sheaf {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kFrameBytes = 24 + kPageBytes;
constexpr int64_t kHeaderBytes = 32;

// A log as SQLite writes it, with big-endian checksums: see "The WAL file format" in SQLite's file format document.
class Log {
 public:
  explicit Log(uint32_t salt) : salt_(salt) {
    for (const uint32_t word : {0x377f0683U, 3007000U, uint32_t{kPageBytes}, 0U, salt_, ~salt_}) Append(word);
    AddUp(0, 24);
    Append(a_);
    Append(b_);
  }

  // A transaction that changes so many pages.
  void Commit(int num_pages) {
    for (int i = 1; i <= num_pages; ++i) {
      const auto at = static_cast<int64_t>(bytes_.size());
      Append(static_cast<uint32_t>(i));
      Append(i == num_pages ? 29 : 0);
      const std::string page(kPageBytes, static_cast<char>(salt_ + i));
      bytes_ += std::string(16, '\0') + page;
      AddUp(at, 8);
      AddUp(at + 24, kPageBytes);
      Put(at + 8, salt_);
      Put(at + 12, ~salt_);
      Put(at + 16, a_);
      Put(at + 20, b_);
    }
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void Put(int64_t at, uint32_t word) {
    for (int i = 0; i < 4; ++i) bytes_[static_cast<size_t>(at + i)] = static_cast<char>(word >> (24 - 8 * i));
  }
  void Append(uint32_t word) {
    bytes_ += std::string(4, '\0');
    Put(static_cast<int64_t>(bytes_.size()) - 4, word);
  }
  uint32_t At(int64_t at) const {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word = word << 8 | static_cast<unsigned char>(bytes_[static_cast<size_t>(at + i)]);
    return word;
  }
  void AddUp(int64_t from, int64_t length) {
    for (int64_t at = from; at < from + length; at += 8) {
      a_ += At(at) + b_;
      b_ += At(at + 4) + a_;
    }
  }

  const uint32_t salt_;
  uint32_t a_ = 0;
  uint32_t b_ = 0;
  std::string bytes_;
};

absl::Status Check(const std::string& bytes) {
  const TemporaryDirectory directory;
  const std::string database = directory.path() + "/tasks.db";
  // SQLite opens no log without its database.
  std::ofstream(database) << "";
  std::ofstream(database + "-wal", std::ios::binary) << bytes;
  return CheckLog(database, "");
}

int64_t FrameOffset(int frame) { return kHeaderBytes + frame * kFrameBytes; }

std::string WithFlippedBit(std::string bytes, int64_t at) {
  bytes[static_cast<size_t>(at)] ^= 1;
  return bytes;
}

// Three transactions: frames 0-39, 40-44 and 45-49.
Log ALog() {
  Log log(7);
  log.Commit(40);
  log.Commit(5);
  log.Commit(5);
  return log;
}

TEST_CASE("A log that is whole, empty, or ends in the middle of a transaction is what a crash leaves") {
  const std::string bytes = ALog().bytes();
  CHECK(Check(bytes).ok());
  CHECK(Check("").ok());
  CHECK(Check(bytes.substr(0, static_cast<size_t>(FrameOffset(47) + 100))).ok());
  CHECK(Check(WithFlippedBit(bytes, FrameOffset(46) + 1000)).ok());
}

TEST_CASE("A bit that flips in a log before transactions that were flushed is damage") {
  const std::string bytes = ALog().bytes();
  for (const int frame : {0, 39, 41, 44}) {
    for (const int64_t place : {2, 9, 17, 4000}) {
      INFO("byte " << place << " of frame " << frame);
      CHECK(absl::IsDataLoss(Check(WithFlippedBit(bytes, FrameOffset(frame) + place))));
    }
  }
  CHECK(absl::IsDataLoss(Check(WithFlippedBit(bytes, 20))));
}

TEST_CASE("The end of an earlier transaction, left in half a frame's header, is no end") {
  // The header of frame 41 lies across two sectors: its first eight bytes, with the size that marks an end, in one.
  constexpr int kTorn = 41;
  static_assert((kHeaderBytes + kTorn * kFrameBytes) % 512 == 504);
  Log before(6);
  before.Commit(kTorn + 1);
  Log log(7);
  log.Commit(36);
  log.Commit(10);
  // Nothing of the second transaction was flushed, and of one sector the disk kept the old content.
  std::string crashed = log.bytes();
  const auto torn = static_cast<size_t>(FrameOffset(kTorn));
  crashed.replace(torn, 8, before.bytes(), torn, 8);
  CHECK(Check(crashed).ok());
}

TEST_CASE("What a crash or a full disk cut off, and a later transaction began to overwrite, is no damage") {
  // A transaction of ten pages was cut off: all but its first frame is there, its end too.
  Log cut_off(7);
  cut_off.Commit(3);
  cut_off.Commit(10);
  // Two of its frames were overwritten by one that was flushed, and four by one that a second crash cut off likewise.
  Log log(7);
  log.Commit(3);
  log.Commit(2);
  log.Commit(4);
  for (const int missing : {5, 6, 7}) {
    INFO("frame " << missing);
    std::string crashed = log.bytes() + cut_off.bytes().substr(log.bytes().size());
    const auto at = static_cast<size_t>(FrameOffset(missing));
    crashed.replace(at, kFrameBytes, cut_off.bytes(), at, kFrameBytes);
    CHECK(Check(crashed).ok());
  }
}

}  // namespace
}  // namespace sheaf
