#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "base/random.h"
#include "workloads/tags/dataset.h"

namespace sheaf {
namespace {

constexpr char kIndex[] =
    "Package: 0ad\n"
    "Maintainer: Jane Q. Maintainer <jane@example.org>\n"
    "Depends: 0ad-data (>= 0.0.26), libc6:any (>= 2.34),\n"
    " fonts-dejavu-core | ttf-dejavu-core [amd64], libstdc++6 <!nocheck>\n"
    "Pre-Depends: dpkg (>= 1.15.6~)\n"
    "Description: Real-time strategy game of ancient warfare\n"
    " A long description that is not always there.\n"
    "Tag: game::strategy, role::program,\n"
    " uitoolkit::sdl\n"
    "Section: games\n"
    "\n"
    "Package: untagged\n"
    "Maintainer: Jane Q. Maintainer <jane@example.org>\n"
    "Description: no tags, no example\n"
    "\n"
    "Package: zlib1g\n"
    "Maintainer: John Doe <doe@example.org>\n"
    "Suggests: 0ad-data\n"
    "Description: Compression library\n"
    "Tag: role::shared-lib, role::program\n"
    "\n"
    "Package: python3-game\n"
    "Maintainer: Jane Q. Maintainer <jane@example.org>\n"
    "Recommends: python3\n"
    "Description: game of C++ and snakes\n"
    "Tag: role::program\n";

TEST_CASE("A stanza's fields are read, folded lines included") {
  const std::vector<PackageStanza> packages = ParsePackageIndex(kIndex);
  REQUIRE(packages.size() == 4);
  CHECK(packages[0].package == "0ad");
  CHECK(packages[0].description == "Real-time strategy game of ancient warfare");
  CHECK(TagNames(packages[0].tags) ==
        std::vector<std::string_view>{"game::strategy", "role::program", "uitoolkit::sdl"});
  CHECK(packages[0].relations.size() == 2);
  CHECK(packages[1].tags.empty());
  CHECK(packages[3].package == "python3-game");
}

TEST_CASE("Of a dependency the first alternative counts, without version, architecture and profile") {
  CHECK(RelationNames("0ad-data (>= 0.0.26), libc6:any (>= 2.34),\n fonts-dejavu-core | ttf-dejavu-core [amd64], "
                      "libstdc++6 <!nocheck>,libx(<< 2),a|b, ,") ==
        std::vector<std::string_view>{"0ad-data", "libc6", "fonts-dejavu-core", "libstdc++6", "libx", "a"});
  CHECK(RelationNames("").empty());
}

TEST_CASE("Words are lower-case, begin with a letter and have two characters or more, in any locale") {
  CHECK(Words("Real-time C++ 3D game, a 0ad UTF-8 caf\xc3\xa9 x11R6") ==
        std::vector<std::string>{"real", "time", "c++", "game", "ad", "utf", "caf", "x11r6"});
}

TEST_CASE("Examples are the packages with tags, grouped by maintainer") {
  const auto dataset = TagsDataset::ParseAvailable(kIndex);
  REQUIRE(dataset.ok());
  CHECK(dataset->num_examples() == 3);
  CHECK(dataset->num_clients() == 2);
  CHECK(dataset->ClientExamples(0) == std::pair(0, 2));
  CHECK(dataset->ClientExamples(1) == std::pair(2, 3));
  // The most frequent tag is label 0; equally frequent ones are ordered by name.
  CHECK(dataset->num_labels() == 4);
  CHECK(dataset->label_name(0) == "role::program");
  CHECK(dataset->label_name(1) == "game::strategy");
  CHECK(dataset->example(0).labels.size() == 3);
  // "ad", five words of the description (of, a dependency, is another feature than the word), five dependencies.
  CHECK(dataset->example(0).features.size() == 13);
}

TEST_CASE("Only the most frequent tags are labels") {
  const auto dataset = TagsDataset::ParseAvailable(kIndex, {.num_labels = 1});
  REQUIRE(dataset.ok());
  CHECK(dataset->num_labels() == 1);
  CHECK(dataset->label_name(0) == "role::program");
}

TEST_CASE("The order of the stanzas does not matter") {
  std::string index = kIndex;
  const size_t last = index.rfind("\n\n");
  const std::string turned = index.substr(last + 2) + "\n" + index.substr(0, last + 1);
  CHECK(TagsDataset::ParseAvailable(turned).value().Serialize() ==
        TagsDataset::ParseAvailable(kIndex).value().Serialize());
}

TEST_CASE("A tenth of the maintainers is held out, the same ones for the same seed") {
  std::string index;
  for (int i = 0; i < 200; ++i) {
    index += "Package: p" + std::to_string(i) + "\nMaintainer: m" + std::to_string(i) + "\nTag: a::b\n\n";
  }
  const TagsDataset dataset = TagsDataset::ParseAvailable(index).value();
  CHECK(dataset.num_clients() == 200);
  CHECK(dataset.TrainingClients().size() == 180);
  CHECK(TagsDataset::ParseAvailable(index).value().TrainingClients() == dataset.TrainingClients());
  CHECK(TagsDataset::ParseAvailable(index, {.held_out_seed = 2}).value().TrainingClients() !=
        dataset.TrainingClients());
}

TEST_CASE("No maintainer's name and no word of a package survives in a snapshot") {
  const std::string bytes = TagsDataset::ParseAvailable(kIndex).value().Serialize();
  for (const char* text : {"Jane", "jane", "Maintainer", "maintainer", "John", "Doe", "doe", "example", "@", "zlib",
                           "warfare", "python", "libc6"}) {
    CAPTURE(text);
    CHECK(bytes.find(text) == std::string::npos);
  }
  CHECK(bytes.find("game::strategy") != std::string::npos);
}

TEST_CASE("An index without tagged packages says to update the package lists") {
  const auto dataset = TagsDataset::ParseAvailable("Package: lonely\nMaintainer: m\n");
  CHECK(dataset.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(dataset.status().message()), Catch::Contains("sudo apt-get update"));
}

TEST_CASE("A command that is missing, fails or prints nothing is told apart, with the remedy") {
  const auto message = [](const char* command) {
    const auto index = ReadPackageIndex(command);
    CHECK(index.status().code() == absl::StatusCode::kFailedPrecondition);
    return std::string(index.status().message());
  };
  CHECK_THAT(message("sheaf-no-such-command dumpavail"), Catch::Contains("was not found"));
  CHECK_THAT(message("false"), Catch::Contains("failed") && Catch::Contains("sudo apt-get update"));
  CHECK_THAT(message("true"), Catch::Contains("printed nothing") && Catch::Contains("sudo apt-get update"));
  CHECK(ReadPackageIndex("printf 'Package: a'").value() == "Package: a");
}

TEST_CASE("A selector names a client of the dataset or is refused") {
  const TagsDataset dataset = TagsDataset::ParseAvailable(kIndex).value();
  CHECK(ParseTagsSelector(TagsSelector(1), dataset).value() == 1);
  for (const char* selector : {"", "client:", "client:2", "client:-1", "client:1x", "client: 1", "1", "row:1",
                               "client:99999999999999999999"}) {
    CAPTURE(selector);
    CHECK(ParseTagsSelector(selector, dataset).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("A snapshot gives the dataset back, through a file too") {
  const TagsDataset dataset = TagsDataset::ParseAvailable(kIndex).value();
  const std::string path =
      (std::filesystem::temp_directory_path() / ("sheaf-tags-" + std::to_string(::getpid()))).string();
  REQUIRE(dataset.Save(path).ok());
  const auto loaded = TagsDataset::Load(path);
  std::filesystem::remove(path);
  REQUIRE(loaded.ok());
  CHECK(loaded->Serialize() == dataset.Serialize());
  CHECK(loaded->num_features() == dataset.num_features());
  CHECK(loaded->is_held_out(0) == dataset.is_held_out(0));
}

TEST_CASE("A snapshot that cannot be read or written is named") {
  CHECK_THAT(TagsDataset::Load("/no/such/snapshot").status().ToString(), Catch::Contains("/no/such/snapshot"));
  const TagsDataset dataset = TagsDataset::ParseAvailable(kIndex).value();
  CHECK_THAT(dataset.Save("/no/such/snapshot").ToString(), Catch::Contains("/no/such/snapshot"));
}

TEST_CASE("A damaged snapshot is refused, whichever byte changed and wherever it was cut") {
  const std::string bytes = TagsDataset::ParseAvailable(kIndex).value().Serialize();
  for (size_t i = 0; i < bytes.size(); ++i) {
    CAPTURE(i);
    std::string changed = bytes;
    changed[i] ^= 0x10;
    CHECK_FALSE(TagsDataset::Deserialize(changed).ok());
    CHECK(TagsDataset::Deserialize(bytes.substr(0, i)).status().code() == absl::StatusCode::kDataLoss);
  }
  CHECK_FALSE(TagsDataset::Deserialize(bytes + "x").ok());
}

TEST_CASE("A snapshot of a newer version is refused by its version") {
  std::string bytes = TagsDataset::ParseAvailable(kIndex).value().Serialize();
  bytes[8] = 2;
  CHECK(TagsDataset::Deserialize(bytes).status().code() == absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace sheaf
