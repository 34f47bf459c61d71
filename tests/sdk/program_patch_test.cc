// Programs that say what of the last broadcast is different: when they are asked, and what workers get of it.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "aggregation/wire/safetensors.h"
#include "aggregation/wire/safetensors_patch.h"
#include "base/checksum.h"
#include "sdk/cpp/client/round_client.h"
#include "sdk/cpp/program/program.h"
#include "tests/sdk/program_local_server.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Code = absl::StatusCode;
using Steps = std::vector<std::string>;

v1::Contribution One() {
  v1::Contribution contribution;
  v1::OutputValue& output = *contribution.add_outputs();
  output.set_name("x");
  output.mutable_dense()->set_dtype(v1::UINT64);
  output.mutable_dense()->add_shape(1);
  output.mutable_dense()->set_data(std::string(8, '\1'));
  return contribution;
}

// A model of so many bytes, of which each round moves one, and that is patched as it says.
class Moving final : public Program {
 public:
  explicit Moving(size_t size) : model(size, 'm') {}

  absl::StatusOr<v1::RoundSpec> Plan(int) override {
    v1::RoundSpec spec;
    v1::OutputSpec& output = *spec.mutable_aggregate()->add_outputs();
    output.set_name("x");
    output.set_operator_("sum");
    output.set_dtype(v1::UINT64);
    output.add_dense_shape(1);
    spec.mutable_listed()->add_tasks()->set_data_selector("1");
    return spec;
  }
  absl::StatusOr<std::string> Broadcast(int number) override {
    steps.push_back(fmt::format("whole {}", number));
    return File();
  }
  absl::StatusOr<std::optional<std::string>> Patch(int number, const std::string& base) override {
    steps.push_back(fmt::format("patch {}", number));
    bases.push_back(base);
    if (!patch_error.ok()) return patch_error;
    if (number == nothing_at) return std::optional<std::string>();
    const std::string values = model.substr(0, num_rows);
    std::vector<int64_t> rows;
    for (size_t row = 0; row < num_rows; ++row) rows.push_back(static_cast<int64_t>(row));
    const TensorChange change = {
        .tensor = "w", .rows = rows, .dtype = v1::UINT8, .shape = {static_cast<int64_t>(num_rows)}, .data = values};
    return EncodeSafetensorsPatch(base, {&change, 1});
  }
  absl::Status Apply(int number, const SafetensorsView&, const v1::Round&) override {
    model[static_cast<size_t>(number) % num_rows] = static_cast<char>('a' + number);
    return absl::OkStatus();
  }
  std::string File() const {
    return EncodeSafetensors(std::vector<NamedTensor>{{"w", v1::UINT8, {static_cast<int64_t>(model.size())}, model}},
                             {});
  }

  std::string model;
  // The first ones are in every patch.
  size_t num_rows = 40;
  int nothing_at = 0;
  absl::Status patch_error;
  Steps steps;
  std::vector<std::string> bases;
};

// Runs it, and holds what workers get to what the program has.
struct PatchSetup {
  explicit PatchSetup(size_t model_bytes = 100'000, bool takes_patches = true) : program(model_bytes) {
    server.set_takes_patches(takes_patches);
  }
  absl::StatusOr<std::vector<RoundOutcome>> Run(ProgramOptions options) {
    return RunProgram({server, clock, random}, program, options);
  }
  absl::StatusOr<std::vector<RoundOutcome>> Run(int rounds, int ahead = 0) {
    return Run(ProgramOptions{.rounds = rounds, .ahead = ahead});
  }
  v1::Contribution Compute(const std::string& broadcast) {
    CHECK(broadcast == program.File());
    ++num_computed;
    return One();
  }

  LocalServer server{
      [this](const v1::RoundSpec&, const v1::TaskSpec&, const std::string& broadcast) { return Compute(broadcast); }};
  ManualClock clock;
  SeededRandom random{1};
  Moving program;
  int num_computed = 0;
};

// Does not travel with the opening of its round.
constexpr size_t kLarge = 2 << 20;

