// Rows of sums, which are kept in several ways, against the same sums kept in one; and what they are kept in.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>

#include "aggregation/cells/cell_stream.h"
#include "aggregation/cells/exact_rows.h"
#include "aggregation/cells/exact_sum.h"
#include "aggregation/cells/float_rows.h"
#include "aggregation/cells/float_sum.h"
#include "aggregation/exact/fixed_point.h"
#include "aggregation/memory/row_pool.h"
#include "aggregation/sparse/row_index.h"
#include "tests/aggregation/values.h"

namespace sheaf {
namespace {

constexpr int64_t kRows = 12;

// The same rows, kept as rows and as cells.
struct Both {
  CellType type;
  int width;
  std::unique_ptr<CellVector> rows;
  std::unique_ptr<CellVector> cells;

  Both(v1::DType dtype, v1::Numerics numerics, int row_width)
      : type{.reduction = Reduction::kSum, .dtype = dtype, .numerics = numerics}, width(row_width) {
    if (numerics == v1::EXACT) {
      rows = std::make_unique<ExactRows>(dtype, width);
      cells = std::make_unique<ExactSum>(dtype, width);
    } else if (numerics == v1::F32) {
      rows = std::make_unique<FloatRows<float, float>>(width);
      cells = std::make_unique<FloatSum<float, float>>(nullptr);
    } else if (dtype == v1::FLOAT32) {
      rows = std::make_unique<FloatRows<double, float>>(width);
      cells = std::make_unique<FloatSum<double, float>>(nullptr);
    } else {
      rows = std::make_unique<FloatRows<double, double>>(width);
      cells = std::make_unique<FloatSum<double, double>>(nullptr);
    }
    rows->Resize(kRows * width);
    cells->Resize(kRows * width);
  }

  int64_t value_bytes() const { return type.dtype == v1::FLOAT32 ? 4 : 8; }

  void Add(const std::vector<uint32_t>& to, const std::string& values, float weight) {
    const int64_t row_bytes = width * value_bytes();
    rows->AddRows({.rows = to, .width = width, .values = values.data(), .row_bytes = row_bytes}, weight);
    for (size_t i = 0; i < to.size(); ++i) {
      cells->Add(to[i] * int64_t{width}, values.data() + static_cast<int64_t>(i) * row_bytes, width, weight);
    }
  }

  std::string StateOf(const CellVector& of) const {
    StateWriter out;
    CellStreamWriter written(type, out);
    for (int64_t row = 0; row < kRows; ++row) written.Append(of, row * width, width);
    written.Finish();
    return std::string(out.bytes());
  }
  std::string Rounded(const CellVector& of, const ExactDivisors& divisors) const {
    std::string values;
    for (int64_t row = 0; row < kRows; ++row) {
      std::string of_row(static_cast<size_t>(width * value_bytes()), 'x');
      REQUIRE(of.Round(row * width, width, divisors, of_row.data()) == width);
      values += of_row;
    }
    return values;
  }

  // All rows in one call, the last first.
  std::string RoundedBackwards(const CellVector& of) const {
    std::vector<uint32_t> order(kRows);
    for (uint32_t i = 0; i < kRows; ++i) order[i] = kRows - 1 - i;
    const int64_t row_bytes = width * value_bytes();
    std::string values(static_cast<size_t>(kRows * row_bytes), 'x');
    const ExactDivisor three = ExactDivisor::OfCount(3);
    CHECK(of.RoundRows({.rows = order, .width = width, .values = values.data(), .row_bytes = row_bytes}, three) ==
          kRows * width);
    return values;
  }

