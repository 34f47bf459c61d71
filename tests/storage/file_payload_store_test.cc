// What only a store on files can do wrong: rot, full disks, crashes half-way.
#include "storage/files/file_payload_store.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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
  const absl::Time now = absl::FromUnixSeconds(1000);
  CHECK(store->DeleteStaleUploads(now, absl::Minutes(10)) == 0);
  CHECK(store->DeleteStaleUploads(now + absl::Minutes(10), absl::Minutes(10)) == 1);
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
  REQUIRE(store->PutCheckpoint(round, "c", "a checkpoint").ok());
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

TEST_CASE("A file that is cut off while it is being read is named, and ends no process") {
  constexpr int64_t kBytes = 1 << 20;
  const std::string bytes(kBytes, 'b');
  TemporaryDirectory directory;
  auto store = OpenAt(directory);
  const std::string digest = *store->PutBlob(bytes);
  const UploadId upload("u");
  REQUIRE(store->StartUpload(upload, kBytes, Sha256Hex(bytes)).ok());
  REQUIRE(store->WriteChunk(upload, 0, bytes).ok());
  REQUIRE(store->FinishUpload(upload).ok());
  const std::string blob_path = directory.path() + "/blobs/" + digest;
  const std::string upload_path = fs::directory_iterator(directory.path() + "/uploads")->path();
  const auto nothing = [](std::string_view) { return absl::OkStatus(); };
  const std::vector<std::function<void(const BlobView&, const std::string&)>> readings = {
      [](const BlobView& view, const std::string& path) {
        std::string read = "before";
        const ByteRange ranges[] = {{.offset = 0, .length = 10}, {.offset = kBytes - 10, .length = 10}};
        CheckNamesTheFile(view.Append(ranges, read), path);
        CHECK(read == "before");
      },
      [&](const BlobView& view, const std::string& path) { CheckNamesTheFile(view.ForEachPiece(nothing), path); },
      [](const BlobView& view, const std::string& path) {
        int64_t sum = 0;
        const auto add = [&sum](std::string_view all) {
          for (const char byte : all) sum += byte;
          return absl::OkStatus();
        };
        CheckNamesTheFile(view.Visit(add), path);
        CHECK(sum < kBytes * 'b');
      }};
  // Whole pages are gone, then the end of one, where zeros stand then.
  struct Case {
    std::shared_ptr<const BlobView> view;
    std::string path;
    int64_t left;
    size_t reading;
  };
  std::vector<Case> cases = {{*store->OpenBlob(digest), blob_path, 4096, 2}};
  for (const int64_t left : {int64_t{0}, int64_t{4096}, kBytes - 4096, kBytes - 1}) {
    // A view that has met a hole stays as it is: each reading has its own.
    for (size_t i = 0; i < readings.size(); ++i) cases.push_back({*store->OpenUpload(upload), upload_path, left, i});
  }
  for (const auto& [view, path, left, reading] : cases) {
    INFO(path << ", " << left << " bytes left, reading " << reading);
    fs::resize_file(path, static_cast<uint64_t>(kBytes));
    REQUIRE(view->Read(kBytes - 4096, 4096)->size() == 4096);
    fs::resize_file(path, static_cast<uint64_t>(left));
    readings[reading](*view, path);
    CheckNamesTheFile(view->Read(0, kBytes).status(), path);
    CheckNamesTheFile(view->Visit(nothing), path);
  }
  // The file has its size again, and not its bytes.
  fs::resize_file(blob_path, static_cast<uint64_t>(kBytes));
  CHECK(cases.front().view->Read(0, kBytes).status().code() == absl::StatusCode::kInternal);
}

TEST_CASE("A bus error that no blob has caused still ends the process") {
  TemporaryDirectory directory;
  auto store = OpenAt(directory);
  const std::string digest = *store->PutBlob("a blob");
  REQUIRE(store->OpenBlob(digest).ok());
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGALRM, SIG_DFL);
    ::alarm(10);
    ::raise(SIGBUS);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
#if defined(__SANITIZE_ADDRESS__) || defined(SHEAF_SANITIZE_THREAD)
  // The handler that was there before is the sanitizer's, which reports it and exits.
  CHECK(status != 0);
#else
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGBUS);
#endif
}

