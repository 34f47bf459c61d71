// The C++ optimisers, for the test of Python's: reads calls from stdin and prints the weights after each.
//
//   OPTIMIZER RATE BETA1 BETA2 TAU
//   ROWS WIDTH WEIGHT...                       the model, ROWS * WIDTH numbers
//   COUNT ROW... DELTA...                      one move of COUNT rows; COUNT -1: of the whole, ROWS * WIDTH deltas
//
// Numbers are those of "%a".
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "sdk/cpp/program/server_optimizer.h"

namespace {

double Number() {
  std::string word;
  std::cin >> word;
  return std::strtod(word.c_str(), nullptr);
}

std::vector<float> Numbers(int64_t count) {
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) number = static_cast<float>(Number());
  return numbers;
}

}  // namespace

int main() {
  std::string name;
  std::cin >> name;
  sheaf::ServerOptimizerOptions options;
  options.learning_rate = Number();
  options.beta1 = Number();
  options.beta2 = Number();
  options.tau = Number();
  auto optimizer = sheaf::ServerOptimizer::Create(name, options);
  if (!optimizer.ok()) return 1;
  const auto num_rows = static_cast<int64_t>(Number());
  const auto width = static_cast<int64_t>(Number());
  std::vector<float> weights = Numbers(num_rows * width);
  int64_t count = 0;
  while (std::cin >> count) {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < count; ++i) rows.push_back(static_cast<int64_t>(Number()));
    const std::vector<float> deltas = Numbers((count < 0 ? num_rows : count) * width);
    const absl::Status moved = count < 0 ? optimizer->MoveDense("w", deltas, weights)
                                         : optimizer->MoveRows("w", rows, deltas, width, weights);
    if (!moved.ok()) return 1;
    for (const float weight : weights) std::printf("%a ", static_cast<double>(weight));
    std::printf("\n");
  }
}
