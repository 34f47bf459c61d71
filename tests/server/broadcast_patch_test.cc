// Broadcasts that are patches of others: what they stand for, what is refused, and how long what they lie upon stays.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aggregation/wire/safetensors.h"
#include "aggregation/wire/safetensors_patch.h"
#include "base/checksum.h"
#include "server/calls/scope.h"
#include "server/core/broadcasts/broadcast_check.h"
#include "server/core/broadcasts/patched_blob.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Code = absl::StatusCode;
using Verdict = v1::ResultVerdict;

template <typename T>
std::string BytesIn(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

std::string SomeBytes(Random& random, int64_t size) {
  std::string bytes(static_cast<size_t>(size), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.Below(256));
  return bytes;
}

// --- What a chain of patches stands for ---

struct Shape {
  std::string name;
  v1::DType dtype;
  std::vector<int64_t> shape;

  int64_t num_rows() const { return shape.empty() ? 1 : shape.front(); }
  int64_t row_bytes() const {
    int64_t bytes = DTypeSize(dtype);
    for (size_t i = 1; i < shape.size(); ++i) bytes *= shape[i];
    return bytes;
  }
};
// Some have no bytes, and lie where others begin.
const std::vector<Shape> kShapes = {{"a", v1::FLOAT32, {40, 3}},    {"b.indices", v1::INT64, {9}},
                                    {"empty", v1::FLOAT64, {0, 5}}, {"flat", v1::FLOAT32, {6, 0}},
                                    {"many", v1::UINT8, {3000}},    {"scale", v1::FLOAT64, {}},
                                    {"z", v1::UINT8, {17, 1}}};

std::string AWhole(Random& random) {
  std::vector<NamedTensor> tensors;
  for (const Shape& each : kShapes) {
    tensors.push_back({each.name, each.dtype, each.shape, SomeBytes(random, each.num_rows() * each.row_bytes())});
  }
  return EncodeSafetensors(tensors, {});
}

std::string ARandomPatch(Random& random, const std::string& base) {
  std::vector<TensorChange> changes;
  std::map<std::string, std::vector<int64_t>> rows;
  std::map<std::string, std::string> bytes;
  for (const Shape& each : kShapes) {
    const uint64_t kind = random.Below(4);
    if (kind == 0) continue;
    TensorChange change{.tensor = each.name, .dtype = each.dtype, .shape = each.shape};
    if (kind == 1) {
      bytes[each.name] = SomeBytes(random, each.num_rows() * each.row_bytes());
    } else {
      // Some here and there, or runs of them.
      const double share = kind == 2 ? 0.1 : 0.9;
      for (int64_t row = 0; row < each.num_rows(); ++row) {
        if (random.Chance(share)) rows[each.name].push_back(row);
      }
      const auto count = static_cast<int64_t>(rows[each.name].size());
      bytes[each.name] = SomeBytes(random, count * each.row_bytes());
      if (change.shape.empty()) change.shape.push_back(0);
      change.shape.front() = count;
      change.rows = rows[each.name];
    }
    change.data = bytes[each.name];
    changes.push_back(std::move(change));
  }
  return EncodeSafetensorsPatch(base, changes);
}

// A file in memory with its header.
struct File {
  explicit File(const std::string& bytes) : view(std::make_shared<MemoryBlobView>(bytes)) {
    absl::StatusOr<SafetensorsHeader> parsed = ReadSafetensorsHeader(*view, Limits());
    REQUIRE(parsed.ok());
    header = *std::move(parsed);
  }
  SafetensorsBlob blob() const { return {.bytes = view, .header = &header}; }

  std::shared_ptr<MemoryBlobView> view;
  SafetensorsHeader header;
};

std::vector<ByteRange> RandomRanges(Random& random, int64_t size, size_t count) {
  std::vector<ByteRange> ranges;
  for (size_t i = 0; i < count; ++i) {
    const auto offset = static_cast<int64_t>(random.Below(static_cast<uint64_t>(size) + 1));
    const auto most = static_cast<uint64_t>(size - offset);
    const auto length =
        static_cast<int64_t>(random.Below(std::min<uint64_t>(most, random.Chance(0.5) ? 20 : most) + 1));
    ranges.push_back({.offset = offset, .length = length});
  }
  return ranges;
}

TEST_CASE("What a patched blob reads is what its patches make of the file one after the other") {
  SeededRandom random(GENERATE(range(1, 25)));
  std::string file = AWhole(random);
  const File whole(file);
  std::vector<std::unique_ptr<File>> patches;
  std::vector<SafetensorsBlob> layers;
  const uint64_t num_patches = random.Below(7);
  for (uint64_t i = 0; i < num_patches; ++i) {
    const std::string patch = ARandomPatch(random, "the one before");
    REQUIRE(ApplySafetensorsPatch(patch, file).ok());
    patches.push_back(std::make_unique<File>(patch));
    REQUIRE(CheckPatch(*patches.back()->view, patches.back()->header, whole.header).ok());
    layers.push_back(patches.back()->blob());
  }
  const auto opened = PatchedBlob::Open(whole.blob(), layers);
  REQUIRE(opened.ok());
  const PatchedBlob& blob = **opened;
  const auto size = static_cast<int64_t>(file.size());
  REQUIRE(blob.size_bytes() == size);
  REQUIRE(blob.Read(0, size).value() == file);
  REQUIRE(blob.Visit([&](std::string_view bytes) {
                return bytes == file ? absl::OkStatus() : absl::InternalError("other bytes");
              })
              .ok());
  for (int turn = 0; turn < 30; ++turn) {
    const std::vector<ByteRange> ranges = RandomRanges(random, size, random.Below(20));
    std::string expected = "what was there";
    std::string read = expected;
    for (const ByteRange& range : ranges) {
      expected += file.substr(static_cast<size_t>(range.offset), static_cast<size_t>(range.length));
    }
    REQUIRE(blob.Append(ranges, read).ok());
    REQUIRE(read == expected);
  }
}

// Whose bytes cannot be read from `limit` on.
class CutOffView final : public BlobView {
 public:
  CutOffView(std::string bytes, int64_t limit) : whole_(std::move(bytes)), limit_(limit) {}
  int64_t size_bytes() const override { return whole_.size_bytes(); }
  absl::Status Append(std::span<const ByteRange> ranges, std::string& to) const override {
    for (const ByteRange& range : ranges) {
      if (range.offset + range.length > limit_) return absl::DataLossError("it was cut off");
    }
    return whole_.Append(ranges, to);
  }
  absl::Status Visit(const std::function<absl::Status(std::string_view bytes)>&) const override {
    return absl::DataLossError("it was cut off");
  }

 private:
  const MemoryBlobView whole_;
  const int64_t limit_;
};

TEST_CASE("Where one layer of a patched blob is cut off, what is read stays as it was") {
  SeededRandom random(1);
  const std::string file = AWhole(random);
  const File whole(file);
  const std::vector<int64_t> rows = {1, 3};
  const std::string values(24, 'x');
  const TensorChange change = {.tensor = "a", .rows = rows, .dtype = v1::FLOAT32, .shape = {2, 3}, .data = values};
  const std::string patch = EncodeSafetensorsPatch("b", {&change, 1});
  const File parsed(patch);
  // The numbers of the rows can be read, and of the rows the first.
  const auto cut_off = std::make_shared<CutOffView>(patch, static_cast<int64_t>(patch.size()) - 12);
  const SafetensorsBlob layer = {.bytes = cut_off, .header = &parsed.header};
  const auto blob = PatchedBlob::Open(whole.blob(), {&layer, 1});
  REQUIRE(blob.ok());
  const TensorEntry& a = **whole.header.Find("a");
  CHECK((*blob)->Read(a.begin, 2 * a.row_bytes()).value() ==
        file.substr(static_cast<size_t>(a.begin), 12) + std::string(12, 'x'));
  std::string read = "before";
  const ByteRange all = {.offset = 0, .length = (*blob)->size_bytes()};
  CHECK((*blob)->Append({&all, 1}, read).code() == Code::kDataLoss);
  CHECK(read == "before");
}

TEST_CASE("More rows than are read together are patched, and held to their order across that") {
  constexpr int64_t kRows = 200'000;
  std::string file =
      EncodeSafetensors(std::vector<NamedTensor>{{"w", v1::UINT8, {kRows}, std::string(kRows, 'w')}}, {});
  const File whole(file);
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < kRows; row += 2) rows.push_back(row);
  const std::string values(rows.size(), 'x');
  const auto patch_of = [&] {
    const TensorChange change = {
        .tensor = "w", .rows = rows, .dtype = v1::UINT8, .shape = {static_cast<int64_t>(rows.size())}, .data = values};
    return EncodeSafetensorsPatch("b", {&change, 1});
  };
  const std::string patch = patch_of();
  const File parsed(patch);
  REQUIRE(CheckPatch(*parsed.view, parsed.header, whole.header).ok());
  const SafetensorsBlob layer = parsed.blob();
  const auto blob = PatchedBlob::Open(whole.blob(), {&layer, 1});
  REQUIRE(blob.ok());
  CHECK((*blob)->memory_bytes() >= 24 * static_cast<int64_t>(rows.size()));
  REQUIRE(ApplySafetensorsPatch(patch, file).ok());
  CHECK((*blob)->Read(0, (*blob)->size_bytes()).value() == file);

  // Between one part and the next.
  rows[1 << 16] = rows[(1 << 16) - 1];
  const std::string repeats = patch_of();
  const File hostile(repeats);
  CHECK_THAT(std::string(CheckPatch(*hostile.view, hostile.header, whole.header).message()), Contains("\"w\""));
  const SafetensorsBlob unfit = hostile.blob();
  CHECK(PatchedBlob::Open(whole.blob(), {&unfit, 1}).status().code() == Code::kInvalidArgument);
}

