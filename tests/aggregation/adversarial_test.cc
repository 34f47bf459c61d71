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

// The true mean: sum of weight * value over sum of weights.
void SetMean(const Addends& addends, bool is_weighted, ExactValue& mean) {
  ExactValue weights;
  for (const Addend& addend : addends) {
    mean.AddProduct(addend.value, is_weighted ? addend.weight : 1);
    weights.AddProduct(1, is_weighted ? addend.weight : 1);
  }
  mean.DivideBy(weights);
}

uint64_t BitsOf(double value) { return std::bit_cast<uint64_t>(value); }

// The bits that a mean must have, as those of a double. Zero has no sign unless something was lost.
template <typename Float>
uint64_t NearestBits(const ExactValue& mean) {
  return BitsOf(static_cast<double>(mean.Nearest<Float>()));
}

template <typename Float>
void CheckMean(const Case& adversary, const char* op, v1::DType dtype) {
  SeededRandom random(13);
  const Addends addends = adversary.make(dtype, random);
  INFO(op << " of " << adversary.name << " " << v1::DType_Name(dtype));
  ExactValue mean;
  SetMean(addends, std::string_view(op) == "weighted_mean", mean);
  // Weights go with their values, so there is one order and its reverse.
  std::vector<Addends> orders = {addends};
  const double found = FoldDense(op, dtype, orders)[0];
  REQUIRE(BitsOf(found) == NearestBits<Float>(mean));
  std::reverse(orders[0].begin(), orders[0].end());
  REQUIRE(BitsOf(FoldDense(op, dtype, orders)[0]) == BitsOf(found));
}

template <typename Float>
void CheckMeans(v1::DType dtype) {
  for (const Case& adversary : kCases) CheckMean<Float>(adversary, "mean", dtype);
  for (const Case& adversary : kWeightedCases) CheckMean<Float>(adversary, "weighted_mean", dtype);
}

TEST_CASE("An exact mean of adversarial numbers is correctly rounded") {
  CheckMeans<float>(v1::FLOAT32);
  CheckMeans<double>(v1::FLOAT64);
}

TEST_CASE("A mean that fits is released although its sum does not") {
  const double largest = std::numeric_limits<double>::max();
  CHECK(FoldDense("mean", v1::FLOAT64, {{{1.7e308}, {1.7e308}}})[0] == 1.7e308);
  CHECK(FoldDense("weighted_mean", v1::FLOAT64, {{{largest, 3e38f}, {largest, 3e38f}, {largest, 1e-45f}}})[0] ==
        largest);
  CHECK(FoldDense("mean", v1::FLOAT32, {{{3e38}, {3e38}}})[0] == static_cast<double>(3e38f));
  CHECK(FoldDense("mean", v1::FLOAT64, {{{5e-324}, {5e-324}, {1e-323}}})[0] == 5e-324);
}

TEST_CASE("A mean that is a tie is rounded to even, whatever its divisor") {
  // The divisor, 1 + 2^-54, is no double; the sum lies in three digits, which are divided at once.
  const auto mean_of = [](double odd, double even) {
    return FoldDense("weighted_mean", v1::FLOAT32, {{{odd, 0.5f}, {even, 0.5f}, {odd, 0x1p-55f}, {even, 0x1p-55f}}})[0];
  };
  CHECK(mean_of(0x1p+17 + 0x1p-6, 0x1p+17 + 0x1p-5) == 0x1p+17 + 0x1p-5);
  CHECK(mean_of(0x1p+17 + 0x1p-6, 0x1p+17) == 0x1p+17);
}