TEST_CASE("A checkpoint that lost its end is noticed") {
  TemporaryDirectory directory;
  auto store = OpenAt(directory);
  REQUIRE(store->PutCheckpoint(RoundId("r"), "c", "a checkpoint").ok());
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

TEST_CASE(
    "What is neither an upload nor a blob and cannot be deleted keeps no store from opening, and no other alive") {
  TemporaryDirectory directory;
  const std::string digest = Sha256Hex("bytes");
  {
    auto store = OpenAt(directory);
    REQUIRE(store->PutBlob("bytes").ok());
    REQUIRE(store->StartUpload(UploadId("u"), 3, Sha256Hex("abc")).ok());
  }
  const std::string other = Sha256Hex("other");
  for (const std::string& stray :
       {std::string("uploads/dir"), "uploads/v.3." + other + ".part", std::string("blobs/dir"), "blobs/" + other}) {
    fs::create_directories(directory.path() + "/" + stray + "/inside");
  }
  auto store = OpenAt(directory);
  CHECK(store->GetUploadUse("").num_uploads == 1);
  CHECK(store->HasBlob(digest));
  CHECK_FALSE(store->HasBlob(other));
  const auto blobs = store->ListBlobs();
  REQUIRE(blobs.ok());
  REQUIRE(blobs->size() == 1);
  CHECK(blobs->front().digest == digest);
  CHECK(fs::exists(directory.path() + "/uploads/dir/inside"));
}

TEST_CASE("Of a round's files all are deleted that can be, whatever lies among them") {
  TemporaryDirectory directory;
  auto store = OpenAt(directory);
  const RoundId round("r");
  for (int i = 0; i < 3; ++i) {
    REQUIRE(store->AppendToSpool(round, "contribution").ok());
    REQUIRE(store->RollSpool(round).ok());
  }
  REQUIRE(store->PutCheckpoint(round, "c1", "old").ok());
  REQUIRE(store->PutCheckpoint(round, "c2", "new").ok());
  // Before and between them, in the order of names.
  fs::create_directories(directory.path() + "/checkpoints/r/a.ckpt/inside");
  fs::remove(directory.path() + "/spools/r/1.log");
  fs::create_directories(directory.path() + "/spools/r/1.log/inside");

  const absl::Status checkpoints = store->DeleteCheckpointsExcept(round, "c2");
  CHECK_THAT(checkpoints.ToString(), Catch::Contains("a.ckpt"));
  CHECK_FALSE(fs::exists(directory.path() + "/checkpoints/r/c1.ckpt"));
  CHECK(*store->ReadCheckpoint(round, "c2") == "new");
  const absl::Status segments = store->DeleteSpoolSegments(round, 2);
  CHECK_THAT(segments.ToString(), Catch::Contains("1.log"));
  CHECK_FALSE(fs::exists(directory.path() + "/spools/r/2.log"));
  CHECK(fs::exists(directory.path() + "/spools/r/3.log"));
  CHECK_FALSE(store->DeleteRound(round).ok());
  CHECK_FALSE(fs::exists(directory.path() + "/spools/r/3.log"));
}

TEST_CASE("Whatever lies in a spool's directory is no segment of it") {
  TemporaryDirectory directory;
  const RoundId round("r");
  SpoolRef ref;
  {
    auto store = OpenAt(directory);
    ref = *store->AppendToSpool(round, "contribution");
    REQUIRE(store->SyncSpools().ok());
  }
  for (const char* stray : {"7", "8abc", "9.txt", "9223372036854775807.log", "-3.log"}) {
    fs::create_directories(directory.path() + "/spools/r/" + stray);
  }
  auto store = OpenAt(directory);
  CHECK(*store->RollSpool(round) == 1);
  CHECK(*store->ReadFromSpool(round, ref) == "contribution");
  CHECK(store->AppendToSpool(round, "next")->segment == 2);
}

TEST_CASE("After a restart an upload is as old as the restart, whatever its file says") {
  TemporaryDirectory directory;
  auto store = OpenAt(directory);
  const UploadId upload("u");
  REQUIRE(store->StartUpload(upload, 6, Sha256Hex("abcdef")).ok());
  CHECK(store->DeleteStaleUploads(absl::FromUnixSeconds(1000), absl::Seconds(10)) == 0);
  for (const auto& entry : fs::directory_iterator(directory.path() + "/uploads")) {
    fs::last_write_time(entry.path(), fs::file_time_type::min());
  }
  store = OpenAt(directory);
  CHECK(store->DeleteStaleUploads(absl::FromUnixSeconds(2000), absl::Seconds(10)) == 0);
  CHECK(store->DeleteStaleUploads(absl::FromUnixSeconds(2009), absl::Seconds(10)) == 0);
  CHECK(store->DeleteStaleUploads(absl::FromUnixSeconds(2010), absl::Seconds(10)) == 1);
}

TEST_CASE("An upload that 0.1 began goes on") {
  TemporaryDirectory directory;
  OpenAt(directory).reset();
  const UploadId upload("c-one-tag");
  std::ofstream(
      fmt::format("{}/uploads/{}.6.{}.part", directory.path(), Sha256Hex(upload.value()), Sha256Hex("abcdef")))
      << "abc";
  auto store = OpenAt(directory);
  CHECK(store->StartUpload(upload, 6, Sha256Hex("abcdef"))->committed_bytes == 3);
  CHECK(store->GetUploadUse("tag").num_matching == 1);
  CHECK(*store->WriteChunk(upload, 3, "def") == 6);
  CHECK(store->FinishUpload(upload).ok());
  CHECK(store->MoveUploadToBlob(upload).ok());
  CHECK(store->HasBlob(Sha256Hex("abcdef")));
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
  std::vector<int64_t> taken;
  const auto note_taken = [&](int64_t committed_bytes) { taken.push_back(committed_bytes); };
  auto early = store->WriteChunk(upload, 500, std::string(3000, 'b'), note_taken).status();
  auto next = store->WriteChunk(upload, 3500, std::string(400, 'b'), note_taken).status();
  auto chunk = store->WriteChunk(upload, 500, std::string(3000, 'b'), note_taken).status();
  auto checkpoint = store->PutCheckpoint(round, "c", std::string(2000, 'd'));
  auto blob = store->PutBlob(std::string(2000, 'e')).status();
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, old_handler);

  CHECK(append.code() == absl::StatusCode::kResourceExhausted);
  // Whoever was told that a chunk is taken hears with the next one where to continue, and with that one why.
  CHECK(early.code() == absl::StatusCode::kResourceExhausted);
  CHECK(next.code() == absl::StatusCode::kOutOfRange);
  CHECK(chunk.code() == absl::StatusCode::kResourceExhausted);
  CHECK(taken == std::vector<int64_t>{3500});
  CHECK(checkpoint.code() == absl::StatusCode::kResourceExhausted);
  CHECK(blob.code() == absl::StatusCode::kResourceExhausted);
  CHECK(store->ReadCheckpoint(round, "c").status().code() == absl::StatusCode::kNotFound);
  CHECK(store->ListBlobs()->empty());
  CHECK(store->GetUpload(upload)->committed_bytes == 500);
  CHECK(*store->ReadFromSpool(round, first) == std::string(500, 'a'));

  SpoolRef second = *store->AppendToSpool(round, "after");
  CHECK(*store->ReadFromSpool(round, second) == "after");
  CHECK(*store->WriteChunk(upload, 500, std::string(100, 'b'), note_taken) == 600);
  CHECK(*store->WriteChunk(upload, 600, std::string(100, 'b'), note_taken) == 700);
  CHECK(taken == std::vector<int64_t>{3500, 700});
  CHECK(*store->WriteChunk(upload, 700, std::string(3300, 'b')) == 4000);
  CHECK(store->FinishUpload(upload).ok());
}

