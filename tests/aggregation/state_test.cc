// Serialised states are untrusted: from a disk that rots, from another release, from a worker that lies.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "aggregation/exact/exact_block.h"
#include "aggregation/operators.h"
#include "aggregation/output/output_accumulator.h"
#include "aggregation/wire/state_bytes.h"
#include "aggregation/wire/state_envelope.h"
#include "aggregation/wire/state_origin.h"
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

// --- Forged on purpose ---

constexpr uint32_t kOutputMagic = 0x4f414853;

OutputLayout LayoutOf(const v1::AggregateSpec& spec) {
  return OutputLayout::FromSpec(spec.outputs(0), spec.numerics(), Operators()).value();
}
std::string BodyOf(const v1::AggregateSpec& spec, const std::string& state) {
  return std::string(UnwrapState(kOutputMagic, LayoutOf(spec).Signature(), state).value());
}

// What a root of `spec` says to a state with this body, of so many clients.
absl::Status Offer(const v1::AggregateSpec& spec, const std::string& body, int64_t num_clients) {
  RoundAccumulator root = Accumulator(spec);
  const std::string before = root.Serialize();
  absl::Status status = Fold(root, PartialOf(WrapState(kOutputMagic, LayoutOf(spec).Signature(), body), num_clients));
  if (!status.ok()) {
    REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
    REQUIRE(root.Serialize() == before);
  }
  return status;
}

template <typename T>
void Overwrite(std::string& body, size_t at, T value) {
  REQUIRE(at + sizeof value <= body.size());
  std::memcpy(&body[at], &value, sizeof value);
}

// A contribution with one element that is `value`, of the shapes of Specs().
v1::Contribution OneValue(const v1::AggregateSpec& spec, v1::DType dtype, double value) {
  const float narrow = static_cast<float>(value);
  const std::string bytes = dtype == v1::FLOAT32 ? BytesOf<float>({narrow}) : BytesOf<double>({value});
  const Operator& op = *FindOperator(Operators(), spec.outputs(0).operator_());
  if (op.operand == Operand::kDense) return Contribute(ATensor(dtype, {1}, bytes));
  if (op.operand == Operand::kSparse) {
    return Contribute(Sparse({1}, ATensor(v1::INT64, {1}, BytesOf<int64_t>({0})), ATensor(dtype, {1}, bytes)));
  }
  v1::Contribution contribution;
  contribution.add_outputs()->set_name("w");
  contribution.mutable_outputs(0)->mutable_keyed()->add_string_keys("k");
  *contribution.mutable_outputs(0)->mutable_keyed()->mutable_values() = ATensor(dtype, {1}, bytes);
  return contribution;
}

TEST_CASE("NaN and infinities planted in a state are refused where only finite values are taken") {
  int num_refused = 0;
  for (const Operator& op : Operators()) {
    if (op.reduction == Reduction::kCountNonzero) continue;
    for (const v1::DType dtype : {v1::FLOAT32, v1::FLOAT64}) {
      for (const v1::Numerics numerics : {v1::EXACT, v1::F64, v1::F32}) {
        if (numerics == v1::F32 && dtype == v1::FLOAT64 && op.reduction == Reduction::kSum) continue;
        v1::OutputSpec output =
            AnOutput(std::string(op.symbol), dtype,
                     op.operand == Operand::kKeyed ? std::vector<int64_t>{} : std::vector<int64_t>{1});
        if (op.operand == Operand::kKeyed) output.set_key_type(v1::STRING_KEYS);
        v1::AggregateSpec rejects = ASpec(output);
        rejects.set_numerics(numerics);
        v1::AggregateSpec propagates = rejects;
        propagates.mutable_outputs(0)->set_non_finite(v1::PROPAGATE_NON_FINITE);
        for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL, 1.5}) {
          INFO(op.symbol << " " << v1::DType_Name(dtype) << " " << v1::Numerics_Name(numerics) << " " << value);
          RoundAccumulator leaf = Accumulator(propagates);
          REQUIRE(Fold(leaf, OneValue(propagates, dtype, value)).ok());
          const std::string body = BodyOf(propagates, leaf.OutputStates().at("w"));
          const absl::Status status = Offer(rejects, body, 1);
          // +inf is also what `min` of nobody is; but somebody is in every state that is sent.
          CHECK(status.ok() == (value == 1.5));
          num_refused += status.ok() ? 0 : 1;
        }
      }
    }
  }
  CHECK(num_refused == 3 * (2 * 3 * 15 - 11));
}