// --- Patches of a server's broadcasts ---

// w: 8 rows of 2 floats.
std::string AModel(char fill = 'm') {
  return EncodeSafetensors(std::vector<NamedTensor>{{"w", v1::FLOAT32, {8, 2}, std::string(64, fill)}}, {});
}

std::string PatchOf(const std::string& base, const std::vector<int64_t>& rows, char fill) {
  const std::string values(rows.size() * 8, fill);
  const TensorChange change = {.tensor = "w",
                               .rows = rows,
                               .dtype = v1::FLOAT32,
                               .shape = {static_cast<int64_t>(rows.size()), 2},
                               .data = values};
  return EncodeSafetensorsPatch(Sha256Hex(base), {&change, 1});
}

absl::StatusOr<v1::StartUploadResponse> StartUpload(CoreFederation& server, const std::string& bytes) {
  v1::StartUploadRequest start;
  start.set_request_id("upload");
  start.set_size_bytes(static_cast<int64_t>(bytes.size()));
  start.set_digest(Sha256Hex(bytes));
  return server.Call<v1::StartUploadResponse>("BlobService/StartUpload", start);
}

// An upload that only has to be finished.
v1::FinishUploadRequest AlmostUpload(CoreFederation& server, const std::string& bytes) {
  const auto started = StartUpload(server, bytes);
  REQUIRE(started.ok());
  REQUIRE(started->verdict() == v1::StartUploadResponse::SEND);
  v1::WriteChunkRequest chunk;
  chunk.set_upload_id(started->upload_id());
  chunk.set_data(bytes);
  REQUIRE(server.Call<v1::WriteChunkResponse>("BlobService/WriteChunk", chunk).ok());
  v1::FinishUploadRequest finish;
  finish.set_upload_id(started->upload_id());
  return finish;
}

