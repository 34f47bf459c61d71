// Not a test but a tool: writes transcripts of this build. Hidden, because a released version is recorded once.
//
//   SHEAF_GOLDEN_OUT=tests/golden/v1 golden_test "[.record-sequences]"
//   SHEAF_GOLDEN_OUT=tests/golden/next golden_test "[.record-next]"
//   SHEAF_GOLDEN_OUT=tests/golden/v1 SHEAF_GOLDEN_SERVER=127.0.0.1:PORT golden_test "[.record-calls]"
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/clock.h"
#include "tests/golden/contract_listing.h"
#include "tests/golden/scenarios.h"
#include "tests/golden/transcript.h"
#include "tests/golden/wire_script.h"

namespace sheaf::golden {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  INFO("set " << name);
  REQUIRE(value != nullptr);
  return value;
}

void Write(const std::string& name, const std::string& text) {
  const std::filesystem::path file = std::filesystem::path(Variable("SHEAF_GOLDEN_OUT")) / name;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
  WARN(file.string() << ": " << text.size() << " bytes");
}

TEST_CASE("Record the contract and the sequences of this build", "[.record-sequences]") {
  std::string listing;
  for (const std::string& line : ContractListing()) listing += line + "\n";
  Write("contract.txt", listing);
  for (const Scenario& scenario : Scenarios()) {
    Write(std::string("sequences/") + scenario.name + ".jsonl", scenario.play(scenario).ToText());
  }
}

TEST_CASE("Record the sequences of this build that no released version had", "[.record-next]") {
  for (const Scenario& scenario : NextScenarios()) {
    Write(std::string("sequences/") + scenario.name + ".jsonl", scenario.play(scenario).ToText());
  }
}

TEST_CASE("Record every method of the server that runs at SHEAF_GOLDEN_SERVER", "[.record-calls]") {
  const SystemClock clock;
  const std::string name = Variable("SHEAF_GOLDEN_SCRIPT");
  const WireScript* script = FindWireScript(name);
  REQUIRE(script != nullptr);
  Write("calls/" + name + ".jsonl", script->play(*script, Variable("SHEAF_GOLDEN_SERVER"), clock).ToText());
}

}  // namespace
}  // namespace sheaf::golden