TEST_CASE("A state that claims impossible numbers of clients or contributors is refused") {
  v1::AggregateSpec spec = ASpec("coordinate_mean", v1::FLOAT32, {10});
  RoundAccumulator leaf = Accumulator(spec);
  for (int i = 0; i < 3; ++i) REQUIRE(Fold(leaf, Contribute(SparseFloats({2, 7}, {1, 2}))).ok());
  const std::string body = BodyOf(spec, leaf.OutputStates().at("w"));
  // Clients, coordinates, keys 2 and 7, contributors of each, cells.
  constexpr size_t kClients = 0, kNumKeys = 8, kKeys = 16, kContributors = 32;
  REQUIRE(Offer(spec, body, 3).ok());
  const auto refused = [&](size_t at, int64_t value, int64_t num_clients, const std::string& says) {
    std::string forged = body;
    Overwrite(forged, at, value);
    const absl::Status status = Offer(spec, forged, num_clients);
    INFO(status.ToString());
    REQUIRE(!status.ok());
    REQUIRE(std::string(status.message()).find(says) != std::string::npos);
  };
  refused(kClients, -1, 3, "number of clients");
  refused(kClients, (int64_t{1} << 40) + 1, 3, "number of clients");
  refused(kClients, 4, 3, "combines 4 clients, the contribution says 3");
  refused(kClients, 0, 1, "contributors");
  refused(kContributors, 4, 3, "contributors");
  refused(kContributors, 0, 3, "contributors");
  refused(kContributors + 8, -1, 3, "contributors");
  refused(kNumKeys, -1, 3, "");
  refused(kNumKeys, 3, 3, "");
  refused(kKeys, -1, 3, "coordinates");
  refused(kKeys, 7, 3, "coordinates");
  refused(kKeys, 8, 3, "coordinates");
  refused(kKeys + 8, 10, 3, "coordinates");
}

TEST_CASE("A state that counts more values than it has clients is refused") {
  const v1::AggregateSpec spec = ASpec("count", v1::FLOAT32, {2});
  RoundAccumulator leaf = Accumulator(spec);
  for (int i = 0; i < 3; ++i) REQUIRE(Fold(leaf, Contribute(Floats({1, 0}))).ok());
  // Clients, counts.
  const std::string body = BodyOf(spec, leaf.OutputStates().at("w"));
  for (const auto& [count, is_taken] : {std::pair<int64_t, bool>{-1, false}, {0, true}, {3, true}, {4, false}}) {
    std::string forged = body;
    Overwrite(forged, 16, count);
    INFO(count);
    CHECK(Offer(spec, forged, 3).ok() == is_taken);
  }
}