// Of a model that does, when it is opened, nobody hears whether the server takes patches of it.
size_t SizeToPatch(int ahead) { return ahead > 0 ? kLarge : GENERATE(size_t{100'000}, kLarge); }

TEST_CASE("From the second round on a patch is sent of what was sent last, and workers compute from the whole model") {
  const int ahead = GENERATE(0, 1, 3);
  const size_t size = SizeToPatch(ahead);
  CAPTURE(ahead, size);
  PatchSetup setup(size);
  const auto outcomes = setup.Run(4, ahead);
  INFO(outcomes.status().ToString());
  REQUIRE(outcomes.ok());
  CHECK(setup.program.steps == Steps{"whole 1", "patch 2", "patch 3", "patch 4"});
  CHECK(setup.num_computed == 4);
  const std::vector<v1::Round> rounds = setup.server.rounds();
  REQUIRE(setup.program.bases.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(setup.program.bases[i] == rounds[i].spec().broadcast_digest());
    CHECK((*outcomes)[i + 1].broadcast_bytes < 1000);
  }
  CHECK((*outcomes)[0].broadcast_bytes > static_cast<int64_t>(size));
}

TEST_CASE("A model that travels with the opening of its round is sent whole each time") {
  PatchSetup setup;
  REQUIRE(setup.Run(3, 1).ok());
  CHECK(setup.program.steps == Steps{"whole 1", "whole 2", "whole 3"});
  CHECK(setup.num_computed == 3);
}

TEST_CASE("In a buffered loop a large model is patched, too") {
  PatchSetup setup(kLarge);
  const auto outcomes = setup.Run(ProgramOptions{.rounds = 3, .buffered = true});
  INFO(outcomes.status().ToString());
  REQUIRE(outcomes.ok());
  CHECK(setup.program.steps == Steps{"whole 1", "patch 2", "patch 3"});
  CHECK(setup.num_computed == 3);
}

TEST_CASE("A server that does not know of patches gets whole models only, and no program is asked for another") {
  const int ahead = GENERATE(0, 1);
  const size_t size = GENERATE(size_t{100'000}, kLarge);
  CAPTURE(ahead, size);
  PatchSetup setup(size, false);
  REQUIRE(setup.Run(3, ahead).ok());
  CHECK(setup.program.steps == Steps{"whole 1", "whole 2", "whole 3"});
  CHECK(setup.num_computed == 3);
}

TEST_CASE("A patch that the server refuses is followed by the whole model, and that by patches of it") {
  const Code code = GENERATE(Code::kInvalidArgument, Code::kResourceExhausted, Code::kNotFound);
  const int ahead = GENERATE(0, 1);
  const size_t size = SizeToPatch(ahead);
  CAPTURE(code, ahead, size);
  PatchSetup setup(size);
  // The second round's.
  const bool is_inline = ahead > 0;
  const char* method = is_inline ? kOpenRound.name : kFinishUpload.name;
  setup.server.set_fault([&, seen = 0](std::string_view called, bool is_answer) mutable {
    if (called != method || is_answer) return absl::OkStatus();
    ++seen;
    return seen == 2 ? absl::Status(code, "the patch is not taken") : absl::OkStatus();
  });
  const auto outcomes = setup.Run(4, ahead);
  INFO(outcomes.status().ToString());
  REQUIRE(outcomes.ok());
  // What is too large to travel with the opening of its round is uploaded, and an upload that was lost is begun again.
  const bool is_sent_again = code == (is_inline ? Code::kResourceExhausted : Code::kNotFound);
  CHECK(setup.program.steps == (is_sent_again ? Steps{"whole 1", "patch 2", "patch 3", "patch 4"}
                                              : Steps{"whole 1", "patch 2", "whole 2", "patch 3", "patch 4"}));
  CHECK(setup.num_computed == 4);
  CHECK(setup.program.bases[1] == setup.server.rounds()[1].spec().broadcast_digest());
}

TEST_CASE("A base that has gone meanwhile is followed by the whole model") {
  PatchSetup setup;
  setup.server.set_fault([&, seen = 0](std::string_view called, bool is_answer) mutable {
    const bool is_second = called == kCreateRound.name && !is_answer && ++seen == 2;
    return is_second ? absl::InvalidArgumentError("the base has just been deleted") : absl::OkStatus();
  });
  REQUIRE(setup.Run(3).ok());
  CHECK(setup.program.steps == Steps{"whole 1", "patch 2", "whole 2", "patch 3"});
}

TEST_CASE("What is wrong with neither model nor patch ends the program, and no whole one is sent") {
  PatchSetup setup;
  setup.server.set_fault([&, seen = 0](std::string_view called, bool is_answer) mutable {
    const bool is_second = called == kStartUpload.name && !is_answer && ++seen == 2;
    return is_second ? absl::PermissionDeniedError("not you") : absl::OkStatus();
  });
  CHECK(std::string(setup.Run(3).status().message()) == "round 2 of 3: not you");
  CHECK(setup.program.steps == Steps{"whole 1", "patch 2"});

  PatchSetup failing;
  failing.program.patch_error = absl::InternalError("no rows are known");
  CHECK(std::string(failing.Run(3).status().message()) == "round 2 of 3: no rows are known");
  CHECK(failing.program.steps == Steps{"whole 1", "patch 2"});
}

TEST_CASE("A program that has nothing to patch sends the whole model, and patches that") {
  const int ahead = GENERATE(0, 1);
  const size_t size = SizeToPatch(ahead);
  CAPTURE(ahead, size);
  PatchSetup setup(size);
  setup.program.nothing_at = 3;
  REQUIRE(setup.Run(5, ahead).ok());
  CHECK(setup.program.steps == Steps{"whole 1", "patch 2", "patch 3", "whole 3", "patch 4", "patch 5"});
  CHECK(setup.num_computed == 5);
  CHECK(setup.program.bases[2] == setup.server.rounds()[2].spec().broadcast_digest());
}

TEST_CASE("When patches would add up to more than the whole model, that is sent") {
  PatchSetup setup(2000);
  setup.program.num_rows = 80;
  const auto outcomes = setup.Run(9);
  REQUIRE(outcomes.ok());
  CHECK(setup.num_computed == 9);
  const int64_t whole_bytes = (*outcomes)[0].broadcast_bytes;
  const int64_t patch_bytes = (*outcomes)[1].broadcast_bytes;
  const auto num_patches = static_cast<size_t>(whole_bytes / patch_bytes);
  REQUIRE(num_patches > 1);
  REQUIRE(num_patches < 6);
  for (size_t i = 0; i < outcomes->size(); ++i) {
    CHECK((*outcomes)[i].broadcast_bytes == (i % (num_patches + 1) == 0 ? whole_bytes : patch_bytes));
  }
}

TEST_CASE("After as many patches as servers take comes the whole model, and patches of that") {
  const int ahead = GENERATE(0, 1);
  const size_t size = SizeToPatch(ahead);
  CAPTURE(ahead, size);
  PatchSetup setup(size);
  REQUIRE(setup.Run(36, ahead).ok());
  CHECK(setup.num_computed == 36);
  Steps expected;
  for (int number = 1; number <= 36; ++number) {
    expected.push_back(fmt::format("{} {}", number == 1 || number == 34 ? "whole" : "patch", number));
  }
  CHECK(setup.program.steps == expected);
}

// It needs no broadcast.
class Silent final : public Program {
 public:
  absl::StatusOr<v1::RoundSpec> Plan(int number) override { return Moving(1).Plan(number); }
  absl::StatusOr<std::optional<std::string>> Patch(int number, const std::string&) override {
    return absl::InternalError(fmt::format("there is nothing to patch in round {}", number));
  }
  absl::Status Apply(int, const SafetensorsView&, const v1::Round&) override { return absl::OkStatus(); }
};

TEST_CASE("A program without broadcasts is asked for no patches") {
  const int ahead = GENERATE(0, 1);
  LocalServer server([](const v1::RoundSpec&, const v1::TaskSpec&, const std::string& broadcast) {
    CHECK(broadcast.empty());
    return One();
  });
  server.set_takes_patches(true);
  ManualClock clock;
  SeededRandom random{1};
  Silent program;
  CHECK(RunProgram({server, clock, random}, program, {.rounds = 3, .ahead = ahead}).ok());
}

}  // namespace
}  // namespace sheaf
