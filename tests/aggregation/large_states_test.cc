// Sparse states that are large enough to be kept in many blocks: split, split again, made dense, merged and restored.
// All values are quarters and all weights halves, so that plain sums in a map are exact, and what is released must have
// their bits under every numerics.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>

#include "tests/aggregation/values.h"

namespace sheaf {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(SHEAF_SANITIZE_THREAD)
constexpr int kScale = 10;
#else
constexpr int kScale = 1;
#endif

// --- Contributions and what they come to ---

struct Entry {
  int64_t key;
  int quarters;
};

struct Touched {
  // In quarters; and weighted, in eighths.
  int64_t sum = 0;
  int64_t weighted = 0;
  int64_t halves = 0;
  int64_t contributors = 0;
  int64_t newest = -1;
  int largest = -1'000'000, smallest = 1'000'000;
};

// The oracle: everything in one map.
struct Ledger {
  std::map<int64_t, Touched> at;
  int64_t num_contributions = 0;
  int64_t halves = 0;

  void Add(const std::vector<Entry>& entries, int weight_halves) {
    for (const Entry& entry : entries) {
      Touched& touched = at[entry.key];
      touched.sum += entry.quarters;
      touched.weighted += entry.quarters * weight_halves;
      touched.largest = std::max(touched.largest, entry.quarters);
      touched.smallest = std::min(touched.smallest, entry.quarters);
      if (touched.newest == num_contributions) continue;
      touched.newest = num_contributions;
      ++touched.contributors;
      touched.halves += weight_halves;
    }
    ++num_contributions;
    halves += weight_halves;
  }

