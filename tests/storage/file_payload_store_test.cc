// What only a store on files can do wrong: rot, full disks, crashes half-way.
#include "storage/files/file_payload_store.h"

#include <signal.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "base/checksum.h"
#include "base/clock.h"
#include "storage/memory/memory_payload_store.h"
#include "tests/storage/temporary_directory.h"

namespace sheaf {
namespace {

namespace fs = std::filesystem;

// Changes one byte of the only regular file below `directory`; returns the file's name.
std::string FlipAByte(const std::string& directory) {
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    int64_t last = static_cast<int64_t>(entry.file_size()) - 1;
    file.seekg(last);
    char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(last);
    file.put(byte);
    return entry.path().filename().string();
  }
  return "";
}

std::unique_ptr<FilePayloadStore> OpenAt(const TemporaryDirectory& directory) {
  static PosixFileSystem files;
  auto store = FilePayloadStore::Open(files, directory.path());
  REQUIRE(store.ok());
  return *std::move(store);
}

TEST_CASE("An upload in memory leaves no file, ends with the process, and is stale when nobody writes to it") {
  TemporaryDirectory directory;
  auto store = OpenAt(directory);
  const UploadId upload("u");
  const auto num_files = [&] {
    return std::distance(fs::directory_iterator(directory.path() + "/uploads"), fs::directory_iterator());
  };
  const auto begin = [&] {
    REQUIRE(store->StartMemoryUpload(upload, 5, Sha256Hex("hello")).ok());
    REQUIRE(store->WriteChunk(upload, 0, "hello").ok());
    CHECK(num_files() == 0);
  };
  begin();
  REQUIRE(store->FinishUpload(upload).ok());
  CHECK(num_files() == 0);
  store = OpenAt(directory);
  CHECK(absl::IsNotFound(store->GetUpload(upload).status()));
  begin();
  CHECK(*store->DeleteStaleUploads(absl::InfinitePast()) == 0);
  CHECK(*store->DeleteStaleUploads(absl::InfinitePast()) == 1);
  CHECK(absl::IsNotFound(store->GetUpload(upload).status()));
}

void CheckNamesTheFile(const absl::Status& status, const std::string& file) {
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  INFO(status.ToString() << " should name " << file);
  CHECK(status.ToString().find(file) != std::string::npos);
}

TEST_CASE("A byte that changed on disk is noticed wherever it lies, and its file is named") {
  TemporaryDirectory directory;
  auto store = OpenAt(directory);
  RoundId round("r-one");
  std::string digest = *store->PutBlob("a blob");
  SpoolRef ref = *store->AppendToSpool(round, "a record");
  REQUIRE(store->WriteCheckpoint(round, "c", "a checkpoint").ok());
  UploadId upload("u");
  REQUIRE(store->StartUpload(upload, 5, Sha256Hex("hello")).ok());
  REQUIRE(store->WriteChunk(upload, 0, "hello").ok());
  REQUIRE(store->FinishUpload(upload).ok());
  store = OpenAt(directory);

  CheckNamesTheFile((FlipAByte(directory.path() + "/blobs"), store->OpenBlob(digest).status()), digest);
  CheckNamesTheFile((FlipAByte(directory.path() + "/spools"), store->ReadFromSpool(round, ref).status()), "1.log");
  CheckNamesTheFile((FlipAByte(directory.path() + "/checkpoints"), store->ReadCheckpoint(round, "c").status()),
                    "c.ckpt");
  std::string file = FlipAByte(directory.path() + "/uploads");
  CheckNamesTheFile(store->OpenUpload(upload).status(), file);
}

TEST_CASE("A checkpoint that lost its end is noticed") {
  TemporaryDirectory directory;
  auto store = OpenAt(directory);
  REQUIRE(store->WriteCheckpoint(RoundId("r"), "c", "a checkpoint").ok());
  fs::resize_file(directory.path() + "/checkpoints/r/c.ckpt", 30);
  CHECK(store->ReadCheckpoint(RoundId("r"), "c").status().code() == absl::StatusCode::kDataLoss);
  fs::resize_file(directory.path() + "/checkpoints/r/c.ckpt", 3);
  CHECK(store->ReadCheckpoint(RoundId("r"), "c").status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("What a crash left half-written is removed at the next start") {
  TemporaryDirectory directory;
  auto store = OpenAt(directory);
  store.reset();
  std::ofstream(directory.path() + "/blobs/" + Sha256Hex("x") + ".1.tmp") << "half";
  std::ofstream(directory.path() + "/uploads/stray") << "half";
  store = OpenAt(directory);
  CHECK(store->ListBlobs()->empty());
  CHECK(fs::is_empty(directory.path() + "/blobs"));
  CHECK(fs::is_empty(directory.path() + "/uploads"));
}

TEST_CASE("A full disk is RESOURCE_EXHAUSTED and changes nothing") {
  TemporaryDirectory directory;
  auto store = OpenAt(directory);
  RoundId round("r-one");
  SpoolRef first = *store->AppendToSpool(round, std::string(500, 'a'));
  UploadId upload("u");
  std::string bytes(4000, 'b');
  REQUIRE(store->StartUpload(upload, 4000, Sha256Hex(bytes)).ok());
  REQUIRE(store->WriteChunk(upload, 0, std::string(500, 'b')).ok());

  // The kernel refuses to let a file grow past this, as it refuses on a full disk.
  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit tiny{1000, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &tiny);
  auto append = store->AppendToSpool(round, std::string(600, 'c')).status();
  auto chunk = store->WriteChunk(upload, 500, std::string(3500, 'b')).status();
  auto checkpoint = store->WriteCheckpoint(round, "c", std::string(2000, 'd'));
  auto blob = store->PutBlob(std::string(2000, 'e')).status();
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, old_handler);

  CHECK(append.code() == absl::StatusCode::kResourceExhausted);
  CHECK(chunk.code() == absl::StatusCode::kResourceExhausted);
  CHECK(checkpoint.code() == absl::StatusCode::kResourceExhausted);
  CHECK(blob.code() == absl::StatusCode::kResourceExhausted);
  CHECK(store->ReadCheckpoint(round, "c").status().code() == absl::StatusCode::kNotFound);
  CHECK(store->ListBlobs()->empty());
  CHECK(store->GetUpload(upload)->committed_bytes == 500);
  CHECK(*store->ReadFromSpool(round, first) == std::string(500, 'a'));

  SpoolRef second = *store->AppendToSpool(round, "after");
  CHECK(*store->ReadFromSpool(round, second) == "after");
  CHECK(*store->WriteChunk(upload, 500, std::string(3500, 'b')) == 4000);
  CHECK(store->FinishUpload(upload).ok());
}

TEST_CASE("In memory, a crash forgets what no flush has covered") {
  ManualClock clock;
  MemoryPayloadStore store(clock);
  RoundId round("r-one");
  SpoolRef synced = *store.AppendToSpool(round, "synced");
  REQUIRE(store.SyncSpools().ok());
  SpoolRef lost = *store.AppendToSpool(round, "lost");
  REQUIRE(store.StartUpload(UploadId("u"), 3, Sha256Hex("abc")).ok());
  store.DropUnsynced();
  CHECK(*store.ReadFromSpool(round, synced) == "synced");
  CHECK(store.ReadFromSpool(round, lost).status().code() == absl::StatusCode::kDataLoss);
  CHECK(store.GetUpload(UploadId("u")).status().code() == absl::StatusCode::kNotFound);
  CHECK(store.AppendToSpool(round, "new")->segment == synced.segment + 1);
}

}  // namespace
}  // namespace sheaf
