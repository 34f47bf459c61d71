#include "sdk/cpp/program/server_optimizer.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "base/random.h"

namespace sheaf {
namespace {

using Floats = std::vector<float>;

ServerOptimizer Make(std::string_view name, const ServerOptimizerOptions& options = {}) {
  return ServerOptimizer::Create(name, options).value();
}

// Where one element that starts at 1 is after these deltas.
Floats Path(std::string_view name, const ServerOptimizerOptions& options, const Floats& deltas) {
  ServerOptimizer optimizer = Make(name, options);
  Floats x = {1.0f};
  Floats path;
  for (float delta : deltas) {
    REQUIRE(optimizer.MoveDense("x", Floats{delta}, x).ok());
    path.push_back(x[0]);
  }
  return path;
}

TEST_CASE("Each server optimiser takes the steps that its formula gives by hand") {
  const ServerOptimizerOptions options{.learning_rate = 0.5, .beta1 = 0.5, .beta2 = 0.75, .tau = 1};
  const Floats deltas = {2, -1};
  const auto check = [&](std::string_view name, double first, double second) {
    CAPTURE(name);
    const Floats path = Path(name, options, deltas);
    CHECK(path[0] == Approx(first).epsilon(1e-6));
    CHECK(path[1] == Approx(second).epsilon(1e-6));
  };
  // 1 + 0.5 * 2; then - 0.5 * 1.
  check("FedAvg", 2, 1.5);
  // m = 2; then 0.5 * 2 - 1 = 0: the two directions cancel.
  check("FedAvgM", 2, 2);
  // v = 1 + 4 = 5; then 6.
  const double adagrad = 1 + 0.5 * 2 / (std::sqrt(5.0) + 1);
  check("FedAdagrad", adagrad, adagrad - 0.5 / (std::sqrt(6.0) + 1));
  // m = 1, v = 0.75 + 1 = 1.75; then m = 0, v = 1.5625.
  const double adam = 1 + 0.5 / (std::sqrt(1.75) + 1);
  check("FedAdam", adam, adam);
  // v = 1 < 4, so v = 1 + 0.25 * 4 = 2; then v = 2 > 1, but m = 0.
  const double yogi = 1 + 0.5 / (std::sqrt(2.0) + 1);
  check("FedYogi", yogi, yogi);
}

// The formulas over whole tensors, in double throughout. `touched` masks the elements that a round moves.
class DenseReference {
 public:
  DenseReference(std::string name, const ServerOptimizerOptions& options, size_t size)
      : name_(std::move(name)), o_(options), m_(size, 0), v_(size, options.tau * options.tau) {}

  void Move(const std::vector<double>& d, const std::vector<bool>& touched, std::vector<double>& x) {
    for (size_t i = 0; i < x.size(); ++i) {
      if (!touched[i]) continue;
      const double square = d[i] * d[i];
      double direction = d[i];
      if (name_ == "FedAvgM") direction = m_[i] = o_.beta1 * m_[i] + d[i];
      if (name_ == "FedAdam" || name_ == "FedYogi") direction = m_[i] = o_.beta1 * m_[i] + (1 - o_.beta1) * d[i];
      if (name_ == "FedAdagrad") v_[i] += square;
      if (name_ == "FedAdam") v_[i] = o_.beta2 * v_[i] + (1 - o_.beta2) * square;
      if (name_ == "FedYogi") v_[i] -= (1 - o_.beta2) * square * ((v_[i] > square) - (v_[i] < square));
      const bool is_adaptive = name_ == "FedAdagrad" || name_ == "FedAdam" || name_ == "FedYogi";
      x[i] += o_.learning_rate * direction / (is_adaptive ? std::sqrt(v_[i]) + o_.tau : 1.0);
    }
  }

