// Serialised states are untrusted: from a disk that rots, from another release, from a worker that lies.
#include <catch2/catch.hpp>

#include "aggregation/operators.h"
#include "aggregation/output_accumulator.h"
#include "aggregation/state_envelope.h"
#include "base/checksum.h"
#include "tests/aggregation/values.h"

namespace sheaf {
namespace {

RoundAccumulator SomeState(const v1::AggregateSpec& spec, uint64_t seed) {
  SeededRandom random(seed);
  RoundAccumulator accumulator = Accumulator(spec);
  for (int i = 0; i < 4; ++i) REQUIRE(Fold(accumulator, RandomContribution(spec, random)).ok());
  return accumulator;
}

v1::Contribution PartialOf(const std::string& state, int64_t num_clients) {
  v1::Contribution partial;
  partial.set_num_clients(num_clients);
  partial.add_outputs()->set_name("w");
  partial.mutable_outputs(0)->set_state(state);
  return partial;
}

// Makes damage look intact: the last four bytes are the checksum of the rest.
void FixChecksum(std::string& state) {
  if (state.size() < 4) return;
  const uint32_t checksum = Crc32(std::string_view(state).substr(0, state.size() - 4));
  std::memcpy(&state[state.size() - 4], &checksum, 4);
}

// Specs whose states have every part a state can have.
std::vector<v1::AggregateSpec> Specs() {
  std::vector<v1::AggregateSpec> specs;
  for (const Operator& op : Operators()) {
    v1::OutputSpec output = AnOutput(std::string(op.symbol), v1::FLOAT32, {3, 2});
    output.set_non_finite(v1::PROPAGATE_NON_FINITE);
    if (op.operand != Operand::kDense) output.set_min_contributors(2);
    if (op.operand == Operand::kKeyed) output.set_key_type(v1::STRING_KEYS);
    for (const v1::Numerics numerics : {v1::EXACT, v1::F64, v1::F32}) {
      specs.push_back(ASpec(output));
      specs.back().set_numerics(numerics);
    }
    if (!op.takes_integers()) continue;
    output.set_dtype(v1::INT64);
    output.clear_non_finite();
    if (op.operand == Operand::kKeyed) output.set_key_type(v1::INT64_KEYS);
    specs.push_back(ASpec(output));
  }
  return specs;
}

TEST_CASE("A damaged byte anywhere in a state is noticed") {
  for (const v1::AggregateSpec& spec : Specs()) {
    const std::string state = SomeState(spec, 1).Serialize();
    for (size_t i = 0; i < state.size(); ++i) {
      std::string damaged = state;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
      REQUIRE(!RoundAccumulator::Restore(spec, damaged).ok());
    }
    for (size_t size = 0; size < state.size(); ++size)
      REQUIRE(!RoundAccumulator::Restore(spec, state.substr(0, size)).ok());
    REQUIRE(!RoundAccumulator::Restore(spec, state + "x").ok());
  }
}

TEST_CASE("A forged state with a right checksum is refused, or is a canonical state") {
  for (const v1::AggregateSpec& spec : Specs()) {
    const RoundAccumulator accumulator = SomeState(spec, 2);
    const std::string state = accumulator.OutputStates().at("w");
    SeededRandom random(3);
    for (int round = 0; round < 2000; ++round) {
      std::string forged = state;
      const size_t at = random.Below(forged.size());
      if (random.Chance(0.2))
        forged.resize(at);
      else if (random.Chance(0.5))
        forged[at] = static_cast<char>(random.Bits());
      else
        forged.replace(at, std::min<size_t>(8, forged.size() - at),
                       std::string(std::min<size_t>(8, forged.size() - at), random.Chance(0.5) ? '\xff' : '\x7f'));
      FixChecksum(forged);
      RoundAccumulator root = Accumulator(spec);
      const absl::Status status = Fold(root, PartialOf(forged, accumulator.num_clients()));
      if (status.ok()) {
        REQUIRE(root.OutputStates().at("w") == forged);
        (void)root.Report();
        REQUIRE(RoundAccumulator::Restore(spec, root.Serialize()).ok());
      } else {
        REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
      }
    }
  }
}

TEST_CASE("A state of another output, operator, shape or type is refused, saying which") {
  const std::string state = SomeState(ASpec("sum", v1::FLOAT32, {2}), 1).Serialize();
  for (const v1::AggregateSpec& other :
       {ASpec("mean", v1::FLOAT32, {2}), ASpec("sum", v1::FLOAT64, {2}), ASpec("sum", v1::FLOAT32, {3}),
        ASpec(AnOutput("sum", v1::FLOAT32, {2}, "v"))}) {
    const absl::Status status = RoundAccumulator::Restore(other, state).status();
    REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
    REQUIRE(std::string(status.message()).find("the state belongs to 'w sum FLOAT32 EXACT [2]") != std::string::npos);
  }
}

TEST_CASE("A state of a newer version is refused, naming both versions") {
  const v1::AggregateSpec spec = ASpec("sum", v1::FLOAT32, {2});
  std::string state = SomeState(spec, 1).Serialize();
  state[4] = 9;
  const absl::Status status = RoundAccumulator::Restore(spec, state).status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(std::string(status.message()).find("version 9, this program reads version 2") != std::string::npos);
}

TEST_CASE("A damaged checkpoint is data loss") {
  const v1::AggregateSpec spec = ASpec("sum", v1::FLOAT32, {2});
  std::string state = SomeState(spec, 1).Serialize();
  state[state.size() / 2] ^= 1;
  REQUIRE(RoundAccumulator::Restore(spec, state).status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("A state that announces more than it holds allocates nothing") {
  const v1::AggregateSpec spec = ASpec("slices_sum", v1::FLOAT32, {1000, 1 << 20});
  const OutputLayout layout = OutputLayout::FromSpec(spec.outputs(0), v1::EXACT, Operators()).value();
  StateWriter body;
  body.Put<int64_t>(1);                 // Clients.
  body.Put<int64_t>(int64_t{1} << 60);  // Rows.
  const std::string state = SealState(0x4f414853, layout.Signature(), body.bytes());
  RoundAccumulator root = Accumulator(spec);
  REQUIRE(Fold(root, PartialOf(state, 1)).code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("A partial aggregate must say how many clients it combines") {
  const v1::AggregateSpec spec = ASpec("mean", v1::FLOAT32, {2});
  const std::string state = SomeState(spec, 1).OutputStates().at("w");
  RoundAccumulator root = Accumulator(spec);
  REQUIRE(Fold(root, PartialOf(state, 4)).ok());
  REQUIRE(root.num_clients() == 4);
  REQUIRE(root.num_contributions() == 1);
  REQUIRE(std::string(Fold(root, PartialOf(state, 3)).message()) ==
          "output 'w': its state combines 4 clients, the contribution says 3");
  REQUIRE(!Fold(root, PartialOf(Accumulator(spec).OutputStates().at("w"), 0)).ok());
  v1::Contribution weighted = PartialOf(state, 4);
  weighted.set_weight(2);
  REQUIRE(std::string(Fold(root, weighted).message()) ==
          "a partial aggregate carries its weights inside its states; leave weight unset");
}

TEST_CASE("A contribution carries states for all outputs or values for all") {
  v1::AggregateSpec spec = ASpec("sum", v1::FLOAT32, {1});
  *spec.add_outputs() = AnOutput("sum", v1::FLOAT32, {1}, "v");
  RoundAccumulator root = Accumulator(spec);
  v1::Contribution mixed = PartialOf(root.OutputStates().at("w"), 1);
  mixed.add_outputs()->set_name("v");
  *mixed.mutable_outputs(1)->mutable_dense() = Floats({1});
  const std::string message(root.Validate(mixed).status().message());
  INFO(message);
  REQUIRE(!message.empty());
}

TEST_CASE("Memory follows what was touched, not what was declared or contributed") {
  const v1::AggregateSpec spec = ASpec("slices_sum", v1::FLOAT32, {1 << 20, 500});
  RoundAccumulator accumulator = Accumulator(spec);
  REQUIRE(accumulator.memory_bytes() < 10'000);
  const std::vector<float> row(500, 1.0f);
  const v1::SparseTensor value = Sparse({1 << 20, 500}, ATensor(v1::INT64, {1}, BytesOf<int64_t>({77})),
                                        ATensor(v1::FLOAT32, {1, 500}, BytesOf(row)));
  for (int i = 0; i < 100; ++i) REQUIRE(Fold(accumulator, Contribute(value)).ok());
  REQUIRE(accumulator.memory_bytes() < 50'000);
}

}  // namespace
}  // namespace sheaf