absl::Status Upload(CoreFederation& server, const std::string& bytes) {
  const v1::FinishUploadRequest finish = AlmostUpload(server, bytes);
  absl::Status status = server.Call<v1::FinishUploadResponse>("BlobService/FinishUpload", finish).status();
  // It has become a broadcast, or was deleted.
  v1::QueryUploadRequest query;
  query.set_upload_id(finish.upload_id());
  CHECK(server.Call<v1::QueryUploadResponse>("BlobService/QueryUpload", query).status().code() == Code::kNotFound);
  return status;
}

std::string Uploaded(CoreFederation& server, const std::string& bytes) {
  const absl::Status status = Upload(server, bytes);
  INFO(status.ToString());
  REQUIRE(status.ok());
  return Sha256Hex(bytes);
}

struct Naming {
  std::string digest = {};
  std::string bytes = {};
  std::string population = {};
  bool validate_only = false;
};

v1::CreateRoundRequest ARequest(const Naming& naming) {
  static int num_requests = 0;
  v1::CreateRoundRequest request;
  request.set_request_id(fmt::format("patched-{}", ++num_requests));
  *request.mutable_spec() = SumRound(1);
  request.mutable_spec()->set_broadcast_digest(naming.digest);
  request.mutable_spec()->set_population(naming.population);
  request.set_broadcast(naming.bytes);
  request.set_validate_only(naming.validate_only);
  return request;
}

absl::StatusOr<v1::Round> Create(CoreFederation& server, const Naming& naming) {
  const auto created = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", ARequest(naming));
  if (!created.ok()) return created.status();
  return created->round();
}

// Its id.
std::string Created(CoreFederation& server, const Naming& naming) {
  const auto created = Create(server, naming);
  INFO(created.status().ToString());
  REQUIRE(created.ok());
  return created->id();
}

void Cancel(CoreFederation& server, const std::string& round) {
  v1::CancelRoundRequest cancel;
  cancel.set_request_id("cancel-" + round);
  cancel.set_round(round);
  REQUIRE(server.Call<v1::CancelRoundResponse>("RoundService/CancelRound", cancel).ok());
}

// An announced round that is opened with it.
absl::StatusOr<v1::Round> Open(CoreFederation& server, const Naming& naming) {
  v1::RoundSpec spec = SumRound(1);
  spec.set_announced(true);
  v1::OpenRoundRequest request;
  request.set_request_id("open");
  request.set_round(server.CreateRound(spec));
  request.set_broadcast_digest(naming.digest);
  request.set_broadcast(naming.bytes);
  const auto opened = server.Call<v1::OpenRoundResponse>("RoundService/OpenRound", request);
  if (opened.ok()) return opened->round();
  Cancel(server, request.round());
  return opened.status();
}