// One contribution per addend, of one entry at coordinate 3 of 10 or in the middle of a row of 3; all touch it.
double FoldSparseMean(const char* op, v1::DType dtype, const Addends& addends, bool is_row) {
  v1::OutputSpec output = AnOutput(op, dtype, is_row ? std::vector<int64_t>{10, 3} : std::vector<int64_t>{10});
  output.set_index_dims(1);
  RoundAccumulator accumulator = Accumulator(ASpec(output));
  for (const Addend& addend : addends) {
    std::string data;
    for (int i = 0; i < (is_row ? 3 : 1); ++i) AppendValue(dtype, !is_row || i == 1 ? addend.value : 1, data);
    const v1::Tensor values = ATensor(dtype, is_row ? std::vector<int64_t>{1, 3} : std::vector<int64_t>{1}, data);
    v1::SparseTensor sparse = Sparse(is_row ? std::vector<int64_t>{10, 3} : std::vector<int64_t>{10},
                                     ATensor(v1::INT64, {1, 1}, BytesOf<int64_t>({3})), values);
    const absl::Status status = Fold(accumulator, Contribute(sparse, addend.weight));
    if (!status.ok()) FAIL(status.ToString());
  }
  const absl::StatusOr<AggregateReport> report = accumulator.Report();
  if (!report.ok()) FAIL(report.status().ToString());
  return WideValues(Find(*report, "w.values")).at(is_row ? 1 : 0);
}

// Addends of a mean that is hard to round: every kind of magnitude, and means that lie on or beside a tie, at the edge
// of the subnormals, or whose sum overflows.
Addends HardMean(v1::DType dtype, Random& random) {
  const Range range = RangeOf(dtype);
  const int n = 1 + static_cast<int>(random.Below(9));
  const int kind = static_cast<int>(random.Below(7));
  const int spread = random.Chance(0.5) ? 0 : static_cast<int>(random.Below(60));
  int low = -10;
  if (kind == 1) low = range.exponent_max - spread;
  if (kind == 2) low = range.exponent_min;
  if (kind == 3) low = std::max(range.exponent_min, -static_cast<int>(random.Below(1100)));
  Addends addends;
  for (int i = 0; i < n; ++i) {
    double value = RandomFloat(dtype, random, low, std::min(low + spread, range.exponent_max));
    // Few bits: quotients that are exact, or ties.
    if (kind == 4) value = Narrow(dtype, std::ldexp(static_cast<double>(random.Below(8)), -3));
    if (kind == 5 && i > 0) value = std::nextafter(addends[0].value, random.Chance(0.5) ? 0.0 : range.largest);
    if (kind == 5) value = Narrow(dtype, value);
    if (kind == 6) value = RandomSign(random) * range.smallest * static_cast<double>(random.Below(9));
    const int weight_kind = static_cast<int>(random.Below(4));
    float weight = static_cast<float>(1 + random.Below(1000));
    if (weight_kind == 1) weight = std::fabs(static_cast<float>(RandomFloat(v1::FLOAT32, random, -149, 127)));
    if (weight_kind == 2) weight = std::fabs(static_cast<float>(RandomFloat(v1::FLOAT32, random, -3, 3)));
    if (weight_kind == 3 && i > 0) weight = addends[0].weight;
    addends.push_back({value, weight});
  }
  return addends;
}

template <typename Float>
void CheckHardMean(uint64_t seed, v1::DType dtype) {
  SeededRandom random(seed);
  const Addends addends = HardMean(dtype, random);
  ExactValue weighted, plain;
  SetMean(addends, true, weighted);
  SetMean(addends, false, plain);
  INFO("seed " << seed << " " << v1::DType_Name(dtype) << ", " << addends.size() << " addends");
  for (const char* op : {"mean", "coordinate_mean", "client_mean", "weighted_mean", "weighted_coordinate_mean",
                         "weighted_client_mean"}) {
    INFO(op);
    const uint64_t expected = NearestBits<Float>(std::string_view(op).rfind("weighted", 0) == 0 ? weighted : plain);
    if (std::string_view(op) == "mean" || std::string_view(op) == "weighted_mean") {
      REQUIRE(BitsOf(FoldDense(op, dtype, {addends, addends})[1]) == expected);
    } else {
      REQUIRE(BitsOf(FoldSparseMean(op, dtype, addends, false)) == expected);
      REQUIRE(BitsOf(FoldSparseMean(op, dtype, addends, true)) == expected);
    }
  }
}

TEST_CASE("Means of every operator are correctly rounded: ties, subnormals, overflowing sums, any weights") {
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    CheckHardMean<float>(seed, v1::FLOAT32);
    CheckHardMean<double>(seed, v1::FLOAT64);
  }
}