TEST_CASE("A state with more weight than its clients can have is refused, so that weights always add up to a number") {
  constexpr float kWeightMax = std::numeric_limits<float>::max();
  for (const char* symbol : {"weighted_mean", "weighted_coordinate_mean", "weighted_client_mean"}) {
    for (const v1::Numerics numerics : {v1::EXACT, v1::F64, v1::F32}) {
      INFO(symbol << " " << v1::Numerics_Name(numerics));
      v1::AggregateSpec spec = ASpec(symbol, v1::FLOAT32, {1});
      spec.set_numerics(numerics);
      v1::Contribution heaviest = OneValue(spec, v1::FLOAT32, 0);
      heaviest.set_weight(kWeightMax);
      RoundAccumulator leaf = Accumulator(spec);
      for (int i = 0; i < 4; ++i) REQUIRE(Fold(leaf, heaviest).ok());
      std::string body = BodyOf(spec, leaf.OutputStates().at("w"));
      REQUIRE(Offer(spec, body, 4).ok());
      // The same weight of one client. Clients; coordinates, keys, contributors.
      Overwrite(body, 0, int64_t{1});
      if (std::string(symbol) == "weighted_coordinate_mean") Overwrite(body, 24, int64_t{1});
      const absl::Status status = Offer(spec, body, 1);
      CHECK_THAT(std::string(status.message()), Catch::Contains("weight"));
    }
  }
}

TEST_CASE("A round of states of the heaviest weights can be restored from its checkpoint") {
  v1::AggregateSpec spec = ASpec("weighted_coordinate_mean", v1::FLOAT32, {1});
  spec.set_numerics(v1::F64);
  RoundAccumulator leaf = Accumulator(spec);
  REQUIRE(Fold(leaf, OneValue(spec, v1::FLOAT32, 1)).ok());
  std::string body = BodyOf(spec, leaf.OutputStates().at("w"));
  // Clients, coordinates, key, contributors; weight.
  for (const double weight : {1e38, 1e40, 1e300, std::numeric_limits<double>::max()}) {
    INFO(weight);
    Overwrite(body, 32, weight);
    RoundAccumulator root = Accumulator(spec);
    const v1::Contribution partial = PartialOf(WrapState(kOutputMagic, LayoutOf(spec).Signature(), body), 1);
    const bool is_taken = Fold(root, partial).ok() && Fold(root, partial).ok();
    CHECK(is_taken == (weight == 1e38));
    const absl::Status restored = RoundAccumulator::Restore(spec, root.Serialize()).status();
    INFO(restored.ToString());
    CHECK(restored.ok());
  }
}

TEST_CASE("A keyed state with keys that are unsorted, repeated or too long is refused") {
  v1::OutputSpec output = AnOutput("keyed_sum", v1::INT64, {});
  output.set_key_type(v1::STRING_KEYS);
  const v1::AggregateSpec spec = ASpec(output);
  const auto offer = [&](const std::vector<std::string>& keys) {
    RoundAccumulator leaf = Accumulator(spec);
    v1::Contribution contribution;
    contribution.add_outputs()->set_name("w");
    v1::KeyedTable& table = *contribution.mutable_outputs(0)->mutable_keyed();
    for (size_t i = 0; i < keys.size(); ++i) table.add_string_keys(std::string(1, static_cast<char>('a' + i)));
    const int64_t n = static_cast<int64_t>(keys.size());
    *table.mutable_values() = ATensor(v1::INT64, {n}, BytesOf(std::vector<int64_t>(keys.size(), 1)));
    REQUIRE(Fold(leaf, contribution).ok());
    const std::string body = BodyOf(spec, leaf.OutputStates().at("w"));
    // Clients and the number of keys; each key behind its length; the cells.
    StateWriter forged;
    forged.PutArray(body.data(), 16);
    for (const std::string& key : keys) forged.PutString(key);
    const std::string_view cells = std::string_view(body).substr(16 + 9 * keys.size());
    forged.PutArray(cells.data(), static_cast<int64_t>(cells.size()));
    return Offer(spec, std::string(forged.bytes()), 1);
  };
  REQUIRE(offer({"", "a", "b"}).ok());
  REQUIRE(offer({"a", std::string(1024, 'b')}).ok());
  REQUIRE(!offer({"b", "a"}).ok());
  REQUIRE(!offer({"a", "a"}).ok());
  REQUIRE(!offer({"a", std::string(1025, 'b')}).ok());
}