// The ways in which a broadcast comes.
using Bringing = absl::Status (*)(CoreFederation& server, const std::string& bytes);
const std::vector<std::pair<std::string, Bringing>> kWays = {
    {"uploaded", Upload},
    {"inside of CreateRound",
     [](CoreFederation& server, const std::string& bytes) { return Create(server, {.bytes = bytes}).status(); }},
    {"inside of CreateRound, to be validated",
     [](CoreFederation& server, const std::string& bytes) {
       return Create(server, {.bytes = bytes, .validate_only = true}).status();
     }},
    {"inside of OpenRound",
     [](CoreFederation& server, const std::string& bytes) { return Open(server, {.bytes = bytes}).status(); }}};

absl::StatusOr<std::string> ReadBlob(CoreFederation& server, const std::string& digest, bool takes_patches) {
  v1::ReadBlobRequest request;
  request.set_digest(digest);
  request.set_takes_patches(takes_patches);
  const auto read = server.Call<v1::ReadBlobResponse>("BlobService/ReadBlob", request);
  if (!read.ok()) return read.status();
  CHECK(read->size_bytes() == static_cast<int64_t>(read->data().size()));
  return read->data();
}

absl::StatusOr<std::string> SelectRows(CoreFederation& server, const std::string& digest,
                                       const std::vector<int64_t>& rows) {
  v1::SelectRowsRequest request;
  request.set_digest(digest);
  v1::RowSelection& selection = *request.add_selections();
  selection.set_tensor("w");
  for (const int64_t row : rows) selection.add_rows(row);
  const auto selected = server.Call<v1::SelectRowsResponse>("BlobService/SelectRows", request);
  if (!selected.ok()) return selected.status();
  std::string bytes;
  for (const auto& piece : selected->pieces()) bytes += piece.rows().data();
  return bytes;
}

size_t NumBlobs(CoreFederation& server) { return server.payloads().ListBlobs()->size(); }

TEST_CASE("A patch comes like any broadcast; rows are selected from what it stands for, and its own bytes are read") {
  CoreFederation server;
  const std::string base = AModel();
  const auto started = StartUpload(server, base);
  REQUIRE(started.ok());
  CHECK(started->takes_patches());
  Uploaded(server, base);
  const auto again = StartUpload(server, base);
  CHECK(again->verdict() == v1::StartUploadResponse::ALREADY_STORED);
  CHECK(again->takes_patches());

  const std::string first = PatchOf(base, {1, 2}, 'x');
  const std::string second = PatchOf(first, {2, 5}, 'y');
  const std::string third = PatchOf(second, {7}, 'z');
  const std::string first_digest = Uploaded(server, first);
  const auto created = Create(server, {.bytes = second});
  REQUIRE(created.ok());
  CHECK(created->spec().broadcast_digest() == Sha256Hex(second));
  const auto opened = Open(server, {.bytes = third});
  REQUIRE(opened.ok());
  const std::string digest = opened->spec().broadcast_digest();
  CHECK(digest == Sha256Hex(third));

  const auto row = [](char fill) { return std::string(8, fill); };
  CHECK(SelectRows(server, digest, {7, 0, 1, 2, 5, 2}).value() ==
        row('z') + row('m') + row('x') + row('y') + row('y') + row('y'));
  CHECK(SelectRows(server, first_digest, {1, 2, 5}).value() == row('x') + row('x') + row('m'));
  CHECK(SelectRows(server, digest, {8}).status().code() == Code::kOutOfRange);

  const absl::Status whole_only = ReadBlob(server, digest, false).status();
  CHECK(whole_only.code() == Code::kFailedPrecondition);
  CHECK_THAT(std::string(whole_only.message()), Contains(digest) && Contains(Sha256Hex(second)));
  CHECK(ReadBlob(server, digest, true).value() == third);
  for (const bool takes_patches : {false, true}) {
    CHECK(ReadBlob(server, Sha256Hex(base), takes_patches).value() == base);
  }
}

TEST_CASE("A patch that was only validated is not stored") {
  CoreFederation server;
  Uploaded(server, AModel());
  REQUIRE(Create(server, {.bytes = PatchOf(AModel(), {1}, 'x'), .validate_only = true}).ok());
  CHECK(NumBlobs(server) == 1);
}

struct BadPatch {
  std::string what;
  std::string bytes;
  Code code;
  std::vector<std::string> says;
};