 private:
  const std::string name_;
  const ServerOptimizerOptions o_;
  std::vector<double> m_;
  std::vector<double> v_;
};

TEST_CASE("Moving some rows is moving the whole tensor with the moments of all other rows at rest") {
  constexpr int64_t kRows = 20;
  constexpr int64_t kWidth = 3;
  for (std::string_view name : ServerOptimizer::Names()) {
    CAPTURE(name);
    const ServerOptimizerOptions options{.learning_rate = 0.3, .tau = 0.1};
    SeededRandom random(5);
    ServerOptimizer optimizer = Make(name, options);
    DenseReference reference(std::string(name), options, kRows * kWidth);
    Floats x(kRows * kWidth, 0.5f);
    std::vector<double> expected(x.begin(), x.end());
    for (int round = 0; round < 8; ++round) {
      std::vector<int64_t> rows;
      Floats deltas;
      std::vector<double> dense(x.size());
      std::vector<bool> touched(x.size());
      for (int64_t row = 0; row < kRows; ++row) {
        if (!random.Chance(0.4)) continue;
        rows.push_back(row);
        for (int64_t i = row * kWidth; i < (row + 1) * kWidth; ++i) {
          deltas.push_back(static_cast<float>(random.Fraction() * 2 - 1));
          dense[i] = deltas.back();
          touched[i] = true;
        }
      }
      REQUIRE(optimizer.MoveRows("x", rows, deltas, kWidth, x).ok());
      reference.Move(dense, touched, expected);
      for (size_t i = 0; i < x.size(); ++i) CHECK(x[i] == Approx(expected[i]).epsilon(1e-5).margin(1e-6));
    }
  }
}

TEST_CASE("FedAvg at rate 1 adds the delta, to the last bit") {
  SeededRandom random(9);
  Floats x;
  Floats delta;
  Floats sum;
  for (int i = 0; i < 10'000; ++i) {
    x.push_back(static_cast<float>(random.Fraction()));
    delta.push_back(static_cast<float>(std::ldexp(random.Fraction() - 0.5, static_cast<int>(random.Below(60)) - 40)));
    sum.push_back(x.back() + delta.back());
  }
  REQUIRE(Make("FedAvg").MoveDense("x", delta, x).ok());
  CHECK(x == sum);
}

TEST_CASE("Each tensor has moments of its own") {
  ServerOptimizer optimizer = Make("FedAvgM");
  Floats a = {0};
  Floats b = {0};
  REQUIRE(optimizer.MoveDense("a", Floats{1}, a).ok());
  REQUIRE(optimizer.MoveDense("b", Floats{1}, b).ok());
  CHECK(b == Floats{1});
  REQUIRE(optimizer.MoveDense("a", Floats{0}, a).ok());
  CHECK(a[0] == Approx(1.9));
}

TEST_CASE("What does not fit the model is refused, and nothing moves") {
  ServerOptimizer optimizer = Make("FedAdagrad");
  Floats x(6, 1.0f);
  const Floats two_rows(4, 1.0f);
  const auto is_refused = [&](std::vector<int64_t> rows, int64_t width) {
    return absl::IsInvalidArgument(optimizer.MoveRows("x", rows, two_rows, width, x));
  };
  CHECK(is_refused({0, 3}, 2));
  CHECK(is_refused({-1, 0}, 2));
  CHECK(is_refused({0}, 2));
  CHECK(is_refused({0}, 4));
  CHECK(absl::IsInvalidArgument(optimizer.MoveDense("x", two_rows, x)));
  CHECK(x == Floats(6, 1.0f));
  REQUIRE(optimizer.MoveRows("x", std::vector<int64_t>{0, 2}, two_rows, 2, x).ok());
  CHECK(absl::IsInvalidArgument(optimizer.MoveRows("x", std::vector<int64_t>{0}, Floats(3), 3, x)));
}

TEST_CASE("A server optimiser that is not in the table is refused with those that are") {
  const absl::Status unknown = ServerOptimizer::Create("FedLion").status();
  CHECK_THAT(std::string(unknown.message()), Catch::Contains("FedLion") && Catch::Contains("FedAvg, FedAvgM"));
  CHECK(absl::IsInvalidArgument(ServerOptimizer::Create("FedAdam", {.beta1 = 1}).status()));
  CHECK(absl::IsInvalidArgument(ServerOptimizer::Create("FedAdam", {.tau = 0}).status()));
}

}  // namespace
}  // namespace sheaf