  void Check() const {
    CHECK(Rounded(*rows, {}) == Rounded(*cells, {}));
    CHECK(RoundedBackwards(*rows) == RoundedBackwards(*cells));
    for (const int64_t count : {1, 3, 1 << 20}) {
      CHECK(Rounded(*rows, ExactDivisor::OfCount(count)) == Rounded(*cells, ExactDivisor::OfCount(count)));
    }
    ExactDivisorColumns each;
    for (int i = 0; i < width; ++i) each.upper.push_back(1 + i % 5);
    CHECK(Rounded(*rows, each) == Rounded(*cells, each));
    CHECK(StateOf(*rows) == StateOf(*cells));
  }
};

// A row of values, the rows of one call alike in nothing.
std::string RandomRow(const Both& both, Random& random) {
  std::string row;
  const uint64_t kind = random.Below(8);
  const int exponent = static_cast<int>(random.Below(200)) - 120;
  for (int i = 0; i < both.width; ++i) {
    double value = std::ldexp(2 * random.Fraction() - 1, kind < 4 ? 0 : exponent);
    if (kind == 5) value = AwkwardFloat(random, both.type.dtype);
    if (kind == 6) value = random.Chance(0.5) ? 0.0 : -0.0;
    if (kind == 7 && i == 3) value = std::numeric_limits<double>::infinity() * (random.Chance(0.5) ? 1 : -1);
    if (kind == 7 && i == 4) value = -std::numeric_limits<double>::quiet_NaN();
    const auto narrow = static_cast<float>(value);
    if (both.value_bytes() == 4) row.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
    if (both.value_bytes() == 8) row.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return row;
}

struct Kind {
  v1::DType dtype;
  v1::Numerics numerics;
};
constexpr Kind kKinds[] = {{v1::FLOAT32, v1::EXACT},
                           {v1::FLOAT64, v1::EXACT},
                           {v1::FLOAT32, v1::F64},
                           {v1::FLOAT64, v1::F64},
                           {v1::FLOAT32, v1::F32}};

TEST_CASE("Rows release and serialise the bits of sums that are kept as cells, after every addend") {
  for (const Kind& kind : kKinds) {
    for (const int width : {16, 21, 64, 300, 1024}) {
      for (const bool is_weighted : {false, true}) {
        INFO(v1::DType_Name(kind.dtype) << " " << v1::Numerics_Name(kind.numerics) << " of " << width
                                        << (is_weighted ? ", weighted" : ""));
        SeededRandom random(static_cast<uint64_t>(width));
        Both both(kind.dtype, kind.numerics, width);
        for (int contribution = 0; contribution < 12; ++contribution) {
          std::vector<uint32_t> to;
          std::string values;
          // Some rows are never touched, some often, and some twice by one contribution.
          for (uint64_t n = random.Below(6); n > 0; --n) {
            to.push_back(static_cast<uint32_t>(random.Below(random.Chance(0.3) ? kRows - 2 : 3)));
            values += RandomRow(both, random);
          }
          both.Add(to, values, !is_weighted ? 1.0f : random.Chance(0.3) ? 0.5f : 0.3f);
          both.Check();
        }
      }
    }
  }
}

TEST_CASE("Exact rows have the same bits in every order of their addends, and wherever they were restored or merged") {
  constexpr int kWidth = 40;
  for (const v1::DType dtype : {v1::FLOAT32, v1::FLOAT64}) {
    SeededRandom random(7);
    std::vector<uint32_t> to;
    std::vector<std::string> values;
    for (int i = 0; i < 60; ++i) {
      to.push_back(static_cast<uint32_t>(random.Below(i % 2 == 0 ? kRows : 2)));
      values.push_back(RandomRow(Both(dtype, v1::EXACT, kWidth), random));
    }
    std::string expected;
    std::vector<size_t> order(to.size());
    std::iota(order.begin(), order.end(), 0);
    for (int turn = 0; turn < 20; ++turn) {
      Both both(dtype, v1::EXACT, kWidth), other(dtype, v1::EXACT, kWidth);
      for (size_t i = 0; i < order.size(); ++i) {
        if (turn > 0 && i == order.size() / 3) {
          // As a restart does.
          const std::string state = both.StateOf(*both.rows);
          auto restored = std::make_unique<ExactRows>(dtype, kWidth);
          restored->Resize(kRows * kWidth);
          StateReader in(state);
          CellStreamReader read(both.type, kRows * kWidth, {StateSource::kCheckpoint, 60}, in);
          if (turn % 2 == 0) REQUIRE(read.Take(kRows * kWidth, *restored, 0).ok());
          if (turn % 2 == 0) both.rows = std::move(restored);
        }
        Both& into = turn % 3 == 2 && i % 2 == 0 ? other : both;
        into.Add({to[order[i]]}, values[order[i]], 1);
      }
      for (int64_t row = 0; row < kRows; ++row) other.rows->AddTo(*both.rows, row * kWidth, row * kWidth, kWidth);
      const std::string state = both.StateOf(*both.rows);
      if (turn == 0) expected = state;
      CHECK(state == expected);
      for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random.Below(i + 1)]);
    }
  }
}

TEST_CASE("A row that the same large values come to again and again never overflows") {
  constexpr int kWidth = 16;
  // Just below 2^51 units of the bin that takes them whole: the smallest of them may be a multiple of no more than
  // 2^-28.
  std::vector<float> values(kWidth, std::nextafter(0x1p+23f, 0.0f));
  values[1] = 0x1p-5f;
  values[2] = -values[0];
  ExactRows rows(v1::FLOAT32, kWidth);
  rows.Resize(kWidth);
  std::vector<FixedPoint> oracle(kWidth);
  for (int n = 1; n <= 20'000; ++n) {
    rows.Add(0, reinterpret_cast<const char*>(values.data()), kWidth, 1);
    for (size_t i = 0; i < kWidth; ++i) oracle[i].AddProduct(static_cast<double>(values[i]), 1);
    if (n % 509 != 0 && n > 4) continue;
    std::vector<float> sums(kWidth);
    rows.Round(0, kWidth, {}, reinterpret_cast<char*>(sums.data()));
    for (size_t i = 0; i < kWidth; ++i) REQUIRE(sums[i] == oracle[i].ToFloat());
  }
}

TEST_CASE("Rows that one addend reached take no more than that, and those of a few less than two bins") {
  constexpr int kWidth = 64;
  constexpr int64_t kMany = 20'000;
  ExactRows rows(v1::FLOAT32, kWidth);
  rows.Resize(kMany * kWidth);
  const std::vector<float> values(kWidth, 0.1f);
  const auto add_to_all = [&] {
    for (int64_t row = 0; row < kMany; ++row) {
      rows.Add(row * kWidth, reinterpret_cast<const char*>(values.data()), kWidth, 1);
    }
    return static_cast<double>(rows.memory_bytes()) / (kMany * kWidth);
  };
  CHECK(add_to_all() <= 4.3);
  // What rows were kept in before is there for others.
  CHECK(add_to_all() <= 12.5);
  CHECK(add_to_all() <= 12.5);
}

TEST_CASE("Rows of a pool keep what was written to them, and those given back are taken again") {
  for (const int64_t row_bytes : {64, 264, 4096, 1 << 20}) {
    RowPool pool(row_bytes);
    // Of two threads.
    RowPool::Places places[2];
    const uint32_t n = row_bytes < 1000 ? 100'000 : 40;
    std::vector<uint32_t> taken;
    for (uint32_t i = 0; i < n; ++i) {
      taken.push_back(pool.Take(places[i % 2]));
      std::memcpy(pool.row(taken.back()), &i, sizeof i);
    }
    for (uint32_t i = 0; i < n; ++i) {
      uint32_t found = 0;
      std::memcpy(&found, pool.row(taken[i]), sizeof found);
      REQUIRE(found == i);
    }
    CHECK(pool.num_rows() - places[0].num_untouched() - places[1].num_untouched() == n);
    CHECK(places[0].num_untouched() < RowPool::kRun);
    places[1].GiveBack(taken[3]);
    CHECK(pool.Take(places[1]) == taken[3]);
    CHECK(pool.num_rows() > places[0].num_unused() + places[1].num_unused());
    for (const uint32_t row : taken) places[row % 2].GiveBack(row);
    CHECK(pool.num_rows() == places[0].num_unused() + places[1].num_unused());
  }
}

TEST_CASE("Rows of a pool do not move while those are taken that it made room for") {
  for (const int64_t row_bytes : {64, 264, 1 << 20}) {
    RowPool pool(row_bytes);
    RowPool::Places places[3];
    const int64_t n = row_bytes < 1000 ? 200'000 : 20;
    for (int64_t reserved = 1; reserved <= n; reserved *= 3) {
      pool.Reserve(reserved, 3);
      const char* const first = pool.row(0);
      for (int64_t i = 0; i < reserved; ++i) {
        char* const row = pool.row(pool.Take(places[i % 3]));
        std::fill_n(row, row_bytes, 'x');
      }
      CHECK(pool.row(0) == first);
    }
  }
}

TEST_CASE("An index of rows numbers coordinates as they come and lists them in order, before and after it is a table") {
  for (const uint64_t range : {uint64_t{5000}, uint64_t{1} << 40}) {
    SeededRandom random(11);
    RowIndex index(range);
    std::map<int64_t, uint32_t> expected;
    for (int call = 0; call < 60; ++call) {
      int64_t keys[100];
      uint32_t slots[100];
      for (int64_t& key : keys) key = static_cast<int64_t>(random.Below(4000)) * static_cast<int64_t>(range / 5000);
      index.FindOrAdd(keys, 100, slots);
      for (int i = 0; i < 100; ++i) {
        const auto newest = static_cast<uint32_t>(expected.size());
        REQUIRE(slots[i] == expected.emplace(keys[i], newest).first->second);
      }
      REQUIRE(index.size() == static_cast<int64_t>(expected.size()));
      auto next = expected.begin();
      index.ForEachRun([&](std::span<const int64_t> run_keys, std::span<const uint32_t> run_slots) {
        for (size_t i = 0; i < run_keys.size(); ++i, ++next) {
          REQUIRE((run_keys[i] == next->first && run_slots[i] == next->second));
        }
      });
      REQUIRE(next == expected.end());
    }
    CHECK(index.is_table() == (range == 5000));
  }
}

}  // namespace
}  // namespace sheaf