void CheckRefused(const Limits& limits, const std::vector<std::string>& stored, const BadPatch& bad) {
  for (const auto& [way, bring] : kWays) {
    INFO(bad.what << ", " << way);
    CoreFederation server(limits);
    for (const std::string& bytes : stored) Uploaded(server, bytes);
    const absl::Status refused = bring(server, bad.bytes);
    INFO(refused.ToString());
    CHECK(refused.code() == bad.code);
    for (const std::string& text : bad.says) CHECK_THAT(std::string(refused.message()), Contains(text));
    CHECK(NumBlobs(server) == stored.size());
    CHECK_FALSE(server.payloads().HasBlob(Sha256Hex(bad.bytes)));
  }
}

TEST_CASE("A patch that does not fit what is stored is refused with a sentence, and nothing of it stays") {
  const std::string base = AModel();
  const std::string text = "text is broadcast, too, and has no rows";
  const auto unsorted = [](const std::string& of) { return PatchOf(of, {2, 1}, 'x'); };
  const std::string other =
      EncodeSafetensors(std::vector<NamedTensor>{{"v", v1::FLOAT32, {1}, "vvvv"}}, {{"sheaf.base", Sha256Hex(base)}});
  const auto naming = [](const std::string& digest) {
    return EncodeSafetensors(std::vector<NamedTensor>(), {{"sheaf.base", digest}});
  };
  const std::string first = PatchOf(base, {1}, 'x');
  const std::vector<BadPatch> patches = {
      {"a base that nobody uploaded",
       PatchOf(AModel('n'), {1}, 'x'),
       Code::kInvalidArgument,
       {"sheaf.base", Sha256Hex(AModel('n')), "upload the whole one"}},
      {"a base that is no digest", naming("model-1"), Code::kInvalidArgument, {"sheaf.base", "model-1"}},
      {"a base without a name", naming(""), Code::kInvalidArgument, {"sheaf.base"}},
      {"a base that is text", PatchOf(text, {1}, 'x'), Code::kInvalidArgument, {Sha256Hex(text), "upload the whole"}},
      {"a tensor that the base lacks", other, Code::kInvalidArgument, {"\"v\""}},
      {"rows out of order", unsorted(base), Code::kInvalidArgument, {"\"w\"", "row 1 after row 2"}},
      {"rows out of order of a patch of a patch", unsorted(first), Code::kInvalidArgument, {"\"w\"", "row 1 after"}},
      {"a row that is not there", PatchOf(base, {8}, 'x'), Code::kInvalidArgument, {"\"w\"", "row 8"}},
      {"a malformed header", PatchOf(base, {1}, 'x') + "more", Code::kInvalidArgument, {"safetensors"}},
  };
  for (const BadPatch& bad : patches) CheckRefused({}, {base, text, first}, bad);
}

TEST_CASE("No more patches lie one upon the other than the limit says") {
  Limits limits;
  limits.broadcast_patches_max = 2;
  const std::string base = AModel();
  const std::string first = PatchOf(base, {1}, 'x');
  const std::string second = PatchOf(first, {1}, 'y');
  const std::string third = PatchOf(second, {1}, 'z');
  CheckRefused(limits, {base, first, second},
               {"a third", third, Code::kResourceExhausted, {"broadcast_patches_max = 2", "upload the whole"}});
  // Beside one that is there is another one.
  CoreFederation server(limits);
  for (const std::string& bytes : {base, first, second, PatchOf(first, {2}, 'y'), PatchOf(base, {3}, 'x')}) {
    Uploaded(server, bytes);
  }
}

TEST_CASE("The patches of a broadcast have no more rows together than the limit says") {
  Limits limits;
  limits.patched_rows_max = 5;
  const std::string base = AModel();
  const std::string first = PatchOf(base, {0, 1, 2}, 'x');
  CheckRefused(limits, {base, first},
               {"six",
                PatchOf(first, {0, 1, 2}, 'y'),
                Code::kResourceExhausted,
                {"patched_rows_max = 5", "6 rows", "upload the whole"}});
  CheckRefused(limits, {base},
               {"six at once",
                PatchOf(base, {0, 1, 2, 3, 4, 5}, 'y'),
                Code::kResourceExhausted,
                {"patched_rows_max = 5", "6 rows"}});
  CoreFederation server(limits);
  for (const std::string& bytes : {base, first, PatchOf(first, {6, 7}, 'y')}) Uploaded(server, bytes);
}

// --- How long they stay ---

// The only task of the only round is done; it has ended.
void End(CoreFederation& server, float value = 1) { REQUIRE(Contribute(server, "w", value) == Verdict::ACCEPTED); }

void Linger(CoreFederation& server) {
  for (int i = 0; i < 5; ++i) server.Advance(Limits().broadcast_linger / 2);
}

