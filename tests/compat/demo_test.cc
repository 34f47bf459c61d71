// Whole programs: `sheaf demo tags` with the server, the workers and the command line of either version. It trains a
// model by rounds with a broadcast, of which workers select rows, and starts the others by the flags of its version.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/compat/released.h"

namespace sheaf {
namespace {

// A demo starts the programs that lie beside its own.
nlohmann::json Demo(const Programs& programs) {
  const TemporaryDirectory directory = ScratchDirectory();
  for (const std::string& program : {programs.sheafd, programs.worker, programs.sheaf}) {
    std::filesystem::copy_file(program, directory.path() / std::filesystem::path(program).filename());
  }
  const CommandRun run = RunCommand({directory.path() + "/sheaf", "demo", "tags", "--data",
                                     SHEAF_TEST_DATA "/debian-index-sample.snapshot", "--rounds", "2", "--workers", "2",
                                     "--clients", "20", "-o", "json"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  std::string text = run.out;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  nlohmann::json last = nlohmann::json::parse(text.substr(text.rfind('\n') + 1), nullptr, false);
  REQUIRE(last.is_object());
  return last;
}

std::string ModelDigest(const nlohmann::json& demo) {
  for (const char* name : {"modelDigest", "model_digest"}) {
    if (demo.contains(name)) return demo.at(name).get<std::string>();
  }
  FAIL("no model's digest in " << demo.dump());
  return "";
}

TEST_CASE("The demo trains the same model, to the bit, with a server, workers or a command line of 0.1") {
  const std::string expected = ModelDigest(Demo({}));
  const Programs released = Released();
  for (const Pairing& pairing :
       {Pairing{.who = "a server of 0.1", .programs = {.sheafd = released.sheafd}},
        Pairing{.who = "workers of 0.1", .programs = {.worker = released.worker}},
        Pairing{.who = "a command line of 0.1, which is the program", .programs = {.sheaf = released.sheaf}}}) {
    INFO(pairing.who);
    CHECK(ModelDigest(Demo(pairing.programs)) == expected);
  }
  Measured("model digest {:.12} in all", expected);
}

}  // namespace
}  // namespace sheaf