// All elements of a large tensor at once: the loops that take many, which leave a few to the careful way.
template <typename Float>
void CheckManyMeans(v1::DType dtype, float weight_unit, int num_clients) {
  constexpr int kElements = 3000;
  SeededRandom random(static_cast<uint64_t>(num_clients));
  std::vector<ExactValue> means(kElements);
  ExactValue weights;
  RoundAccumulator accumulator = Accumulator(ASpec("weighted_mean", dtype, {kElements}));
  for (int c = 0; c < num_clients; ++c) {
    const float weight = weight_unit * static_cast<float>(1 + random.Below(2) * random.Below(50));
    weights.AddProduct(1, weight);
    std::string data;
    for (ExactValue& mean : means) {
      const double value = RandomFloat(dtype, random, -6, random.Chance(0.01) ? 40 : -2);
      mean.AddProduct(value, weight);
      AppendValue(dtype, value, data);
    }
    REQUIRE(Fold(accumulator, Contribute(ATensor(dtype, {kElements}, data), weight)).ok());
  }
  const std::vector<double> found = WideValues(accumulator.Report().value().tensors.front());
  int num_wrong = 0;
  for (int i = 0; i < kElements; ++i) {
    means[static_cast<size_t>(i)].DivideBy(weights);
    num_wrong += BitsOf(found[static_cast<size_t>(i)]) != NearestBits<Float>(means[static_cast<size_t>(i)]) ? 1 : 0;
  }
  INFO(v1::DType_Name(dtype) << ", weights are multiples of " << weight_unit << ", clients: " << num_clients);
  CHECK(num_wrong == 0);
}

TEST_CASE("Every element of a large mean is correctly rounded") {
  for (const float weight_unit : {1.0f, 0.1f, 0x1p-100f, 1e30f / 3}) {
    for (const int num_clients : {1, 2, 3, 4, 7, 100}) {
      CheckManyMeans<float>(v1::FLOAT32, weight_unit, num_clients);
      CheckManyMeans<double>(v1::FLOAT64, weight_unit, num_clients);
    }
  }
}

TEST_CASE("A sum of floats that lie just too far apart for a double is rounded once") {
  // Rounding to double and then to float gives 1: the double is a tie.
  CHECK(FoldDense("sum", v1::FLOAT32, {{{1}, {0x1p-24}, {0x1p-54}}})[0] == 1 + 0x1p-23);
  CHECK(FoldDense("sum", v1::FLOAT32, {{{1}, {0x1p-24}, {-0x1p-54}}})[0] == 1);
  CHECK(FoldSparse(v1::FLOAT32, {{-1}, {-0x1p-24}, {-0x1p-54}}) == -1 - 0x1p-23);
  CHECK(FoldDense("mean", v1::FLOAT32, {{{8}, {0x1p-21}, {0x1p-51}, {0}, {0}, {0}, {0}, {0}}})[0] == 1 + 0x1p-23);
  // The same at random: a tie of the float, and specks from 30 to 70 bits below it.
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SeededRandom random(seed);
    const int exponent = -40 + static_cast<int>(random.Below(80));
    const double base = std::ldexp(1 + static_cast<double>(random.Below(1 << 23)) * 0x1p-23, exponent);
    Addends addends = {{RandomSign(random) * base}, {std::ldexp(RandomSign(random), exponent - 24)}};
    for (uint64_t n = random.Below(3); n > 0; --n) {
      addends.push_back({std::ldexp(RandomSign(random), exponent - 30 - static_cast<int>(random.Below(40)))});
    }
    ExactValue oracle;
    for (const Addend& addend : addends) oracle.AddProduct(addend.value, 1);
    const uint64_t expected = NearestBits<float>(oracle);
    INFO("seed " << seed);
    for (const double found : FoldDense("sum", v1::FLOAT32, OrdersOf(addends, random))) {
      REQUIRE(BitsOf(found) == expected);
    }
    REQUIRE(BitsOf(FoldSparse(v1::FLOAT32, addends)) == expected);
  }
}

}  // namespace
}  // namespace sheaf