// Nothing but what rounds have released.
void CheckOnlyAggregates(CoreFederation& server) {
  const auto blobs = server.payloads().ListBlobs();
  for (const PayloadStore::BlobInfo& blob : *blobs) {
    CHECK(server.store().GetBlobUse(blob.digest).value() == TaskStore::BlobUse::kCurrent);
    const auto file = server.payloads().OpenBlob(blob.digest).value();
    CHECK(FirstOf(file->Read(0, file->size_bytes()).value()) == 1);
  }
}

bool IsStored(CoreFederation& server, const std::string& bytes) { return server.payloads().HasBlob(Sha256Hex(bytes)); }

// A model, a patch of it, and one of that.
struct Chain {
  std::string base = AModel();
  std::string first = PatchOf(base, {1, 2}, 'x');
  std::string second = PatchOf(first, {2}, 'y');

  bool IsWhole(CoreFederation& server) const {
    return IsStored(server, base) && IsStored(server, first) && IsStored(server, second) &&
           SelectRows(server, Sha256Hex(second), {0, 1, 2}).value() ==
               std::string(8, 'm') + std::string(8, 'x') + std::string(8, 'y');
  }
};

TEST_CASE("What a patch lies upon stays as long as it does, and goes with it") {
  const bool restarts = GENERATE(false, true);
  const bool is_inline = GENERATE(false, true);
  CAPTURE(restarts, is_inline);
  CoreFederation server;
  const Chain chain;
  const auto create = [&](const std::string& bytes) {
    is_inline ? Created(server, {.bytes = bytes}) : Created(server, {.digest = Uploaded(server, bytes)});
    if (restarts) server.CrashAndRestart();
  };
  create(chain.base);
  End(server);
  create(chain.first);
  End(server);
  create(chain.second);
  for (int i = 0; i < 5; ++i) Linger(server);
  CHECK(chain.IsWhole(server));
  End(server);
  if (restarts) server.CrashAndRestart();
  // For a moment: the next round may be a patch of it.
  CHECK(chain.IsWhole(server));
  Linger(server);
  for (const std::string& bytes : {chain.base, chain.first, chain.second}) CHECK_FALSE(IsStored(server, bytes));
  CheckOnlyAggregates(server);
}

TEST_CASE("What two patches lie upon goes with the last of them") {
  CoreFederation server;
  const std::string base = AModel();
  const std::string one = PatchOf(base, {1}, 'x');
  const std::string other = PatchOf(base, {2}, 'y');
  Cancel(server, Created(server, {.bytes = base}));
  const std::string of_one = Created(server, {.bytes = one});
  const std::string of_other = Created(server, {.bytes = other});
  Cancel(server, of_one);
  Linger(server);
  CHECK_FALSE(IsStored(server, one));
  CHECK(SelectRows(server, Sha256Hex(other), {1, 2}).value() == std::string(8, 'm') + std::string(8, 'y'));
  Cancel(server, of_other);
  Linger(server);
  CHECK(NumBlobs(server) == 0);
}

TEST_CASE("What a patch lies upon stays when that goes, if a round has it or a program was told that it is there") {
  CoreFederation server;
  const std::string base = AModel();
  const std::string round = Created(server, {.bytes = base});
  Cancel(server, Created(server, {.bytes = PatchOf(base, {1}, 'x')}));
  Linger(server);
  CHECK(NumBlobs(server) == 1);
  Cancel(server, round);
  Cancel(server, Created(server, {.bytes = PatchOf(base, {1}, 'x')}));
  REQUIRE(StartUpload(server, base)->verdict() == v1::StartUploadResponse::ALREADY_STORED);
  server.Advance(Limits().broadcast_linger - absl::Seconds(1));
  CHECK(IsStored(server, base));
  Linger(server);
  for (int i = 0; i < 20; ++i) server.Advance(absl::Minutes(5));
  CHECK(NumBlobs(server) == 0);
}

TEST_CASE("A patch that nobody named goes when it is old, and what it lies upon with it") {
  CoreFederation server;
  const Chain chain;
  Created(server, {.digest = Uploaded(server, chain.base)});
  End(server);
  Uploaded(server, chain.first);
  Uploaded(server, chain.second);
  Linger(server);
  CHECK(chain.IsWhole(server));
  for (int i = 0; i < 30; ++i) server.Advance(absl::Minutes(5));
  CheckOnlyAggregates(server);
}

TEST_CASE("A patch that was uploaded before a restart keeps what it lies upon once a round names it after that") {
  const bool opens = GENERATE(false, true);
  CAPTURE(opens);
  CoreFederation server;
  const Chain chain;
  Created(server, {.digest = Uploaded(server, chain.base)});
  End(server);
  Uploaded(server, chain.first);
  const Naming naming = {.digest = Uploaded(server, chain.second)};
  server.CrashAndRestart();
  const auto named = opens ? Open(server, naming) : Create(server, naming);
  INFO(named.status().ToString());
  REQUIRE(named.ok());
  for (int i = 0; i < 5; ++i) Linger(server);
  CHECK(chain.IsWhole(server));
  End(server);
  Linger(server);
  CheckOnlyAggregates(server);
}