TEST_CASE("A state of other numerics, or of another policy for NaN, is refused") {
  const v1::AggregateSpec exact = ASpec("sum", v1::FLOAT32, {2});
  v1::AggregateSpec f64 = exact, propagates = exact;
  f64.set_numerics(v1::F64);
  propagates.mutable_outputs(0)->set_non_finite(v1::PROPAGATE_NON_FINITE);
  for (const v1::AggregateSpec& other : {f64, propagates}) {
    RoundAccumulator root = Accumulator(exact);
    const absl::Status status = Fold(root, PartialOf(SomeState(other, 1).OutputStates().at("w"), 4));
    REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
    REQUIRE(std::string(status.message()).find("the state belongs to 'w sum FLOAT32") != std::string::npos);
  }
}

TEST_CASE("A state is written in small pieces, and can be restored from them together") {
  constexpr size_t kPieceMax = 64 << 10;
  for (const v1::AggregateSpec& spec :
       {ASpec("sum", v1::FLOAT32, {300'000}), ASpec("sparse_sum", v1::FLOAT64, {1000})}) {
    const RoundAccumulator sum = SomeState(spec, 3);
    std::string together;
    size_t longest = 0;
    const absl::Status written = sum.Write([&](std::string_view piece) {
      longest = std::max(longest, piece.size());
      together += piece;
      return absl::OkStatus();
    });
    REQUIRE(written.ok());
    CHECK(longest <= kPieceMax);
    CHECK((together == sum.Serialize()));
    const absl::StatusOr<RoundAccumulator> restored = RoundAccumulator::Restore(spec, together);
    REQUIRE(restored.ok());
    CHECK((restored->Serialize() == together));
    int num_pieces = 0;
    const absl::Status stopped = sum.Write(
        [&](std::string_view) { return ++num_pieces == 1 ? absl::CancelledError("enough") : absl::OkStatus(); });
    CHECK(absl::IsCancelled(stopped));
    CHECK(num_pieces == 1);
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
  const std::string state = WrapState(0x4f414853, layout.Signature(), body.bytes());
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

TEST_CASE("A round of the largest partial aggregates can be restored from its checkpoint") {
  for (const v1::AggregateSpec& spec : Specs()) {
    INFO(spec.ShortDebugString());
    RoundAccumulator leaf = SomeState(spec, 1);
    v1::Contribution largest, doubled = leaf.PartialAggregate();
    while (Fold(leaf, doubled).ok()) {
      largest = std::move(doubled);
      doubled = leaf.PartialAggregate();
    }
    // Sums of random INT64 reach the bound of integers first.
    REQUIRE(largest.num_clients() >= kClientsMax / 16);
    RoundAccumulator root = Accumulator(spec);
    for (int i = 0; i < 3; ++i) REQUIRE(Fold(root, largest).ok());
    const std::string checkpoint = root.Serialize();
    const absl::StatusOr<RoundAccumulator> restored = RoundAccumulator::Restore(spec, checkpoint);
    INFO(restored.status().ToString());
    REQUIRE(restored.ok());
    REQUIRE(restored->Serialize() == checkpoint);
  }
}

TEST_CASE("A partial aggregate with digits so high that no sum of values reaches them is refused") {
  const v1::AggregateSpec spec = ASpec("sum", v1::FLOAT64, {1});
  const auto offer = [&](int16_t bin) {
    StateWriter body;
    body.Put<int64_t>(1);  // Clients.
    body.Put<uint16_t>(1);
    body.Put<int16_t>(bin);
    body.Put<int32_t>(1);
    body.Put<uint16_t>(0);
    return Offer(spec, std::string(body.bytes()), 1);
  };
  constexpr int kHighest = ExactBlock::kExponentMax / ExactBlock::kDigitBits - 1;
  CHECK(offer(kHighest - 2).ok());
  CHECK_FALSE(offer(kHighest - 1).ok());
  CHECK_FALSE(offer(kHighest).ok());
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
