// The commands a stranger tries first.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "proto/methods.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

constexpr char kIndex[] = SHEAF_TEST_DATA "/debian-index-sample.snapshot";
constexpr char kNeeds[] = SHEAF_TEST_DATA "/debian-needs-sample.snapshot";

// The last line of what `sheaf demo NAME -o json` wrote to stdout.
nlohmann::json Demo(const std::string& name, const std::string& data, const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {BinaryPath("sheaf"), "demo", name, "--data", data, "-o", "json"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  const CommandRun run = RunCommand(argv);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  std::string text = run.out;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  nlohmann::json last = nlohmann::json::parse(text.substr(text.rfind('\n') + 1), nullptr, false);
  REQUIRE(last.is_object());
  return last;
}

TEST_CASE("The demo's every round equals brute force, and 1 worker and 8 train the same model to the last bit") {
  const nlohmann::json eight = Demo("tags", kIndex, {"--rounds", "3", "--workers", "8", "--verify"});
  CHECK(eight.at("verifiedRounds") == 3);
  CHECK(eight.at("mismatches") == 0);
  CHECK(eight.at("rounds") == 3);
  const nlohmann::json one = Demo("tags", kIndex, {"--rounds", "3", "--workers", "1"});
  CHECK(one.at("modelDigest") == eight.at("modelDigest"));
  CHECK(one.at("micro_recall_at_5") == eight.at("micro_recall_at_5"));
  const nlohmann::json ahead =
      Demo("tags", kIndex, {"--rounds", "3", "--workers", "4", "--prepare-ahead", "2", "--verify"});
  CHECK(ahead.at("modelDigest") == eight.at("modelDigest"));
  CHECK(ahead.at("mismatches") == 0);
  Measured("digest {:.12}, 0 mismatches in 3 rounds; {:.1f} s with 8 workers and --verify, {:.1f} s with 1",
           eight.at("modelDigest").get<std::string>(), eight.at("seconds").get<double>(),
           one.at("seconds").get<double>());
}

TEST_CASE("The demo reco learns what packages need, and its rounds equal brute force with 1 worker as with 4") {
  const std::vector<std::string> arguments = {"--rounds", "10", "--verify"};
  const auto with_workers = [&](const std::string& workers) {
    std::vector<std::string> all = arguments;
    all.insert(all.end(), {"--workers", workers});
    return Demo("reco", kNeeds, all);
  };
  const nlohmann::json four = with_workers("4");
  CHECK(four.at("verifiedRounds") == 10);
  CHECK(four.at("mismatches") == 0);
  CHECK(four.at("micro_recall_at_20") > 0.25);
  CHECK(with_workers("1").at("modelDigest") == four.at("modelDigest"));
  Measured("recall@20 {:.3f} after 10 rounds", four.at("micro_recall_at_20").get<double>());
}

// An interpreter that has numpy; empty if there is none.
std::string PythonWithNumpy() {
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    if (RunCommand({python, "-c", "import numpy"}).exit_code == 0) return python;
  }
  return "";
}

TEST_CASE("numpy reads what `sheaf round result` wrote") {
  const std::string python = PythonWithNumpy();
  if (python.empty()) return Measured("not run: there is no numpy");
  Federation federation;
  federation.StartWorker("w1");
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = 5}));
  Await(federation, round);
  const std::string path = federation.directory() + "/result.npz";
  REQUIRE(federation.Sheaf({"round", "result", round, "-o", path}).exit_code == 0);
  const CommandRun read = RunCommand(
      {python, "-c", "import numpy, sys\nfor n, a in sorted(numpy.load(sys.argv[1]).items()): print(n, a.dtype, a)",
       path});
  INFO(read.err);
  CHECK(read.exit_code == 0);
  CHECK(read.out == "counts int64 [1 1 1 1 1]\ntouched int64 [6 1 1 1 1]\n");
  // A second time it is not replaced unasked.
  CHECK(federation.Sheaf({"round", "result", round, "-o", path}).exit_code == 7);
  Measured("read with {}, {} bytes", python, std::filesystem::file_size(path));
}

}  // namespace
}  // namespace sheaf
