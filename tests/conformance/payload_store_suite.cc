#include "tests/conformance/payload_store_suite.h"

#include <catch2/catch.hpp>

#include "base/checksum.h"
#include "base/status_macros.h"

#define PAYLOAD_TEST(sentence) PAYLOAD_TEST_NAMED(INTERNAL_CATCH_UNIQUE_NAME(PayloadTest), sentence)
#define PAYLOAD_TEST_NAMED(function, sentence)                                  \
  static void function(PayloadStoreUnderTest& under_test, PayloadStore& store); \
  TEST_CASE(sentence, "[conformance]") {                                        \
    for (const PayloadStoreKind& kind : PayloadStoresUnderTest()) {             \
      DYNAMIC_SECTION("on " << kind.name) {                                     \
        std::unique_ptr<PayloadStoreUnderTest> under_test = kind.make();        \
        function(*under_test, under_test->store());                             \
      }                                                                         \
    }                                                                           \
  }                                                                             \
  static void function([[maybe_unused]] PayloadStoreUnderTest& under_test, [[maybe_unused]] PayloadStore& store)

namespace sheaf {
namespace {

using Code = absl::StatusCode;

const UploadId kUpload{"upload/../one"};
const RoundId kRound{"r-one/.."};

std::string WholeOf(const BlobView& view) {
  const absl::StatusOr<std::string> bytes = view.Read(0, view.size_bytes());
  REQUIRE(bytes.ok());
  return *bytes;
}

void UploadWhole(PayloadStore& store, const UploadId& id, const std::string& bytes) {
  REQUIRE(store.StartUpload(id, static_cast<int64_t>(bytes.size()), Sha256Hex(bytes)).ok());
  REQUIRE(store.WriteChunk(id, 0, bytes).ok());
  REQUIRE(store.FinishUpload(id).ok());
}

PAYLOAD_TEST("An upload of several chunks becomes a blob of its digest") {
  std::string digest = Sha256Hex("hello world");
  auto upload = store.StartUpload(kUpload, 11, digest);
  REQUIRE(upload.ok());
  CHECK(upload->committed_bytes == 0);
  CHECK(*store.WriteChunk(kUpload, 0, "hello ") == 6);
  CHECK(*store.WriteChunk(kUpload, 6, "world") == 11);
  REQUIRE(store.FinishUpload(kUpload).ok());
  REQUIRE(store.FinishUpload(kUpload).ok());
  CHECK(WholeOf(**store.OpenUpload(kUpload)) == "hello world");
  REQUIRE(store.MoveUploadToBlob(kUpload).ok());
  CHECK(store.GetUpload(kUpload).status().code() == Code::kNotFound);
  REQUIRE(store.HasBlob(digest));
  CHECK(WholeOf(**store.OpenBlob(digest)) == "hello world");
  auto blobs = *store.ListBlobs();
  REQUIRE(blobs.size() == 1);
  CHECK(blobs[0].digest == digest);
  CHECK(blobs[0].size_bytes == 11);
  CHECK(*store.GetBlobSize(digest) == 11);
}

PAYLOAD_TEST("Chunks may come again and overlap, but leave no gap and never run past the end") {
  REQUIRE(store.StartUpload(kUpload, 6, Sha256Hex("abcdef")).ok());
  CHECK(*store.WriteChunk(kUpload, 0, "abc") == 3);
  CHECK(*store.WriteChunk(kUpload, 0, "abc") == 3);
  CHECK(*store.WriteChunk(kUpload, 1, "xx") == 3);
  CHECK(store.WriteChunk(kUpload, 4, "ef").status().code() == Code::kOutOfRange);
  CHECK(store.WriteChunk(kUpload, -1, "a").status().code() == Code::kOutOfRange);
  CHECK(store.WriteChunk(kUpload, 3, "defg").status().code() == Code::kOutOfRange);
  CHECK(store.FinishUpload(kUpload).code() == Code::kFailedPrecondition);
  CHECK(store.OpenUpload(kUpload).status().code() == Code::kFailedPrecondition);
  CHECK(store.MoveUploadToBlob(kUpload).code() == Code::kFailedPrecondition);
  CHECK(store.AddUploadToSpool(kUpload, kRound).status().code() == Code::kFailedPrecondition);
  CHECK(*store.WriteChunk(kUpload, 2, "cdef") == 6);
  CHECK(store.FinishUpload(kUpload).ok());
}

PAYLOAD_TEST("A chunk is taken before it is written, unless it is wrong, has come before or is the last") {
  REQUIRE(store.StartUpload(kUpload, 6, Sha256Hex("abcdef")).ok());
  std::vector<int64_t> taken;
  const auto write = [&](int64_t offset, std::string_view data) {
    return store.WriteChunk(kUpload, offset, data, [&](int64_t committed_bytes) { taken.push_back(committed_bytes); });
  };
  CHECK(*write(0, "abc") == 3);
  CHECK(*write(2, "cde") == 5);
  CHECK(taken == std::vector<int64_t>{3, 5});
  CHECK(*write(1, "bc") == 5);
  CHECK(write(6, "").status().code() == Code::kOutOfRange);
  CHECK(write(5, "fg").status().code() == Code::kOutOfRange);
  CHECK(*write(5, "f") == 6);
  CHECK(taken.size() == 2);
  CHECK(store.FinishUpload(kUpload).ok());
}

PAYLOAD_TEST("Uploads are counted, with their announced sizes, until they are gone") {
  CHECK(store.GetUploadUse("").num_uploads == 0);
  REQUIRE(store.StartUpload(UploadId("one-a"), 6, Sha256Hex("abcdef")).ok());
  REQUIRE(store.StartUpload(UploadId("two-a"), 100, Sha256Hex("anything")).ok());
  REQUIRE(store.StartUpload(UploadId("one-b"), 3, Sha256Hex("abc")).ok());
  REQUIRE(store.WriteChunk(UploadId("one-b"), 0, "abc").ok());
  REQUIRE(store.FinishUpload(UploadId("one-b")).ok());
  REQUIRE(store.StartMemoryUpload(UploadId("three-a"), 50, Sha256Hex("unseen")).ok());
  const PayloadStore::UploadUse use = store.GetUploadUse("-a");
  CHECK(use.num_uploads == 4);
  CHECK(use.disk_bytes == 109);
  CHECK(use.memory_bytes == 50);
  CHECK(use.num_matching == 3);
  CHECK(use.matching_disk_bytes == 106);
  CHECK(use.matching_memory_bytes == 50);
  REQUIRE(store.MoveUploadToBlob(UploadId("one-b")).ok());
  REQUIRE(store.DeleteUpload(UploadId("two-a")).ok());
  REQUIRE(store.DeleteUpload(UploadId("three-a")).ok());
  CHECK(store.GetUploadUse("-b").disk_bytes == 6);
  CHECK(store.GetUploadUse("-b").memory_bytes == 0);
  CHECK(store.GetUploadUse("-b").num_matching == 0);
}

PAYLOAD_TEST("An upload in memory is read like any other, and never becomes a blob or part of a spool") {
  const std::string digest = Sha256Hex("hello world");
  REQUIRE(store.StartMemoryUpload(kUpload, 11, digest).ok());
  CHECK(*store.WriteChunk(kUpload, 0, "hello ") == 6);
  CHECK(store.StartMemoryUpload(kUpload, 11, digest)->committed_bytes == 6);
  CHECK(*store.WriteChunk(kUpload, 3, "lo world") == 11);
  REQUIRE(store.FinishUpload(kUpload).ok());
  REQUIRE(store.FinishUpload(kUpload).ok());
  const auto view = store.OpenUpload(kUpload);
  REQUIRE(view.ok());
  CHECK(WholeOf(**view) == "hello world");
  CHECK(store.MoveUploadToBlob(kUpload).code() == Code::kFailedPrecondition);
  CHECK(store.AddUploadToSpool(kUpload, kRound).status().code() == Code::kFailedPrecondition);
  REQUIRE(store.DeleteUpload(kUpload).ok());
  CHECK(WholeOf(**view) == "hello world");
  CHECK(store.GetUpload(kUpload).status().code() == Code::kNotFound);

  const UploadId damaged("damaged");
  REQUIRE(store.StartMemoryUpload(damaged, 11, digest).ok());
  REQUIRE(store.WriteChunk(damaged, 0, "hello wurld").ok());
  CHECK(store.FinishUpload(damaged).code() == Code::kDataLoss);
  CHECK(store.GetUpload(damaged).status().code() == Code::kNotFound);
}

PAYLOAD_TEST("Starting an upload again returns it as it is; as another one it is refused") {
  REQUIRE(store.StartUpload(kUpload, 6, Sha256Hex("abcdef")).ok());
  REQUIRE(store.WriteChunk(kUpload, 0, "abc").ok());
  CHECK(store.StartUpload(kUpload, 6, Sha256Hex("abcdef"))->committed_bytes == 3);
  CHECK(store.StartUpload(kUpload, 7, Sha256Hex("abcdef")).status().code() == Code::kAlreadyExists);
  CHECK(store.StartUpload(kUpload, 6, Sha256Hex("other")).status().code() == Code::kAlreadyExists);
  CHECK(store.StartUpload(UploadId("u"), 6, "../../etc").status().code() == Code::kInvalidArgument);
  CHECK(store.StartUpload(UploadId("u"), -1, Sha256Hex("")).status().code() == Code::kInvalidArgument);
  CHECK(store.GetUpload(UploadId("u")).status().code() == Code::kNotFound);
}

PAYLOAD_TEST("An upload whose bytes are others than announced is deleted") {
  REQUIRE(store.StartUpload(kUpload, 3, Sha256Hex("abc")).ok());
  REQUIRE(store.WriteChunk(kUpload, 0, "abd").ok());
  CHECK(store.FinishUpload(kUpload).code() == Code::kDataLoss);
  CHECK(store.GetUpload(kUpload).status().code() == Code::kNotFound);
  CHECK(store.FinishUpload(kUpload).code() == Code::kNotFound);
  CHECK(store.WriteChunk(kUpload, 0, "abc").status().code() == Code::kNotFound);
}

PAYLOAD_TEST("An upload of nothing can be finished") {
  UploadWhole(store, kUpload, "");
  REQUIRE(store.MoveUploadToBlob(kUpload).ok());
  CHECK(WholeOf(**store.OpenBlob(Sha256Hex(""))).empty());
}

PAYLOAD_TEST("An unfinished upload is resumed after a restart, a finished one is still finished") {
  REQUIRE(store.StartUpload(kUpload, 6, Sha256Hex("abcdef")).ok());
  REQUIRE(store.WriteChunk(kUpload, 0, "abc").ok());
  UploadWhole(store, UploadId("done"), "done");
  under_test.Reopen();
  PayloadStore& again = under_test.store();
  CHECK(again.GetUpload(kUpload)->committed_bytes == 3);
  CHECK(*again.WriteChunk(kUpload, 3, "def") == 6);
  CHECK(again.FinishUpload(kUpload).ok());
  CHECK(WholeOf(**again.OpenUpload(kUpload)) == "abcdef");
  CHECK(again.GetUpload(UploadId("done"))->is_finished);
  CHECK(WholeOf(**again.OpenUpload(UploadId("done"))) == "done");
}

PAYLOAD_TEST("Whose uploads there are is known after a restart, before anybody asks for one") {
  REQUIRE(store.StartUpload(UploadId("c-one-tag"), 6, Sha256Hex("abcdef")).ok());
  UploadWhole(store, UploadId("c-two-tag"), "abc");
  REQUIRE(store.StartUpload(UploadId("c/three.gat"), 6, Sha256Hex("abcdef")).ok());
  under_test.Reopen();
  const PayloadStore::UploadUse use = under_test.store().GetUploadUse("tag");
  CHECK(use.num_uploads == 3);
  CHECK(use.num_matching == 2);
  CHECK(under_test.store().GetUploadUse(".gat").num_matching == 1);
}

PAYLOAD_TEST("Deleted and stale uploads are gone") {
  UploadWhole(store, kUpload, "abc");
  UploadWhole(store, UploadId("two"), "abc");
  REQUIRE(store.DeleteUpload(kUpload).ok());
  REQUIRE(store.DeleteUpload(kUpload).ok());
  CHECK(store.GetUpload(kUpload).status().code() == Code::kNotFound);
  CHECK(store.DeleteStaleUploads(absl::FromUnixSeconds(1000), absl::Seconds(1)) == 0);
  CHECK(store.DeleteStaleUploads(absl::FromUnixSeconds(1001), absl::Seconds(1)) == 1);
  CHECK(store.GetUpload(UploadId("two")).status().code() == Code::kNotFound);
}

PAYLOAD_TEST(
    "An upload is stale when nobody used it for so long by the times that the store is told, and by no clock") {
  constexpr absl::Duration kKeep = absl::Minutes(10);
  // Long ago, and long after what any machine's clock says.
  for (const absl::Time start : {absl::FromUnixSeconds(1000), absl::FromUnixSeconds(1'000'000'000'000)}) {
    const auto look = [&](int minutes) {
      return under_test.store().DeleteStaleUploads(start + absl::Minutes(minutes), kKeep);
    };
    const UploadId written("written");
    const UploadId memory("memory");
    REQUIRE(under_test.store().StartUpload(written, 6, Sha256Hex("abcdef")).ok());
    REQUIRE(under_test.store().StartMemoryUpload(memory, 6, Sha256Hex("abcdef")).ok());
    CHECK(look(0) == 0);
    CHECK(look(9) == 0);
    // Each use makes it new.
    REQUIRE(under_test.store().WriteChunk(written, 0, "abc").ok());
    REQUIRE(under_test.store().StartMemoryUpload(memory, 6, Sha256Hex("abcdef")).ok());
    CHECK(look(11) == 0);
    REQUIRE(under_test.store().WriteChunk(written, 3, "def").ok());
    CHECK(look(20) == 0);
    REQUIRE(under_test.store().FinishUpload(written).ok());
    CHECK(look(21) == 1);
    CHECK(under_test.store().GetUpload(memory).status().code() == Code::kNotFound);
    CHECK(look(30) == 0);
    CHECK(look(31) == 1);
    CHECK(under_test.store().GetUpload(written).status().code() == Code::kNotFound);
  }
}

PAYLOAD_TEST("A blob is stored once, read until it is deleted, and an open view outlives it") {
  std::string digest = *store.PutBlob("bytes");
  CHECK(digest == Sha256Hex("bytes"));
  CHECK(*store.PutBlob("bytes") == digest);
  CHECK(store.ListBlobs()->size() == 1);
  auto view = *store.OpenBlob(digest);
  const absl::StatusOr<PayloadStore::BlobRemains> remains = store.DeleteBlob(digest),
                                                  nothing = store.DeleteBlob(digest);
  REQUIRE((remains.ok() && nothing.ok()));
  CHECK(*remains != nullptr);
  CHECK(*nothing == nullptr);
  CHECK_FALSE(store.HasBlob(digest));
  CHECK(store.OpenBlob(digest).status().code() == Code::kNotFound);
  CHECK(WholeOf(*view) == "bytes");
  CHECK(store.GetBlobSize(digest).status().code() == Code::kNotFound);
  CHECK_FALSE(store.HasBlob("../uploads"));
  CHECK(store.OpenBlob("../uploads").status().code() == Code::kNotFound);
}

PAYLOAD_TEST("An upload whose blob exists already still becomes that blob") {
  std::string digest = *store.PutBlob("bytes");
  UploadWhole(store, kUpload, "bytes");
  REQUIRE(store.MoveUploadToBlob(kUpload).ok());
  CHECK(WholeOf(**store.OpenBlob(digest)) == "bytes");
  CHECK(store.ListBlobs()->size() == 1);
}

PAYLOAD_TEST("What was appended to a spool is read back by its reference, also after a restart") {
  auto first = store.AppendToSpool(kRound, "one");
  auto second = store.AppendToSpool(kRound, "");
  auto third = store.AppendToSpool(kRound, "three");
  auto other = store.AppendToSpool(RoundId("r-two"), "other");
  REQUIRE(store.SyncSpools().ok());
  CHECK(first->segment >= 1);
  under_test.Reopen();
  PayloadStore& again = under_test.store();
  CHECK(*again.ReadFromSpool(kRound, *first) == "one");
  CHECK(again.ReadFromSpool(kRound, *second)->empty());
  CHECK(*again.ReadFromSpool(kRound, *third) == "three");
  CHECK(*again.ReadFromSpool(RoundId("r-two"), *other) == "other");
  auto later = again.AppendToSpool(kRound, "later");
  CHECK(*again.ReadFromSpool(kRound, *later) == "later");
  CHECK(*again.ReadFromSpool(kRound, *third) == "three");
}

PAYLOAD_TEST("A reference that does not fit its bytes is DATA_LOSS") {
  SpoolRef ref = *store.AppendToSpool(kRound, "twelve bytes");
  for (SpoolRef wrong :
       {SpoolRef{ref.segment, ref.offset + 1, ref.length - 1, ref.crc},
        SpoolRef{ref.segment, ref.offset, ref.length + 1, ref.crc},
        SpoolRef{ref.segment, ref.offset, ref.length, ref.crc ^ 1}, SpoolRef{ref.segment, -5, ref.length, ref.crc}}) {
    CHECK(store.ReadFromSpool(kRound, wrong).status().code() == Code::kDataLoss);
  }
  CHECK(store.ReadFromSpool(kRound, {.segment = 77}).status().code() == Code::kNotFound);
  CHECK(store.ReadFromSpool(RoundId("r-none"), ref).status().code() == Code::kNotFound);
}

PAYLOAD_TEST("Rolling a spool begins a new segment, and deleting spares the newer ones") {
  CHECK(*store.RollSpool(kRound) == 0);
  SpoolRef old = *store.AppendToSpool(kRound, "old");
  int64_t through = *store.RollSpool(kRound);
  CHECK(through == old.segment);
  CHECK(*store.RollSpool(kRound) == through);
  SpoolRef fresh = *store.AppendToSpool(kRound, "fresh");
  CHECK(fresh.segment > through);
  REQUIRE(store.SyncSpools().ok());
  REQUIRE(store.DeleteSpoolSegments(kRound, through).ok());
  REQUIRE(store.DeleteSpoolSegments(kRound, through).ok());
  CHECK(store.ReadFromSpool(kRound, old).status().code() == Code::kNotFound);
  CHECK(*store.ReadFromSpool(kRound, fresh) == "fresh");
  REQUIRE(store.DeleteSpoolSegments(kRound, fresh.segment).ok());
  CHECK(store.AppendToSpool(kRound, "next")->segment > fresh.segment);
  REQUIRE(store.DeleteSpoolSegments(RoundId("r-none"), 5).ok());
}

PAYLOAD_TEST("A finished upload becomes a segment of its own") {
  SpoolRef before = *store.AppendToSpool(kRound, "before");
  UploadWhole(store, kUpload, "large");
  auto ref = store.AddUploadToSpool(kUpload, kRound);
  REQUIRE(ref.ok());
  CHECK(ref->segment > before.segment);
  CHECK(ref->length == 5);
  CHECK(*store.ReadFromSpool(kRound, *ref) == "large");
  // Nobody knows yet whether it will be recorded.
  CHECK(store.GetUpload(kUpload)->is_finished);
  REQUIRE(store.DeleteUpload(kUpload).ok());
  CHECK(store.GetUpload(kUpload).status().code() == Code::kNotFound);
  CHECK(*store.ReadFromSpool(kRound, *ref) == "large");
  SpoolRef after = *store.AppendToSpool(kRound, "after");
  CHECK(after.segment > ref->segment);
  REQUIRE(store.SyncSpools().ok());
  under_test.Reopen();
  CHECK(*under_test.store().ReadFromSpool(kRound, *ref) == "large");
  CHECK(*under_test.store().ReadFromSpool(kRound, before) == "before");
  SpoolRef wrong = *ref;
  wrong.crc ^= 1;
  CHECK(under_test.store().ReadFromSpool(kRound, wrong).status().code() == Code::kDataLoss);
}

PAYLOAD_TEST("Checkpoints are read back whole, and all but the newest are deleted") {
  std::string state(100'000, 'x');
  REQUIRE(store.PutCheckpoint(kRound, "c-1", "old").ok());
  REQUIRE(store.PutCheckpoint(kRound, "c-2", state).ok());
  CHECK(*store.ReadCheckpoint(kRound, "c-1") == "old");
  REQUIRE(store.DeleteCheckpointsExcept(kRound, "c-2").ok());
  CHECK(store.ReadCheckpoint(kRound, "c-1").status().code() == Code::kNotFound);
  under_test.Reopen();
  CHECK(*under_test.store().ReadCheckpoint(kRound, "c-2") == state);
  REQUIRE(under_test.store().DeleteCheckpointsExcept(kRound, "").ok());
  CHECK(under_test.store().ReadCheckpoint(kRound, "c-2").status().code() == Code::kNotFound);
  CHECK(under_test.store().PutCheckpoint(kRound, "../x", "").code() == Code::kInvalidArgument);
}

PAYLOAD_TEST("A checkpoint given in pieces is read back whole, and one that ends in an error is not there") {
  std::string state;
  const auto write = [&](const ByteSink& take) -> absl::Status {
    state.clear();
    for (int i = 0; i < 200; ++i) {
      // Some small, some large; together more than is flushed at once.
      const std::string piece(i % 3 == 0 ? 300'000 : 17, static_cast<char>('a' + i % 26));
      state += piece;
      RETURN_IF_ERROR(take(piece));
    }
    return absl::OkStatus();
  };
  REQUIRE(store.WriteCheckpoint(kRound, "c-1", write).ok());
  CHECK(*store.ReadCheckpoint(kRound, "c-1") == state);
  const auto fail = [&](const ByteSink& take) -> absl::Status {
    RETURN_IF_ERROR(write(take));
    return absl::CancelledError("stopped");
  };
  CHECK(store.WriteCheckpoint(kRound, "c-2", fail).code() == Code::kCancelled);
  under_test.Reopen();
  CHECK(*under_test.store().ReadCheckpoint(kRound, "c-1") == state);
  CHECK(under_test.store().ReadCheckpoint(kRound, "c-2").status().code() == Code::kNotFound);
}

PAYLOAD_TEST("Nothing of a deleted round is left") {
  SpoolRef ref = *store.AppendToSpool(kRound, "one");
  REQUIRE(store.PutCheckpoint(kRound, "c", "state").ok());
  REQUIRE(store.PutCheckpoint(RoundId("r-two"), "c", "state").ok());
  CHECK(*store.ListRounds() == std::vector<RoundId>{kRound, RoundId("r-two")});
  REQUIRE(store.DeleteRound(kRound).ok());
  REQUIRE(store.DeleteRound(kRound).ok());
  CHECK(*store.ListRounds() == std::vector<RoundId>{RoundId("r-two")});
  CHECK(store.ReadFromSpool(kRound, ref).status().code() == Code::kNotFound);
  CHECK(store.SyncSpools().ok());
}

}  // namespace
}  // namespace sheaf