TEST_CASE("A round that names a patch whose base has gone is refused, and says so") {
  CoreFederation server;
  const Chain chain;
  Created(server, {.digest = Uploaded(server, chain.base)});
  End(server);
  Uploaded(server, chain.first);
  const Naming naming = {.digest = Uploaded(server, chain.second)};
  server.CrashAndRestart();
  // Nobody has named what is a patch of it.
  Linger(server);
  REQUIRE_FALSE(IsStored(server, chain.base));
  REQUIRE(IsStored(server, chain.second));
  for (const absl::Status& refused : {Create(server, naming).status(), Open(server, naming).status()}) {
    INFO(refused.ToString());
    CHECK(refused.code() == Code::kInvalidArgument);
    CHECK_THAT(std::string(refused.message()), Contains(Sha256Hex(chain.base)) && Contains("upload the whole"));
  }
}

TEST_CASE("Until it is known what is a patch of what, a server that has just started deletes nothing") {
  CoreFederation server;
  const Chain chain;
  Created(server, {.digest = Uploaded(server, chain.base)});
  End(server);
  Uploaded(server, chain.first);
  Created(server, {.digest = Uploaded(server, chain.second)});
  server.HoldJobs();
  server.CrashAndRestart();
  for (int i = 0; i < 5; ++i) Linger(server);
  CHECK(chain.IsWhole(server));
  server.LetJobsRun();
  for (int i = 0; i < 5; ++i) Linger(server);
  CHECK(chain.IsWhole(server));
  End(server);
  Linger(server);
  CheckOnlyAggregates(server);
}

TEST_CASE("An aggregate that a patch lies upon stays when its round is forgotten, also right after a restart") {
  const bool restarts = GENERATE(false, true);
  CAPTURE(restarts);
  Limits limits;
  limits.ended_rounds_max = 1;
  CoreFederation server(limits);
  const std::string released = server.CreateRound(SumRound(1));
  End(server, 7);
  const std::string aggregate = server.ReadAggregate(released);
  const std::string value = BytesIn<float>({9});
  const std::vector<int64_t> rows = {0};
  const TensorChange change = {.tensor = "x", .rows = rows, .dtype = v1::FLOAT32, .shape = {1}, .data = value};
  v1::RoundSpec spec = SumRound(1);
  spec.mutable_computation()->set_name("nobodys");
  spec.set_broadcast_digest(Uploaded(server, EncodeSafetensorsPatch(Sha256Hex(aggregate), {&change, 1})));
  const std::string patched = server.CreateRound(spec);
  for (int i = 0; i < 3; ++i) {
    server.CreateRound(SumRound(1));
    End(server);
  }
  if (restarts) server.CrashAndRestart();
  server.Advance(absl::Minutes(1));
  v1::GetRoundRequest forgotten;
  forgotten.set_round(released);
  REQUIRE(server.Call<v1::GetRoundResponse>("RoundService/GetRound", forgotten).status().code() == Code::kNotFound);
  CHECK(IsStored(server, aggregate));
  v1::SelectRowsRequest select;
  select.set_digest(spec.broadcast_digest());
  select.add_selections()->set_tensor("x");
  select.mutable_selections(0)->set_all(true);
  const auto selected = server.Call<v1::SelectRowsResponse>("BlobService/SelectRows", select);
  INFO(selected.status().ToString());
  REQUIRE(selected.ok());
  CHECK(selected->pieces(0).rows().data() == BytesIn<float>({9, 7, 7, 7}));
  Cancel(server, patched);
  for (int i = 0; i < 30; ++i) server.Advance(absl::Minutes(5));
  CHECK_FALSE(IsStored(server, aggregate));
}

// Deletes a blob before what is posted later runs.
void DeleteMeanwhile(CoreFederation& server, const std::string& bytes) {
  server.Post([&server, digest = Sha256Hex(bytes)](absl::Time now) {
    REQUIRE(server.core().broadcasts().Delete(digest, now).ok());
  });
}

