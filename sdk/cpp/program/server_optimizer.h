// ServerOptimizer: how a program moves its model by what a round released.
//
//   ASSIGN_OR_RETURN(ServerOptimizer optimizer, ServerOptimizer::Create("FedAdagrad", {.learning_rate = 0.1}));
//   RETURN_IF_ERROR(optimizer.MoveDense("bias", delta, bias));                    // Every round: all of a tensor,
//   RETURN_IF_ERROR(optimizer.MoveRows("items", rows, deltas, width, items));     // or some of its rows.
//
// The table, for every element x of the model, its delta d and its moments m and v:
//
//   FedAvg       x += rate * d
//   FedAvgM      m = beta1 * m + d                                      x += rate * m
//   FedAdagrad   v = v + d^2                                            x += rate * d / (sqrt(v) + tau)
//   FedAdam      m = beta1 * m + (1 - beta1) * d
//                v = beta2 * v + (1 - beta2) * d^2                      x += rate * m / (sqrt(v) + tau)
//   FedYogi      m as FedAdam's
//                v = v - (1 - beta2) * d^2 * sign(v - d^2)              x += rate * m / (sqrt(v) + tau)
//
// (Reddi et al., Adaptive Federated Optimization, 2021; FedAvgM: Hsu et al., 2019.) m begins at 0 and v at tau^2.
// As in those papers, neither has a bias correction. A delta is the direction of the step: negate gradients.
//
// The moments of a row are made when the row is first touched, and change only when it is touched: a row that no client
// touched neither decays nor moves on. Where the delta of a dense tensor is 0, the element does both.
//
// The same calls give the same bits on every machine. Moments are float32, the arithmetic between them is double.
// Memory: O(rows touched). Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/key_hash.h"

namespace sheaf {

struct ServerOptimizerOptions {
  double learning_rate = 1.0;
  // Memory of m and of v, in [0, 1).
  double beta1 = 0.9;
  double beta2 = 0.99;
  // Keeps steps of rarely moved elements small; above 0.
  double tau = 1e-3;
};

struct ServerOptimizerRow;

class ServerOptimizer {
 public:
  // Names of the table, in its order.
  static std::vector<std::string_view> Names();
  // INVALID_ARGUMENT if `name` is not in the table (names those that are) or an option is out of its range.
  static absl::StatusOr<ServerOptimizer> Create(std::string_view name, const ServerOptimizerOptions& options = {});

  // INVALID_ARGUMENT, and nothing moves, if the sizes differ, or differ from those of an earlier call for `tensor`.
  absl::Status MoveDense(std::string_view tensor, std::span<const float> delta, std::span<float> weights);
  // `weights` has rows of `width` elements; `deltas` holds one row for each of `rows`, which are unique.
  // INVALID_ARGUMENT, and nothing moves, if a row is not of this tensor or the sizes disagree.
  absl::Status MoveRows(std::string_view tensor, std::span<const int64_t> rows, std::span<const float> deltas,
                        int64_t width, std::span<float> weights);

 private:
  // The moments of one tensor: those of a row are at slot * width.
  struct Moments {
    int64_t width = 0;
    // The rows are those that contributions touched.
    std::unordered_map<int64_t, size_t, KeyHash> slots;
    std::vector<float> first;
    std::vector<float> second;
  };

  ServerOptimizer(const ServerOptimizerRow& row, const ServerOptimizerOptions& options)
      : row_(&row), options_(options) {}
  size_t SlotOf(int64_t row, Moments& moments) const;

  const ServerOptimizerRow* row_;
  ServerOptimizerOptions options_;
  std::map<std::string, Moments, std::less<>> moments_;
};

}  // namespace sheaf
