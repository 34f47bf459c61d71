#include "sdk/cpp/program/server_optimizer.h"

#include <fmt/format.h>

#include <cmath>

namespace sheaf {
namespace {

using Options = ServerOptimizerOptions;

// The moments of one row; null for an optimiser that keeps none.
struct RowMoments {
  float* first = nullptr;
  float* second = nullptr;
};

double Adaptive(double moment, float v, const Options& o) {
  return o.learning_rate * moment / (std::sqrt(static_cast<double>(v)) + o.tau);
}

void Average(double d, float& m, const Options& o) { m = static_cast<float>(o.beta1 * m + (1 - o.beta1) * d); }

// Rules: what to add to one element.
struct FedAvg {
  static double Step(double d, float&, float&, const Options& o) { return o.learning_rate * d; }
};
struct FedAvgM {
  static double Step(double d, float& m, float&, const Options& o) {
    m = static_cast<float>(o.beta1 * m + d);
    return o.learning_rate * m;
  }
};
struct FedAdagrad {
  static double Step(double d, float&, float& v, const Options& o) {
    v = static_cast<float>(v + d * d);
    return Adaptive(d, v, o);
  }
};
struct FedAdam {
  static double Step(double d, float& m, float& v, const Options& o) {
    Average(d, m, o);
    v = static_cast<float>(o.beta2 * v + (1 - o.beta2) * (d * d));
    return Adaptive(m, v, o);
  }
};
struct FedYogi {
  static double Step(double d, float& m, float& v, const Options& o) {
    Average(d, m, o);
    const double square = d * d;
    const double sign = v > square ? 1 : v < square ? -1 : 0;
    v = static_cast<float>(v - (1 - o.beta2) * square * sign);
    return Adaptive(m, v, o);
  }
};

template <typename Rule>
void MoveRow(std::span<const float> delta, float* weights, RowMoments moments, const Options& options) {
  float unused = 0;
  for (size_t i = 0; i < delta.size(); ++i) {
    float& m = moments.first == nullptr ? unused : moments.first[i];
    float& v = moments.second == nullptr ? unused : moments.second[i];
    weights[i] = static_cast<float>(weights[i] + Rule::Step(delta[i], m, v, options));
  }
}

bool IsFraction(double beta) { return beta >= 0 && beta < 1; }
bool IsPositive(double value) { return value > 0 && std::isfinite(value); }

}  // namespace

struct ServerOptimizerRow {
  std::string_view name;
  // Which moments it keeps.
  bool keeps_first = false;
  bool keeps_second = false;
  void (*move)(std::span<const float> delta, float* weights, RowMoments moments, const Options& options) = nullptr;
};

namespace {

constexpr ServerOptimizerRow kRows[] = {
    {.name = "FedAvg", .move = MoveRow<FedAvg>},
    {.name = "FedAvgM", .keeps_first = true, .move = MoveRow<FedAvgM>},
    {.name = "FedAdagrad", .keeps_second = true, .move = MoveRow<FedAdagrad>},
    {.name = "FedAdam", .keeps_first = true, .keeps_second = true, .move = MoveRow<FedAdam>},
    {.name = "FedYogi", .keeps_first = true, .keeps_second = true, .move = MoveRow<FedYogi>},
};

}  // namespace

std::vector<std::string_view> ServerOptimizer::Names() {
  std::vector<std::string_view> names;
  for (const ServerOptimizerRow& row : kRows) names.push_back(row.name);
  return names;
}

absl::StatusOr<ServerOptimizer> ServerOptimizer::Create(std::string_view name, const Options& options) {
  const bool is_valid = IsPositive(options.learning_rate) && IsPositive(options.tau) && IsFraction(options.beta1) &&
                        IsFraction(options.beta2);
  if (!is_valid) {
    return absl::InvalidArgumentError(
        "a server optimiser needs a learning rate and a tau above 0, and betas from 0 to below 1");
  }
  for (const ServerOptimizerRow& row : kRows) {
    if (row.name == name) return ServerOptimizer(row, options);
  }
  return absl::InvalidArgumentError(
      fmt::format("there is no server optimiser \"{}\"; there are {}", name, fmt::join(Names(), ", ")));
}

absl::Status ServerOptimizer::MoveDense(std::string_view tensor, std::span<const float> delta,
                                        std::span<float> weights) {
  const int64_t whole = 0;
  return MoveRows(tensor, std::span(&whole, 1), delta, static_cast<int64_t>(weights.size()), weights);
}

absl::Status ServerOptimizer::MoveRows(std::string_view tensor, std::span<const int64_t> rows,
                                       std::span<const float> deltas, int64_t width, std::span<float> weights) {
  const auto num_weights = static_cast<int64_t>(weights.size());
  const int64_t num_rows = width > 0 ? num_weights / width : 0;
  if (width < 0 || num_rows * width != num_weights || deltas.size() != rows.size() * static_cast<size_t>(width)) {
    return absl::InvalidArgumentError(fmt::format("{} deltas for {} rows of {} elements do not fit tensor \"{}\" of {}",
                                                  deltas.size(), rows.size(), width, tensor, num_weights));
  }
  if (width == 0) return absl::OkStatus();
  for (int64_t row : rows) {
    if (row < 0 || row >= num_rows) {
      return absl::InvalidArgumentError(fmt::format("tensor \"{}\" of {} rows has no row {}", tensor, num_rows, row));
    }
  }
  Moments& moments = moments_.try_emplace(std::string(tensor)).first->second;
  if (moments.width != 0 && moments.width != width) {
    return absl::InvalidArgumentError(
        fmt::format("the rows of tensor \"{}\" had {} elements before, and {} now", tensor, moments.width, width));
  }
  moments.width = width;
  for (size_t i = 0; i < rows.size(); ++i) {
    RowMoments of_row;
    if (row_->keeps_first || row_->keeps_second) {
      const size_t begin = SlotOf(rows[i], moments) * static_cast<size_t>(width);
      if (row_->keeps_first) of_row.first = moments.first.data() + begin;
      if (row_->keeps_second) of_row.second = moments.second.data() + begin;
    }
    row_->move(deltas.subspan(i * static_cast<size_t>(width), static_cast<size_t>(width)),
               weights.data() + rows[i] * width, of_row, options_);
  }
  return absl::OkStatus();
}

size_t ServerOptimizer::SlotOf(int64_t row, Moments& moments) const {
  const auto [slot, is_new] = moments.slots.try_emplace(row, moments.slots.size());
  if (is_new) {
    const size_t size = moments.slots.size() * static_cast<size_t>(moments.width);
    if (row_->keeps_first) moments.first.resize(size, 0.0f);
    if (row_->keeps_second) moments.second.resize(size, static_cast<float>(options_.tau * options_.tau));
  }
  return slot->second;
}

}  // namespace sheaf