  double ValueAt(const Operator& op, const Touched& touched) const {
    if (op.reduction == Reduction::kMax) return touched.largest / 4.0;
    if (op.reduction == Reduction::kMin) return touched.smallest / 4.0;
    const double sum =
        op.is_weighted() ? static_cast<double>(touched.weighted) / 8 : static_cast<double>(touched.sum) / 4;
    switch (op.divisor) {
      case Divisor::kNone:
        return sum;
      case Divisor::kTouchingCount:
        return sum / static_cast<double>(touched.contributors);
      case Divisor::kCount:
        return sum / static_cast<double>(num_contributions);
      case Divisor::kTouchingWeight:
        return sum / (static_cast<double>(touched.halves) / 2);
      case Divisor::kWeight:
        return sum / (static_cast<double>(halves) / 2);
    }
    return 0;
  }
};

// Where entries fall.
using Draw = std::function<int64_t(Random&)>;
Draw Uniform(int64_t range) {
  return [range](Random& random) { return static_cast<int64_t>(random.Below(static_cast<uint64_t>(range))); };
}
// Most of them near 0.
Draw Skewed(int64_t range) {
  return [range](Random& random) {
    return static_cast<int64_t>(std::pow(random.Fraction(), 8) * static_cast<double>(range));
  };
}
// Half of them in a narrow band somewhere in the space, the others anywhere.
Draw Clustered(int64_t range, int64_t width) {
  return [range, width](Random& random) {
    const int64_t offset = static_cast<int64_t>(random.Below(static_cast<uint64_t>(width)));
    return random.Chance(0.5) ? range / 3 + offset : Uniform(range)(random);
  };
}

struct LargeCase {
  std::string name;
  int64_t range;
  Draw draw;
  int num_contributions;
  int entries_each;
};

std::vector<LargeCase> LargeCases() {
  const int64_t huge = int64_t{1} << 40;
  return {
      {"a space that becomes dense", 100'000, Uniform(100'000), 40, 10'000},
      {"a root that splits", 10'000'000, Uniform(10'000'000), 40, 5'000},
      {"a space of a million, skewed", 1'000'000, Skewed(1'000'000), 100, 5'000},
      {"beyond 32 bits", huge, Uniform(huge), 20, 5'000},
      {"exactly 32 bits", int64_t{1} << 32, Clustered(int64_t{1} << 32, 100'000), 20, 10'000},
      {"splits inside splits", huge, Clustered(huge, int64_t{1} << 26), 30, 10'000},
      {"splits three deep", int64_t{1} << 62, Clustered(int64_t{1} << 62, int64_t{1} << 28), 30, 10'000},
      {"one hot band, dense inside a thin space", huge, Clustered(huge, 5'000), 60, 5'000},
      {"the ends of the space", huge,
       [huge](Random& r) {
         return r.Chance(0.5) ? huge - 1 - static_cast<int64_t>(r.Below(40'000))
                              : static_cast<int64_t>(r.Below(40'000));
       },
       20, 8'000},
  };
}

v1::Contribution ContributionOf(const v1::OutputSpec& output, const std::vector<Entry>& entries, int halves) {
  std::vector<int64_t> keys;
  std::vector<float> floats;
  std::vector<int64_t> integers;
  std::vector<double> doubles;
  for (const Entry& entry : entries) {
    keys.push_back(entry.key);
    floats.push_back(static_cast<float>(entry.quarters) / 4);
    doubles.push_back(entry.quarters / 4.0);
    integers.push_back(entry.quarters);
  }
  const int64_t n = static_cast<int64_t>(entries.size());
  const std::string data = output.dtype() == v1::FLOAT32   ? BytesOf(floats)
                           : output.dtype() == v1::FLOAT64 ? BytesOf(doubles)
                                                           : BytesOf(integers);
  return Contribute(
      Sparse({output.dense_shape(0)}, ATensor(v1::INT64, {n}, BytesOf(keys)), ATensor(output.dtype(), {n}, data)),
      static_cast<float>(halves) / 2);
}

std::vector<Entry> RandomEntries(const LargeCase& shape, Random& random) {
  std::vector<Entry> entries;
  for (int i = 0; i < shape.entries_each / kScale; ++i) {
    entries.push_back({shape.draw(random), static_cast<int>(random.Below(17)) - 8});
    // Twice in one contribution, now and then.
    if (random.Chance(0.05)) entries.push_back(entries[random.Below(entries.size())]);
  }
  return entries;
}

void CheckReport(const v1::AggregateSpec& spec, const AggregateReport& report, const Ledger& ledger) {
  const v1::OutputSpec& output = spec.outputs(0);
  const Operator& op = *FindOperator(Operators(), output.operator_());
  std::string indices, values;
  int64_t released = 0;
  for (const auto& [key, touched] : ledger.at) {
    const double value = ledger.ValueAt(op, touched);
    if (touched.contributors < output.min_contributors() || (output.drop_zeros() && value == 0)) continue;
    ++released;
    indices.append(reinterpret_cast<const char*>(&key), sizeof key);
    const float narrow = static_cast<float>(value);
    const int64_t integer = static_cast<int64_t>(value * 4);
    if (output.dtype() == v1::FLOAT32) values.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
    if (output.dtype() == v1::FLOAT64) values.append(reinterpret_cast<const char*>(&value), sizeof value);
    if (output.dtype() == v1::INT64) values.append(reinterpret_cast<const char*>(&integer), sizeof integer);
  }
  CHECK(report.outputs[0].touched() == static_cast<int64_t>(ledger.at.size()));
  CHECK(report.outputs[0].released() == released);
  // Not through Catch: it would print megabytes.
  CHECK((Find(report, "w.indices").data == indices));
  CHECK((Find(report, "w.values").data == values));
}

// A round's contributions, and what they come to.
struct LargeRound {
  std::vector<std::vector<Entry>> contributions;
  std::vector<int> halves;
  Ledger ledger;

  explicit LargeRound(const LargeCase& shape) {
    SeededRandom random(7);
    for (int i = 0; i < shape.num_contributions; ++i) {
      contributions.push_back(RandomEntries(shape, random));
      halves.push_back(1 + static_cast<int>(random.Below(5)));
      ledger.Add(contributions.back(), halves.back());
    }
  }
};

// One by one; and in three parts: restored in the middle and folded on, merged, sent as a partial aggregate.
void CheckLarge(const LargeRound& round, const v1::AggregateSpec& spec) {
  RoundAccumulator whole = Accumulator(spec), first = Accumulator(spec), second = Accumulator(spec),
                   third = Accumulator(spec);
  const size_t num_contributions = round.contributions.size();
  for (size_t i = 0; i < num_contributions; ++i) {
    const v1::Contribution contribution = ContributionOf(spec.outputs(0), round.contributions[i], round.halves[i]);
    REQUIRE(Fold(whole, contribution).ok());
    REQUIRE(Fold(i % 3 == 0 ? first : i % 3 == 1 ? second : third, contribution).ok());
    if (i == num_contributions / 2) {
      absl::StatusOr<RoundAccumulator> restored = RoundAccumulator::Restore(spec, first.Serialize());
      REQUIRE(restored.ok());
      first = *std::move(restored);
    }
  }
  CheckReport(spec, *whole.Report(), round.ledger);
  first.Merge(std::move(second));
  REQUIRE(Fold(first, third.PartialAggregate()).ok());
  const absl::StatusOr<AggregateReport> report = first.Report();
  REQUIRE(report.ok());
  CheckReport(spec, *report, round.ledger);
  CHECK((first.OutputStates() == whole.OutputStates()));
}

v1::AggregateSpec LargeSpec(const LargeCase& shape, const std::string& op, v1::DType dtype, v1::Numerics numerics) {
  v1::AggregateSpec spec = ASpec(op, dtype, {shape.range});
  spec.set_numerics(numerics);
  return spec;
}

// --- Tests ---

TEST_CASE("Large sparse states equal a plain map, in any grouping, under every numerics") {
  for (const LargeCase& shape : LargeCases()) {
    const LargeRound round(shape);
    for (const char* op :
         {"sparse_sum", "coordinate_mean", "weighted_coordinate_mean", "weighted_client_mean", "sparse_max"}) {
      for (const v1::Numerics numerics : {v1::EXACT, v1::F64, v1::F32}) {
        if (numerics == v1::F32 && std::string_view(op) != "weighted_coordinate_mean") continue;
        INFO(shape.name << ", " << op << ", " << v1::Numerics_Name(numerics));
        CheckLarge(round, LargeSpec(shape, op, v1::FLOAT32, numerics));
      }
    }
    INFO(shape.name << ", 64 bits");
    CheckLarge(round, LargeSpec(shape, "sparse_sum", v1::INT64, v1::EXACT));
    CheckLarge(round, LargeSpec(shape, "sparse_min", v1::INT64, v1::EXACT));
    CheckLarge(round, LargeSpec(shape, "weighted_coordinate_mean", v1::FLOAT64, v1::EXACT));
    CheckLarge(round, LargeSpec(shape, "client_mean", v1::FLOAT64, v1::F64));
    INFO("with min_contributors, and zeros dropped");
    v1::AggregateSpec spec = LargeSpec(shape, "sparse_sum", v1::FLOAT32, v1::EXACT);
    spec.mutable_outputs(0)->set_min_contributors(2);
    spec.mutable_outputs(0)->set_drop_zeros(true);
    CheckLarge(round, spec);
  }
}

TEST_CASE("Many rows equal a plain map, in any grouping, released sparse or dense") {
  constexpr int64_t kRows = 20'000, kWidth = 5;
  SeededRandom random(11);
  for (const char* op : {"slices_sum", "weighted_coordinate_mean"}) {
    for (const v1::OutputForm form : {v1::SPARSE, v1::DENSE}) {
      v1::AggregateSpec spec = ASpec(op, v1::FLOAT32, {kRows, kWidth});
      spec.mutable_outputs(0)->set_index_dims(1);
      spec.mutable_outputs(0)->set_form(form);
      const bool is_weighted = FindOperator(Operators(), op)->is_weighted();
      RoundAccumulator whole = Accumulator(spec), part = Accumulator(spec);
      Ledger ledger;
      for (int i = 0; i < 20; ++i) {
        std::vector<Entry> entries;
        for (int n = 0; n < 2'000; ++n)
          entries.push_back({Skewed(kRows)(random), static_cast<int>(random.Below(17)) - 8});
        const int halves = 1 + static_cast<int>(random.Below(5));
        ledger.Add(entries, halves);
        std::vector<int32_t> keys;
        std::vector<float> values;
        for (const Entry& entry : entries) {
          keys.push_back(static_cast<int32_t>(entry.key));
          for (int64_t j = 0; j < kWidth; ++j)
            values.push_back(static_cast<float>(entry.quarters) / 4 * static_cast<float>(j));
        }
        const int64_t num_rows = static_cast<int64_t>(keys.size());
        const v1::Contribution contribution =
            Contribute(Sparse({kRows, kWidth}, ATensor(v1::INT32, {num_rows, 1}, BytesOf(keys)),
                              ATensor(v1::FLOAT32, {num_rows, kWidth}, BytesOf(values))),
                       static_cast<float>(halves) / 2);
        REQUIRE(Fold(whole, contribution).ok());
        if (i == 10) {
          absl::StatusOr<RoundAccumulator> restored = RoundAccumulator::Restore(spec, part.Serialize());
          REQUIRE(restored.ok());
          part = Accumulator(spec);
          REQUIRE(Fold(part, restored->PartialAggregate()).ok());
        }
        REQUIRE(Fold(part, contribution).ok());
      }
      CHECK((part.OutputStates() == whole.OutputStates()));
      std::vector<float> dense(static_cast<size_t>(kRows * kWidth)), rows;
      for (const auto& [key, touched] : ledger.at) {
        for (int64_t j = 0; j < kWidth; ++j) {
          // As it is worked out: the exact sum of the element, divided.
          const double value =
              is_weighted ? static_cast<double>(touched.weighted * j) / 8 / (static_cast<double>(touched.halves) / 2)
                          : static_cast<double>(touched.sum * j) / 4;
          rows.push_back(static_cast<float>(value));
          dense[static_cast<size_t>(key * kWidth + j)] = rows.back();
        }
      }
      INFO(op << " " << v1::OutputForm_Name(form));
      for (const RoundAccumulator* accumulator : {&whole, &part}) {
        const AggregateReport report = *accumulator->Report();
        if (form == v1::DENSE) {
          CHECK((Find(report, "w").data == BytesOf(dense)));
        } else {
          CHECK((Find(report, "w.values").data == BytesOf(rows)));
        }
      }
    }
  }
}

TEST_CASE("A table of many keys equals a plain map, in any grouping") {
  v1::OutputSpec output = AnOutput("keyed_sum", v1::INT64, {});
  output.set_key_type(v1::STRING_KEYS);
  output.set_min_contributors(2);
  const v1::AggregateSpec spec = ASpec(output);
  SeededRandom random(5);
  RoundAccumulator whole = Accumulator(spec), left = Accumulator(spec), right = Accumulator(spec);
  struct Sum {
    int64_t sum = 0, contributors = 0, newest = -1;
  };
  std::map<std::string, Sum> expected;
  for (int i = 0; i < 30; ++i) {
    v1::Contribution contribution;
    contribution.add_outputs()->set_name("w");
    v1::KeyedTable& table = *contribution.mutable_outputs(0)->mutable_keyed();
    std::vector<int64_t> values;
    for (int n = 0; n < 10'000 / kScale; ++n) {
      // Bytes of every kind, of a few lengths.
      const uint64_t number = random.Below(60'000) * 0x9e3779b97f4a7c15u;
      const std::string key = BytesOf<uint64_t>({number}).substr(0, 2 + number % 7);
      table.add_string_keys(key);
      values.push_back(static_cast<int64_t>(random.Below(1000)) - 500);
      Sum& sum = expected[key];
      sum.sum += values.back();
      if (sum.newest != i) ++sum.contributors;
      sum.newest = i;
    }
    *table.mutable_values() = ATensor(v1::INT64, {static_cast<int64_t>(values.size())}, BytesOf(values));
    REQUIRE(Fold(whole, contribution).ok());
    REQUIRE(Fold(i % 2 == 0 ? left : right, contribution).ok());
  }
  left.Merge(*RoundAccumulator::Restore(spec, right.Serialize()));
  CHECK((left.Serialize() == whole.Serialize()));
  std::string keys;
  std::vector<int64_t> sums;
  for (const auto& [key, sum] : expected) {
    if (sum.contributors < 2) continue;
    keys += key;
    sums.push_back(sum.sum);
  }
  const AggregateReport report = *left.Report();
  CHECK((Find(report, "w.keys").data == keys));
  CHECK((Find(report, "w.values").data == BytesOf(sums)));
  CHECK(report.outputs[0].touched() == static_cast<int64_t>(expected.size()));
}

TEST_CASE("More contributions than weights are kept for: each entry still meets its own weight") {
  // Entries wait for their bucket to fill; 70,000 weights do not fit beside them.
  const LargeCase shape = {"many", 1'000'000, Skewed(1'000'000), 0, 0};
  for (const v1::Numerics numerics : {v1::EXACT, v1::F64}) {
    const v1::AggregateSpec spec = LargeSpec(shape, "weighted_coordinate_mean", v1::FLOAT32, numerics);
    RoundAccumulator accumulator = Accumulator(spec);
    Ledger ledger;
    SeededRandom random(3);
    for (int i = 0; i < 70'000; ++i) {
      std::vector<Entry> entries;
      for (int n = 0; n < 3; ++n) entries.push_back({shape.draw(random), static_cast<int>(random.Below(17)) - 8});
      const int halves = 1 + static_cast<int>(random.Below(6));
      ledger.Add(entries, halves);
      REQUIRE(Fold(accumulator, ContributionOf(spec.outputs(0), entries, halves)).ok());
    }
    CheckReport(spec, *accumulator.Report(), ledger);
  }
}

int64_t ResidentBytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * 4096;
}

TEST_CASE("A sum over a billion coordinates takes at most 24 bytes for each that was touched, and 64 MiB") {
  constexpr int64_t kRange = 1'000'000'000;
  constexpr int kEach = 100'000 / kScale;
  v1::AggregateSpec spec = ASpec("sparse_sum", v1::FLOAT32, {kRange});
  spec.set_numerics(v1::F64);
  RoundAccumulator accumulator = Accumulator(spec);
  const int64_t resident_before = ResidentBytes();
  int64_t touched = 0, worst = 0;
  for (int i = 0; i < 80; ++i) {
    std::vector<Entry> entries;
    // All different: the factor is coprime to the range.
    for (int n = 0; n < kEach; ++n) entries.push_back({touched++ * 618'033'989 % kRange, 1});
    REQUIRE(Fold(accumulator, ContributionOf(spec.outputs(0), entries, 2)).ok());
    worst = std::max(worst, accumulator.memory_bytes() - 24 * touched);
    REQUIRE(accumulator.memory_bytes() <= 24 * touched + (int64_t{64} << 20));
  }
  const int64_t resident = ResidentBytes() - resident_before;
  std::printf("%lld coordinates touched: memory_bytes %lld, at worst 24 bytes each and %lld; resident %lld\n",
              static_cast<long long>(touched), static_cast<long long>(accumulator.memory_bytes()),
              static_cast<long long>(worst), static_cast<long long>(resident));
  CHECK(accumulator.Report()->outputs[0].touched() == touched);
#if !defined(__SANITIZE_ADDRESS__) && !defined(SHEAF_SANITIZE_THREAD)
  // What is told is what is held: beside it there is the contribution, and what malloc keeps.
  CHECK(resident <= accumulator.memory_bytes() + (int64_t{64} << 20));
#endif
}

}  // namespace
}  // namespace sheaf
