// EXACT numerics on inputs made to break sums, against MPFR. Each case is folded in eight orders at once (one per
// element) as a dense sum, and once as entries of a sparse one; all must have the bits of the correctly rounded sum.
// What an ordinary loop in double and in float makes of the same numbers is printed beside it, as a table.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/aggregation/exact_value.h"
#include "tests/aggregation/values.h"

namespace sheaf {
namespace {

constexpr int kOrders = 8;

struct Addend {
  double value = 0;
  float weight = 1;
};
using Addends = std::vector<Addend>;

struct Case {
  const char* name;
  Addends (*make)(v1::DType dtype, Random& random);
};

// --- The cases ----------------------------------------------------------------------------------------------------

// The limits of a type, as doubles.
struct Range {
  double smallest, largest;
  int exponent_min, exponent_max, digits;
};

template <typename Float>
constexpr Range RangeOf() {
  using Limits = std::numeric_limits<Float>;
  return {.smallest = static_cast<double>(Limits::denorm_min()),
          .largest = static_cast<double>(Limits::max()),
          .exponent_min = Limits::min_exponent - Limits::digits,
          .exponent_max = Limits::max_exponent - 1,
          .digits = Limits::digits};
}

Range RangeOf(v1::DType dtype) { return dtype == v1::FLOAT32 ? RangeOf<float>() : RangeOf<double>(); }

double Narrow(v1::DType dtype, double value) {
  return dtype == v1::FLOAT32 ? static_cast<double>(static_cast<float>(value)) : value;
}

double RandomSign(Random& random) { return random.Chance(0.5) ? -1 : 1; }

// Uniform in sign, mantissa and exponent, low <= exponent <= high.
double RandomFloat(v1::DType dtype, Random& random, int low, int high) {
  const int exponent = low + static_cast<int>(random.Below(static_cast<uint64_t>(high - low + 1)));
  return Narrow(dtype, RandomSign(random) * std::ldexp(1 + random.Fraction() / 2, exponent));
}

void Shuffle(Addends& addends, Random& random) {
  for (size_t i = addends.size(); i > 1; --i) std::swap(addends[i - 1], addends[random.Below(i)]);
}

// Every number meets its negative somewhere; what is left is the smallest of all.
Addends Cancellation(v1::DType dtype, Random& random) {
  const Range range = RangeOf(dtype);
  Addends addends;
  for (int i = 0; i < 5000; ++i) {
    const double value = RandomFloat(dtype, random, range.exponent_max - 40, range.exponent_max - 14);
    addends.push_back({value});
    addends.push_back({-value});
  }
  for (int i = 0; i < 10; ++i) addends.push_back({RandomFloat(dtype, random, -12, 0)});
  Shuffle(addends, random);
  return addends;
}

Addends SmallBesideLarge(v1::DType dtype, Random&) {
  const double large = dtype == v1::FLOAT32 ? 1e38 : 1e307, small = dtype == v1::FLOAT32 ? 1e-38 : 1e-307;
  Addends addends;
  for (const double value : {large, small, -large, small, small, large, -large})
    addends.push_back({Narrow(dtype, value)});
  return addends;
}

Addends Subnormals(v1::DType dtype, Random& random) {
  const Range range = RangeOf(dtype);
  Addends addends;
  for (int i = 0; i < 9999; ++i) {
    const double value = range.smallest * static_cast<double>(random.Below(1 << 20));
    addends.push_back({RandomSign(random) * value});
  }
  return addends;
}

Addends SubnormalsBesideTheLargest(v1::DType dtype, Random& random) {
  Addends addends = Subnormals(dtype, random);
  const double largest = RangeOf(dtype).largest;
  for (int i = 0; i < 500; ++i) {
    addends.push_back({largest});
    addends.push_back({-largest});
  }
  Shuffle(addends, random);
  return addends;
}

// 1 - 1/2 + 1/3 - ...
Addends AlternatingSigns(v1::DType dtype, Random&) {
  Addends addends;
  for (int i = 1; i <= 20'000; ++i) addends.push_back({Narrow(dtype, (i % 2 == 1 ? 1.0 : -1.0) / i)});
  return addends;
}

Addends RandomExponents(v1::DType dtype, Random& random) {
  const Range range = RangeOf(dtype);
  Addends addends;
  for (int i = 0; i < 10'000; ++i)
    addends.push_back({RandomFloat(dtype, random, range.exponent_min, range.exponent_max - 15)});
  return addends;
}

// Half a unit above an even number, and one speck that decides.
Addends TieAndSpeck(v1::DType dtype, Random&) {
  const Range range = RangeOf(dtype);
  return {{1}, {std::ldexp(1.0, -range.digits)}, {range.smallest}};
}

Addends TieAndNegativeSpeck(v1::DType dtype, Random&) {
  const Range range = RangeOf(dtype);
  return {{1 + std::ldexp(2.0, -range.digits)}, {std::ldexp(1.0, -range.digits)}, {-range.smallest}};
}

// Over the top, and back.
Addends BeyondTheLargest(v1::DType dtype, Random& random) {
  const double largest = RangeOf(dtype).largest;
  Addends addends;
  for (int i = 0; i < 100; ++i) {
    addends.push_back({largest});
    addends.push_back({-largest});
  }
  std::stable_partition(addends.begin(), addends.end(), [](const Addend& addend) { return addend.value > 0; });
  addends.push_back({RandomFloat(dtype, random, -3, 3)});
  return addends;
}

// Sums whose condition number is about 2^100: each new number takes away most of what is there.
Addends IllConditioned(v1::DType dtype, Random& random) {
  Addends addends;
  const int top = RangeOf(dtype).digits * 2;
  for (int exponent = top; exponent > -top; exponent -= 1) {
    const double value = RandomFloat(dtype, random, exponent, exponent);
    addends.push_back({value});
    addends.push_back({-std::nextafter(value, 0.0)});
    addends.back().value = Narrow(dtype, addends.back().value * (1 + std::ldexp(1.0, -22)));
  }
  Shuffle(addends, random);
  return addends;
}

Addends WeightsOfAnySize(v1::DType dtype, Random& random) {
  const Range range = RangeOf(dtype);
  Addends addends;
  double value = 1;
  for (int i = 0; i < 5000; ++i) {
    value = random.Chance(0.4) ? -value : RandomFloat(dtype, random, range.exponent_min, range.exponent_max - 60);
    const float weight = std::fabs(static_cast<float>(RandomFloat(v1::FLOAT32, random, -149, 40)));
    addends.push_back({value, weight});
  }
  return addends;
}

Addends WeightsThatCancel(v1::DType dtype, Random& random) {
  Addends addends;
  for (int i = 0; i < 3000; ++i) {
    const double value = RandomFloat(dtype, random, -20, 20);
    const float weight = static_cast<float>(1 + random.Below(1 << 20)) / 7;
    addends.push_back({value, weight});
    addends.push_back({-value, weight});
  }
  addends.push_back({Narrow(dtype, 1e-30), 0.1f});
  Shuffle(addends, random);
  return addends;
}

Addends AMillionTenths(v1::DType dtype, Random&) { return Addends(1'000'000, {Narrow(dtype, 0.1)}); }

Addends AMillionThatCancel(v1::DType dtype, Random& random) {
  Addends addends;
  addends.reserve(1'000'000);
  for (int i = 0; i < 499'999; ++i) {
    const double value = RandomFloat(dtype, random, -60, 60);
    addends.push_back({value});
    addends.push_back({-value});
  }
  addends.push_back({Narrow(dtype, 0x1p-70)});
  addends.push_back({Narrow(dtype, 0.3 * 0x1p-60)});
  Shuffle(addends, random);
  return addends;
}

constexpr Case kCases[] = {{"cancellation", Cancellation},
                           {"tiny beside huge", SmallBesideLarge},
                           {"subnormals", Subnormals},
                           {"subnormals and the largest", SubnormalsBesideTheLargest},
                           {"alternating signs, 1/n", AlternatingSigns},
                           {"all exponents", RandomExponents},
                           {"a tie and a speck", TieAndSpeck},
                           {"a tie and a negative speck", TieAndNegativeSpeck},
                           {"beyond the largest and back", BeyondTheLargest},
                           {"ill-conditioned", IllConditioned}};
constexpr Case kWeightedCases[] = {{"weights of any size", WeightsOfAnySize},
                                   {"weights that cancel", WeightsThatCancel}};
constexpr Case kLongCases[] = {{"1 M times 0.1", AMillionTenths}, {"1 M that cancel", AMillionThatCancel}};

// --- Folding ------------------------------------------------------------------------------------------------------

// As they came, backwards, by value up and down, by size up and down, and two shuffles.
std::vector<Addends> OrdersOf(const Addends& addends, Random& random) {
  std::vector<Addends> orders(kOrders, addends);
  std::reverse(orders[1].begin(), orders[1].end());
  const auto by_value = [](const Addend& a, const Addend& b) { return a.value < b.value; };
  const auto by_size = [](const Addend& a, const Addend& b) { return std::fabs(a.value) < std::fabs(b.value); };
  std::sort(orders[2].begin(), orders[2].end(), by_value);
  std::sort(orders[3].rbegin(), orders[3].rend(), by_value);
  std::sort(orders[4].begin(), orders[4].end(), by_size);
  std::sort(orders[5].rbegin(), orders[5].rend(), by_size);
  Shuffle(orders[6], random);
  Shuffle(orders[7], random);
  return orders;
}

void AppendValue(v1::DType dtype, double value, std::string& data) {
  const float narrow = static_cast<float>(value);
  if (dtype == v1::FLOAT32) {
    data.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
  } else {
    data.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
}

std::vector<double> WideValues(const NamedTensor& tensor) {
  if (tensor.dtype == v1::FLOAT64) return ValuesOf<double>(tensor.data);
  const std::vector<float> narrow = ValuesOf<float>(tensor.data);
  return {narrow.begin(), narrow.end()};
}

// One contribution per addend: element i takes the addends in the i-th order. All orders have equal weights in step.
std::vector<double> FoldDense(const char* op, v1::DType dtype, const std::vector<Addends>& orders) {
  RoundAccumulator accumulator = Accumulator(ASpec(op, dtype, {static_cast<int64_t>(orders.size())}));
  for (size_t i = 0; i < orders.front().size(); ++i) {
    std::string data;
    for (const Addends& order : orders) AppendValue(dtype, order[i].value, data);
    const v1::Tensor tensor = ATensor(dtype, {static_cast<int64_t>(orders.size())}, data);
    const absl::Status status = Fold(accumulator, Contribute(tensor, orders.front()[i].weight));
    if (!status.ok()) FAIL(status.ToString());
  }
  return WideValues(accumulator.Report().value().tensors.front());
}

// Contributions of up to 10,000 entries each, all at coordinate 3.
double FoldSparse(v1::DType dtype, const Addends& addends) {
  constexpr size_t kEntries = 10'000;
  RoundAccumulator accumulator = Accumulator(ASpec("sparse_sum", dtype, {10}));
  for (size_t at = 0; at < addends.size(); at += kEntries) {
    const size_t n = std::min(kEntries, addends.size() - at);
    std::string data;
    for (size_t i = 0; i < n; ++i) AppendValue(dtype, addends[at + i].value, data);
    const int64_t rows = static_cast<int64_t>(n);
    const v1::Tensor indices = ATensor(v1::INT64, {rows, 1}, BytesOf(std::vector<int64_t>(n, 3)));
    const absl::Status status = Fold(accumulator, Contribute(Sparse({10}, indices, ATensor(dtype, {rows}, data))));
    if (!status.ok()) FAIL(status.ToString());
  }
  const AggregateReport report = accumulator.Report().value();
  return WideValues(Find(report, "w.values")).at(0);
}

template <typename Float>
Float PlainLoop(const Addends& addends) {
  Float sum = 0;
  for (const Addend& addend : addends) sum += static_cast<Float>(addend.weight) * static_cast<Float>(addend.value);
  return sum;
}

// --- The table ----------------------------------------------------------------------------------------------------

std::string Ulps(double error) { return error < 1e4 ? fmt::format("{:.3g}", error) : fmt::format("{:.1e}", error); }

// The worst error of a plain loop over the orders, in ulps of the released type, and how many orders give wrong bits.
template <typename Accumulator, typename Released>
std::string PlainError(const ExactValue& oracle, const std::vector<Addends>& orders) {
  double worst = 0;
  int num_wrong = 0;
  for (const Addends& order : orders) {
    const Released released = static_cast<Released>(PlainLoop<Accumulator>(order));
    if (!(released == oracle.Nearest<Released>())) ++num_wrong;
    worst = std::max(worst, oracle.ErrorInUlps<Released>(static_cast<double>(released)));
  }
  return fmt::format("{:>8} {}/{}", Ulps(worst), num_wrong, orders.size());
}

template <typename Released>
std::string TableRow(const Case& adversary, v1::DType dtype, const ExactValue& oracle, double found,
                     const std::vector<Addends>& orders) {
  return fmt::format("{:<27} {} {:>7} | {:.3f} | {} | {}\n", adversary.name, dtype == v1::FLOAT32 ? "f32" : "f64",
                     orders.front().size(), oracle.ErrorInUlps<Released>(found),
                     PlainError<double, Released>(oracle, orders), PlainError<float, Released>(oracle, orders));
}

constexpr const char* kTableHead =
    "\nWorst error over 8 orders, in ulps of the released type, and orders that give wrong bits:\n"
    "case                        type addends | EXACT |    plain f64 |    plain f32\n";

// --- The tests ----------------------------------------------------------------------------------------------------

// Sums are correctly rounded: the bits of the oracle.
template <typename Float>
std::string CheckCase(const Case& adversary, v1::DType dtype) {
  SeededRandom random(11);
  const Addends addends = adversary.make(dtype, random);
  INFO(adversary.name << " " << v1::DType_Name(dtype));
  ExactValue oracle;
  for (const Addend& addend : addends) oracle.AddProduct(addend.value, 1);
  const uint64_t expected = std::bit_cast<uint64_t>(static_cast<double>(oracle.Nearest<Float>()));
  const std::vector<Addends> orders = OrdersOf(addends, random);
  std::vector<double> found = FoldDense("sum", dtype, orders);
  found.push_back(FoldSparse(dtype, addends));
  for (const double sum : found) REQUIRE(std::bit_cast<uint64_t>(sum) == expected);
  REQUIRE((oracle.ErrorInUlps<Float>(found[0]) <= 0.5 || std::isinf(found[0])));
  return TableRow<Float>(adversary, dtype, oracle, found[0], orders);
}

TEST_CASE("An exact sum of adversarial numbers is correctly rounded in every order, where plain sums fail") {
  std::string table = kTableHead;
  for (const Case& adversary : kCases) {
    table += CheckCase<float>(adversary, v1::FLOAT32);
    table += CheckCase<double>(adversary, v1::FLOAT64);
  }
  fmt::print("{}", table);
}

// As entries of a sparse sum; a million contributions would only measure protobuf.
template <typename Float>
std::string CheckLongCase(const Case& adversary, v1::DType dtype) {
  SeededRandom random(12);
  const Addends addends = adversary.make(dtype, random);
  INFO(adversary.name << " " << v1::DType_Name(dtype));
  ExactValue oracle;
  for (const Addend& addend : addends) oracle.AddProduct(addend.value, 1);
  std::vector<Addends> orders = OrdersOf(addends, random);
  for (const Addends& order : orders) REQUIRE(FoldSparse(dtype, order) == static_cast<double>(oracle.Nearest<Float>()));
  return TableRow<Float>(adversary, dtype, oracle, FoldSparse(dtype, addends), orders);
}

TEST_CASE("An exact sum of a million addends is correctly rounded") {
  std::string table = kTableHead;
  for (const Case& adversary : kLongCases) {
    table += CheckLongCase<float>(adversary, v1::FLOAT32);
    table += CheckLongCase<double>(adversary, v1::FLOAT64);
  }
  fmt::print("{}", table);
}

template <typename Float>
std::string CheckMean(const Case& adversary, const char* op, v1::DType dtype, double bound) {
  SeededRandom random(13);
  const Addends addends = adversary.make(dtype, random);
  INFO(op << " of " << adversary.name << " " << v1::DType_Name(dtype));
  const bool is_weighted = std::string_view(op) == "weighted_mean";
  ExactValue sum, weights;
  for (const Addend& addend : addends) {
    sum.AddProduct(addend.value, is_weighted ? addend.weight : 1);
    weights.AddProduct(1, is_weighted ? addend.weight : 1);
  }
  const bool sum_overflows = std::isinf(sum.Nearest<double>());
  const bool is_subnormal_sum = std::fabs(sum.Nearest<double>()) < std::numeric_limits<double>::min();
  sum.DivideBy(weights);
  // Weights go with their values, so there is one order and its reverse.
  std::vector<Addends> orders = {addends};
  const double found = FoldDense(op, dtype, orders)[0];
  std::reverse(orders[0].begin(), orders[0].end());
  REQUIRE(std::bit_cast<uint64_t>(FoldDense(op, dtype, orders)[0]) == std::bit_cast<uint64_t>(found));
  const double error = sum.ErrorInUlps<Float>(found);
  const bool is_normal = std::fabs(found) >= static_cast<double>(std::numeric_limits<Float>::min());
  const std::string row =
      fmt::format("{:<14} {:<30} {} | {}\n", op, adversary.name, dtype == v1::FLOAT32 ? "f32" : "f64", Ulps(error));
  INFO(row);
  if (dtype == v1::FLOAT32) REQUIRE(error <= bound);
  if (dtype == v1::FLOAT64 && is_normal && !is_subnormal_sum && !sum_overflows) REQUIRE(error <= bound);
  return row;
}

template <typename Float>
std::string CheckMeans(v1::DType dtype, double bound) {
  std::string rows;
  for (const Case& adversary : kCases) rows += CheckMean<Float>(adversary, "mean", dtype, bound);
  for (const Case& adversary : kWeightedCases) rows += CheckMean<Float>(adversary, "weighted_mean", dtype, bound);
  return rows;
}

TEST_CASE("An exact mean of adversarial numbers is within the stated bound of the true mean") {
  fmt::print("\nError of exact means, in ulps of the released type:\n{}{}", CheckMeans<float>(v1::FLOAT32, 0.5001),
             CheckMeans<double>(v1::FLOAT64, 2.6));
}

TEST_CASE("Random weighted means stay within the stated bound") {
  double worst[2] = {};
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SeededRandom random(seed);
    for (const v1::DType dtype : {v1::FLOAT32, v1::FLOAT64}) {
      ExactValue mean, weights;
      Addends addends;
      for (uint64_t n = 1 + random.Below(20); n > 0; --n) {
        const float weight = std::fabs(static_cast<float>(RandomFloat(v1::FLOAT32, random, -20, 20)));
        addends.push_back({RandomFloat(dtype, random, -20, 20), weight});
        mean.AddProduct(addends.back().value, weight);
        weights.AddProduct(1, weight);
      }
      mean.DivideBy(weights);
      const double found = FoldDense("weighted_mean", dtype, {addends})[0];
      const double error = dtype == v1::FLOAT32 ? mean.ErrorInUlps<float>(found) : mean.ErrorInUlps<double>(found);
      INFO("seed " << seed << " " << v1::DType_Name(dtype));
      REQUIRE(error <= (dtype == v1::FLOAT32 ? 0.5001 : 2.6));
      double& worst_of_type = worst[dtype == v1::FLOAT32 ? 0 : 1];
      worst_of_type = std::max(worst_of_type, error);
    }
  }
  fmt::print("\nWorst error of 3000 random weighted means: f32 {:.6f} ulp, f64 {:.3f} ulp\n", worst[0], worst[1]);
}

}  // namespace
}  // namespace sheaf
