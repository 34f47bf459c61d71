#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>

#include "workloads/hitters/dataset.h"
#include "workloads/hitters/program.h"
#include "workloads/tags/dataset.h"

namespace sheaf {
namespace {

constexpr char kIndex[] =
    "Package: 0ad\n"
    "Maintainer: Jane Q. Maintainer <jane@example.org>\n"
    "Depends: 0ad-data (>= 0.0.26), libc6:any (>= 2.34),\n"
    " fonts-dejavu-core | ttf-dejavu-core [amd64]\n"
    "Pre-Depends: dpkg (>= 1.15.6~)\n"
    "Description: Real-time strategy game of ancient warfare\n"
    "Tag: game::strategy\n"
    "\n"
    "Package: lonely\n"
    "Maintainer: Solitary Soul <soul@example.org>\n"
    "Description: depends on nothing\n"
    "\n"
    "Package: untagged\n"
    "Maintainer: Jane Q. Maintainer <jane@example.org>\n"
    "Depends: libc6\n"
    "Recommends: libc6, Zoo\n"
    "\n"
    "Package: zlib1g\n"
    "Maintainer: John Doe <doe@example.org>\n"
    "Suggests: 0ad-data\n";

using Counts = std::map<std::string, int64_t>;

Counts CountsOf(const HittersDataset& dataset, int client) {
  Counts counts;
  for (const NameCount& entry : dataset.client(client)) counts[dataset.name(entry.name)] = entry.count;
  return counts;
}

TEST_CASE("A client is a maintainer, with each name its packages depend on and how often") {
  const auto dataset = HittersDataset::ParseAvailable(kIndex);
  REQUIRE(dataset.ok());
  // The maintainer whose package depends on nothing is none; packages without tags count.
  REQUIRE(dataset->num_clients() == 2);
  CHECK(CountsOf(*dataset, 0) ==
        Counts{{"0ad-data", 1}, {"Zoo", 1}, {"dpkg", 1}, {"fonts-dejavu-core", 1}, {"libc6", 3}});
  CHECK(CountsOf(*dataset, 1) == Counts{{"0ad-data", 1}});
  CHECK(dataset->num_occurrences() == 8);
}

TEST_CASE("Names are sorted by their bytes, capitals before small letters") {
  const HittersDataset dataset = HittersDataset::ParseAvailable(kIndex).value();
  REQUIRE(dataset.num_names() == 5);
  CHECK(dataset.name(0) == "0ad-data");
  CHECK(dataset.name(1) == "Zoo");
  CHECK(dataset.name(4) == "libc6");
}

TEST_CASE("The order of the stanzas does not matter to the counts") {
  std::string index = kIndex;
  const size_t last = index.rfind("\n\n");
  const std::string turned = index.substr(last + 2) + "\n" + index.substr(0, last + 1);
  CHECK(HittersDataset::ParseAvailable(turned).value().digest() ==
        HittersDataset::ParseAvailable(kIndex).value().digest());
}

TEST_CASE("No maintainer's name survives in a snapshot of dependencies, and no text but the dependencies'") {
  const std::string bytes = HittersDataset::ParseAvailable(kIndex).value().Serialize();
  for (const char* text :
       {"Jane", "Maintainer", "John", "Doe", "Soul", "example", "@", "zlib", "warfare", "strategy"}) {
    CAPTURE(text);
    CHECK(bytes.find(text) == std::string::npos);
  }
  CHECK(bytes.find("fonts-dejavu-core") != std::string::npos);
}

TEST_CASE("An index without dependencies says to update the package lists") {
  const auto dataset = HittersDataset::ParseAvailable("Package: lonely\nMaintainer: m\n");
  CHECK(dataset.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(dataset.status().message()), Catch::Contains("sudo apt-get update"));
}

TEST_CASE("A snapshot gives the counts back, through a file too") {
  const HittersDataset dataset = HittersDataset::ParseAvailable(kIndex).value();
  const std::string path =
      (std::filesystem::temp_directory_path() / ("sheaf-hitters-" + std::to_string(::getpid()))).string();
  REQUIRE(dataset.Save(path).ok());
  const auto loaded = HittersDataset::Load(path);
  std::filesystem::remove(path);
  REQUIRE(loaded.ok());
  CHECK(loaded->Serialize() == dataset.Serialize());
  CHECK(loaded->digest() == dataset.digest());
  CHECK(CountsOf(*loaded, 0) == CountsOf(dataset, 0));
  CHECK_THAT(HittersDataset::Load("/no/such/snapshot").status().ToString(), Catch::Contains("/no/such/snapshot"));
}

TEST_CASE("A damaged snapshot of dependencies is refused, whichever byte changed and wherever it was cut") {
  const std::string bytes = HittersDataset::ParseAvailable(kIndex).value().Serialize();
  for (size_t i = 0; i < bytes.size(); ++i) {
    CAPTURE(i);
    std::string changed = bytes;
    changed[i] ^= 0x10;
    CHECK_FALSE(HittersDataset::Deserialize(changed).ok());
    CHECK(HittersDataset::Deserialize(bytes.substr(0, i)).status().code() == absl::StatusCode::kDataLoss);
  }
  CHECK_FALSE(HittersDataset::Deserialize(bytes + "x").ok());
}

TEST_CASE("A snapshot of another dataset or version is refused") {
  std::string bytes = HittersDataset::ParseAvailable(kIndex).value().Serialize();
  const std::string tags = TagsDataset::ParseAvailable(kIndex).value().Serialize();
  CHECK(HittersDataset::Deserialize(tags).status().code() == absl::StatusCode::kDataLoss);
  bytes[8] = 2;
  CHECK(HittersDataset::Deserialize(bytes).status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("A part of the clients keeps their counts and only their names") {
  const HittersDataset dataset = HittersDataset::ParseAvailable(kIndex).value();
  const HittersDataset part = dataset.Subset({1});
  CHECK(part.num_clients() == 1);
  CHECK(part.num_names() == 1);
  CHECK(CountsOf(part, 0) == CountsOf(dataset, 1));
}

TEST_CASE("A worker with another package index does not count for a round") {
  const HittersDataset dataset = HittersDataset::ParseAvailable(kIndex).value();
  CHECK(CheckHittersConfig(dataset.digest(), dataset).ok());
  CHECK(CheckHittersConfig(dataset.digest(), dataset.Subset({1})).code() == absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace sheaf
