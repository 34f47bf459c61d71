// The whole file of a broadcast that may be a patch: what is read for it, and what comes of that.
#include "sdk/cpp/client/broadcast_fetch.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "aggregation/wire/safetensors.h"
#include "aggregation/wire/safetensors_patch.h"
#include "base/checksum.h"
#include "tests/sdk/program_local_server.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Code = absl::StatusCode;

std::string AModel() {
  return EncodeSafetensors(std::vector<NamedTensor>{{"w", v1::UINT8, {2000}, std::string(2000, 'm')}}, {});
}

std::string PatchOf(const std::string& base, const std::vector<int64_t>& rows, char fill) {
  const std::string values(rows.size(), fill);
  const TensorChange change = {
      .tensor = "w", .rows = rows, .dtype = v1::UINT8, .shape = {static_cast<int64_t>(rows.size())}, .data = values};
  return EncodeSafetensorsPatch(Sha256Hex(base), {&change, 1});
}

// A model and three patches one upon the other, which a server has.
struct Chain {
  explicit Chain(LocalServer& server) {
    server.set_takes_patches(true);
    server.set_answer_bytes_max(300);
    for (const std::string& bytes : files) {
      if (&bytes != &files.front()) REQUIRE(ApplySafetensorsPatch(bytes, wholes.emplace_back(wholes.back())).ok());
      REQUIRE(UploadBlob(server, random, bytes).ok());
    }
  }
  std::string digest(size_t i) const { return Sha256Hex(files[i]); }
  int64_t size(size_t i) const { return static_cast<int64_t>(files[i].size()); }

  SeededRandom random{1};
  const std::string base = AModel();
  const std::string first = PatchOf(base, {1, 2, 3}, 'x');
  const std::string second = PatchOf(first, {2, 1999}, 'y');
  const std::string third = PatchOf(second, {0, 3}, 'z');
  const std::vector<std::string> files = {base, first, second, third};
  // What each stands for.
  std::vector<std::string> wholes = {base};
};

TEST_CASE("Of a patch the whole file comes, with all that it lies upon") {
  LocalServer server;
  const Chain chain(server);
  for (size_t i = 0; i < chain.files.size(); ++i) {
    BroadcastFetch fetch(chain.digest(i), {});
    REQUIRE(RunBlocking(server, fetch).ok());
    CHECK(fetch.TakeBytes() == chain.wholes[i]);
    int64_t read = 0;
    for (size_t below = 0; below <= i; ++below) read += chain.size(below);
    CHECK(fetch.bytes_received() == read);
  }
}

TEST_CASE("What is at hand is not read, but only the patches upon it") {
  LocalServer server;
  const Chain chain(server);
  const size_t known = GENERATE(0u, 1u, 2u);
  CAPTURE(known);
  std::vector<std::string> asked;
  BroadcastFetch fetch(chain.digest(3), {.find = [&](const std::string& digest) {
                         asked.push_back(digest);
                         return digest == chain.digest(known) ? std::make_shared<const std::string>(chain.wholes[known])
                                                              : nullptr;
                       }});
  REQUIRE(RunBlocking(server, fetch).ok());
  CHECK(fetch.TakeBytes() == chain.wholes[3]);
  int64_t read = 0;
  std::vector<std::string> bases;
  for (size_t i = 3; i > known; --i) {
    read += chain.size(i);
    bases.push_back(chain.digest(i - 1));
  }
  CHECK(fetch.bytes_received() == read);
  CHECK(asked == bases);
}

TEST_CASE("What others have at hand stays as it was") {
  LocalServer server;
  const Chain chain(server);
  const auto kept = std::make_shared<const std::string>(chain.base);
  BroadcastFetch fetch(chain.digest(1), {.find = [&](const std::string&) { return kept; }});
  REQUIRE(RunBlocking(server, fetch).ok());
  CHECK(fetch.TakeBytes() == chain.wholes[1]);
  CHECK(*kept == chain.base);
}

TEST_CASE("A file that is no patch, or no safetensors file, comes as it is") {
  LocalServer server;
  SeededRandom random(1);
  for (const std::string& bytes : {std::string(), std::string("text"), AModel(), AModel().substr(0, 100)}) {
    const auto digest = UploadBlob(server, random, bytes);
    REQUIRE(digest.ok());
    BroadcastFetch fetch(*digest, {});
    REQUIRE(RunBlocking(server, fetch).ok());
    CHECK(fetch.TakeBytes() == bytes);
  }
}

TEST_CASE("A patch that does not fit what it lies upon is DATA_LOSS, and names the broadcast and the tensor") {
  LocalServer server;
  SeededRandom random(1);
  // It takes everything: it does not know of patches.
  const std::string base = AModel();
  const std::string unfit = PatchOf(base, {5, 4}, 'x');
  for (const std::string& bytes : {base, unfit}) REQUIRE(UploadBlob(server, random, bytes).ok());
  const bool is_at_hand = GENERATE(false, true);
  CAPTURE(is_at_hand);
  BroadcastFetch fetch(Sha256Hex(unfit), {.find = [&](const std::string&) {
                         return is_at_hand ? std::make_shared<const std::string>(base) : nullptr;
                       }});
  const absl::Status status = RunBlocking(server, fetch);
  CHECK(status.code() == Code::kDataLoss);
  CHECK_THAT(std::string(status.message()), Contains(Sha256Hex(unfit)) && Contains("\"w\""));
}

TEST_CASE("A patch upon what is gone, or is no safetensors file, is no broadcast") {
  LocalServer server;
  SeededRandom random(1);
  const std::string on_nothing = PatchOf(AModel(), {1}, 'x');
  const std::string on_text = PatchOf("text", {1}, 'x');
  for (const std::string& bytes : {on_nothing, on_text, std::string("text")}) {
    REQUIRE(UploadBlob(server, random, bytes).ok());
  }
  BroadcastFetch gone(Sha256Hex(on_nothing), {});
  CHECK(RunBlocking(server, gone).code() == Code::kNotFound);
  BroadcastFetch unfit(Sha256Hex(on_text), {});
  CHECK(RunBlocking(server, unfit).code() == Code::kDataLoss);
}

TEST_CASE(
    "No file of a broadcast is larger than the reader takes, and all that it is made of is no more than twice that") {
  LocalServer server;
  const Chain chain(server);
  int64_t total = 0;
  for (size_t i = 0; i < chain.files.size(); ++i) total += chain.size(i);
  const int64_t enough = std::max(chain.size(0), (total + 1) / 2);
  for (const bool is_enough : {true, false}) {
    BroadcastFetch fetch(chain.digest(3), {.bytes_max = is_enough ? enough : enough - 1});
    CHECK(RunBlocking(server, fetch).code() == (is_enough ? Code::kOk : Code::kResourceExhausted));
  }
  // Also what need not be read.
  BroadcastFetch fetch(chain.digest(3), {.find =
                                             [&](const std::string& digest) {
                                               return digest == chain.digest(2)
                                                          ? std::make_shared<const std::string>(chain.wholes[2])
                                                          : nullptr;
                                             },
                                         .bytes_max = chain.size(0) - 1});
  CHECK(RunBlocking(server, fetch).code() == Code::kResourceExhausted);
}

}  // namespace
}  // namespace sheaf