TEST_CASE("Who starts an upload again, or looks at it, does not wait for the chunk that is being written") {
  TemporaryDirectory directory;
  auto store = OpenAt(directory);
  const UploadId upload("u");
  const std::string bytes(100, 'b');
  REQUIRE(store->StartUpload(upload, 100, Sha256Hex(bytes)).ok());
  REQUIRE(store->WriteChunk(upload, 0, bytes.substr(0, 20)).ok());
  bool is_taken = false;
  // The chunk's writer is here, with the upload's lock: whoever waited for that would wait for ever.
  const auto look = [&](int64_t) {
    is_taken = true;
    CHECK(store->StartUpload(upload, 100, Sha256Hex(bytes))->committed_bytes == 20);
    CHECK(store->StartUpload(upload, 99, Sha256Hex(bytes)).status().code() == absl::StatusCode::kAlreadyExists);
    CHECK(store->GetUpload(upload)->committed_bytes == 20);
  };
  CHECK(*store->WriteChunk(upload, 20, bytes.substr(20, 30), look) == 50);
  CHECK(is_taken);
  // What it was told may be behind: what comes twice changes nothing.
  CHECK(*store->WriteChunk(upload, 20, bytes.substr(20), look) == 100);
  CHECK(store->FinishUpload(upload).ok());
  CHECK(store->GetUpload(upload)->is_finished);
}

TEST_CASE("In memory, a crash forgets what no flush has covered") {
  MemoryPayloadStore store;
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
