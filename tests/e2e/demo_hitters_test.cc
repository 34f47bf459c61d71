// The counts that the federation releases are those of `sort | uniq -c`.
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/e2e/processes.h"
#include "workloads/hitters/dataset.h"

namespace sheaf {
namespace {

constexpr char kDependencies[] = SHEAF_TEST_DATA "/debian-dependencies-sample.snapshot";

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

// One line per occurrence of a name, client by client; with `once`, per client that has it.
void WriteNames(const std::string& path, bool once) {
  const HittersDataset dataset = HittersDataset::Load(kDependencies).value();
  std::ofstream file(path, std::ios::binary);
  for (int client = 0; client < dataset.num_clients(); ++client) {
    for (const NameCount& entry : dataset.client(client)) {
      for (int64_t i = 0; i < (once ? 1 : entry.count); ++i) file << dataset.name(entry.name) << "\n";
    }
  }
}

// What `sheaf demo hitters -o json` wrote to stdout last, and the table in `table`.
nlohmann::json Count(const std::string& table, const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {BinaryPath("sheaf"), "demo", "hitters", "--data", kDependencies, "-o", "json",
                                   "--output",          table};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  const CommandRun run = RunCommand(argv);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  nlohmann::json counted = nlohmann::json::parse(run.out, nullptr, false);
  REQUIRE(counted.is_object());
  return counted;
}

std::string Shell(const std::string& line) {
  const CommandRun run = RunCommand({"/bin/sh", "-c", line}, {.environment = {"LC_ALL=C"}});
  INFO(line << "\n" << run.err);
  REQUIRE(run.exit_code == 0);
  return run.out;
}

TEST_CASE("The federated counts of all dependency names are exactly what sort and uniq -c say") {
  const TemporaryDirectory scratch = ScratchDirectory();
  const std::string names = scratch.path() + "/names", table = scratch.path() + "/table";
  WriteNames(names, /*once=*/false);
  const nlohmann::json counted = Count(table, {"--workers", "4", "--top", "3", "--verify"});
  Shell("sort " + names + " | uniq -c | diff - " + table);
  CHECK(counted.at("namesWithheld") == 0);
  CHECK(counted.at("mismatches") == 0);
  CHECK(counted.at("tasksSucceeded") == HittersDataset::Load(kDependencies)->num_clients());
  CHECK(std::to_string(counted.at("namesReleased").get<int>()) + "\n" == Shell("wc -l < " + table));
  const nlohmann::json& first = counted.at("top").at(0);
  CHECK(Shell("sort " + names + " | uniq -c | sort -rn | head -n 1 | awk '{print $2, $1}'") ==
        fmt::format("{} {}\n", first.at("name").get<std::string>(), first.at("count").get<int64_t>()));
  CHECK(counted.at("top").size() == 3);
  Measured("{} names of {} clients, no line of the diff, {:.1f} s", counted.at("namesReleased").get<int>(),
           counted.at("clients").get<int>(), counted.at("seconds").get<double>());
}

TEST_CASE("With min_contributors 2 exactly the names that fewer than two maintainers have are withheld") {
  const TemporaryDirectory scratch = ScratchDirectory();
  const std::string all = scratch.path() + "/all", once = scratch.path() + "/once", table = scratch.path() + "/table";
  WriteNames(all, /*once=*/false);
  WriteNames(once, /*once=*/true);
  const nlohmann::json counted = Count(table, {"--workers", "2", "--min-contributors", "2"});
  // The names of two clients and more, with their counts over all.
  Shell("cd " + scratch.path() + " && sort once | uniq -d > shared && sort all | uniq -c | " +
        "awk 'NR == FNR {shared[$1]; next} $2 in shared' shared - | diff - table");
  CHECK(Shell("sort " + once + " | uniq -u | wc -l") == std::to_string(counted.at("namesWithheld").get<int>()) + "\n");
  CHECK(counted.at("namesWithheld") > 0);
  CHECK(counted.at("namesReleased") > 0);
  Measured("{} names released, {} withheld", counted.at("namesReleased").get<int>(),
           counted.at("namesWithheld").get<int>());
}

TEST_CASE("A table of counts that is there already, or called like a format, is not written") {
  const TemporaryDirectory scratch = ScratchDirectory();
  const std::string table = scratch.path() + "/table";
  std::ofstream(table) << "mine\n";
  const std::string sheaf = BinaryPath("sheaf");
  CHECK(RunCommand({sheaf, "demo", "hitters", "--data", kDependencies, "--output", table}).exit_code == 7);
  CHECK(Contents(table) == "mine\n");
  CHECK(RunCommand({sheaf, "demo", "hitters", "--output", "json"}).exit_code == 2);
}

}  // namespace
}  // namespace sheaf
