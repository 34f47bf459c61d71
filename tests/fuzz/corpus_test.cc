// Every stored input goes through its fuzz target in the normal build: no fuzzer needed, and a finding stays found.
// An input that breaks a law ends the process; its name is printed before.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "aggregation/aggregate_spec.h"
#include "aggregation/operators.h"
#include "base/checksum.h"
#include "tests/fuzz/seeds.h"
#include "tests/fuzz/specs.h"
#include "tests/fuzz/targets.h"

namespace sheaf::fuzz {
namespace {

std::vector<std::filesystem::path> InputsOf(const Target& target) {
  const std::filesystem::path folder = std::filesystem::path(SHEAF_FUZZ_CORPUS) / target.name;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  return files;
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

const Target& TargetNamed(const std::string& name) {
  const std::span<const Target> targets = Targets();
  const auto found = std::find_if(targets.begin(), targets.end(), [&](const Target& t) { return t.name == name; });
  REQUIRE(found != targets.end());
  return *found;
}

TEST_CASE("Every stored fuzz input is refused with a reason, or obeys the algebra's laws") {
  for (const Target& target : Targets()) {
    const std::vector<std::filesystem::path> files = InputsOf(target);
    REQUIRE_FALSE(files.empty());
    for (const std::filesystem::path& file : files) {
      fmt::print(stderr, "{}/{}\r", target.name, file.filename().string());
      target.run(ReadFile(file));
    }
  }
  fmt::print(stderr, "{:80}\r", "");
}

TEST_CASE("The inputs that fuzzing starts from obey the laws too") {
  for (const Seed& seed : Seeds()) TargetNamed(seed.target).run(seed.input);
}

TEST_CASE("Every spec that contributions are fuzzed for is a valid one, and every operator is among them") {
  for (const v1::AggregateSpec& spec : Specs()) {
    INFO(spec.ShortDebugString());
    CHECK(ValidateAggregateSpec(spec).ToString() == "OK");
  }
  for (const std::string& symbol : OperatorSymbols()) {
    INFO(symbol);
    CHECK(std::any_of(Specs().begin(), Specs().end(),
                      [&](const v1::AggregateSpec& spec) { return spec.outputs(0).operator_() == symbol; }));
  }
}

TEST_CASE("Write the corpus", "[.make-corpus]") {
  for (const Seed& seed : Seeds()) {
    const std::filesystem::path folder = std::filesystem::path(SHEAF_FUZZ_CORPUS) / seed.target;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / fmt::format("seed-{:08x}", Crc32(seed.input)), std::ios::binary) << seed.input;
  }
}

}  // namespace
}  // namespace sheaf::fuzz