TEST_CASE("A patch is refused when what it lies upon goes while it is looked at") {
  // As they were uploaded before a restart: nobody has said that the first is a patch.
  CoreFederation server;
  const Chain chain;
  server.payloads().PutBlob(chain.base).value();
  server.payloads().PutBlob(chain.first).value();
  const bool is_next = GENERATE(true, false);
  const std::string gone = is_next ? chain.first : chain.base;
  CAPTURE(is_next);
  absl::Status refused;
  SECTION("and its upload is finished") {
    const v1::FinishUploadRequest finish = AlmostUpload(server, chain.second);
    DeleteMeanwhile(server, gone);
    refused = server.Call<v1::FinishUploadResponse>("BlobService/FinishUpload", finish).status();
    CHECK_FALSE(IsStored(server, chain.second));
  }
  SECTION("and a round names it") {
    const std::string digest = server.payloads().PutBlob(chain.second).value();
    HeldJobs& jobs = server.HoldJobs();
    const auto answer =
        server.CallLater<v1::CreateRoundResponse>("RoundService/CreateRound", ARequest({.digest = digest}));
    DeleteMeanwhile(server, gone);
    REQUIRE(jobs.RunNext("broadcast " + digest));
    server.LetJobsRun();
    REQUIRE(answer->has_value());
    refused = (*answer)->status();
  }
  SECTION("and it comes inside of a call") {
    HeldJobs& jobs = server.HoldJobs();
    const v1::CreateRoundRequest request = ARequest({.bytes = chain.second});
    const auto answer = server.CallLater<v1::CreateRoundResponse>("RoundService/CreateRound", request);
    DeleteMeanwhile(server, gone);
    REQUIRE(jobs.RunNext("broadcast of " + request.request_id()));
    server.LetJobsRun();
    REQUIRE(answer->has_value());
    refused = (*answer)->status();
  }
  INFO(refused.ToString());
  CHECK(refused.code() == Code::kInvalidArgument);
  CHECK_THAT(std::string(refused.message()), Contains(Sha256Hex(gone)) && Contains("upload the whole one"));
}

// --- Who may read them ---

absl::StatusCode Reading(CoreFederation& server, const std::string& population, const std::string& bytes) {
  Identity caller;
  caller.name = "ann";
  caller.populations = {population};
  return CheckBroadcastScope(Sha256Hex(bytes), caller, server.core()).code();
}

TEST_CASE("Who may read a patch may read what it lies upon, and nobody else may") {
  CoreFederation server;
  const Chain chain;
  const std::string others = PatchOf(chain.base, {7}, 'o');
  Uploaded(server, chain.base);
  Uploaded(server, chain.first);
  const std::string in_lab = Created(server, {.bytes = chain.second, .population = "lab"});
  const std::string in_ward = Created(server, {.bytes = others, .population = "ward"});
  const auto check = [&] {
    for (const std::string& bytes : {chain.base, chain.first, chain.second}) {
      CHECK(Reading(server, "lab", bytes) == Code::kOk);
      CHECK(Reading(server, "home", bytes) == Code::kPermissionDenied);
    }
    CHECK(Reading(server, "lab", others) == Code::kPermissionDenied);
    CHECK(Reading(server, "ward", others) == Code::kOk);
    CHECK(Reading(server, "ward", chain.base) == Code::kOk);
    CHECK(Reading(server, "ward", chain.first) == Code::kPermissionDenied);
    CHECK(Reading(server, "ward", chain.second) == Code::kPermissionDenied);
  };
  check();
  for (int i = 0; i < 5; ++i) Linger(server);
  check();

  server.HoldJobs();
  server.CrashAndRestart();
  for (const char* population : {"lab", "ward", "home"}) {
    for (const std::string& bytes : {chain.base, chain.first}) {
      CHECK(Reading(server, population, bytes) == Code::kUnavailable);
    }
  }
  server.LetJobsRun();
  check();

  Cancel(server, in_lab);
  Linger(server);
  for (const char* population : {"lab", "home"}) {
    for (const std::string& bytes : {chain.first, chain.second}) {
      CHECK(Reading(server, population, bytes) == Code::kPermissionDenied);
    }
  }
  CHECK(Reading(server, "ward", chain.base) == Code::kOk);
  Cancel(server, in_ward);
  Linger(server);
  CHECK(Reading(server, "ward", chain.base) == Code::kPermissionDenied);
}

TEST_CASE("Who opens a round with a patch lets its workers read what that lies upon") {
  CoreFederation server;
  const Chain chain;
  Uploaded(server, chain.base);
  v1::RoundSpec spec = SumRound(1);
  spec.set_announced(true);
  spec.set_population("lab");
  v1::OpenRoundRequest request;
  request.set_request_id("open");
  request.set_round(server.CreateRound(spec));
  request.set_broadcast(chain.first);
  CHECK(Reading(server, "lab", chain.base) == Code::kPermissionDenied);
  REQUIRE(server.Call<v1::OpenRoundResponse>("RoundService/OpenRound", request).ok());
  CHECK(Reading(server, "lab", chain.base) == Code::kOk);
  CHECK(Reading(server, "ward", chain.base) == Code::kPermissionDenied);
}

}  // namespace
}  // namespace sheaf
