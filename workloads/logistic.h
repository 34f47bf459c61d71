// The logistic function, its gradient and its loss, the same bits everywhere: only additions, multiplications,
// divisions and integer operations, which IEEE 754 rounds in one way, and none of libm's.
#pragma once

#include <cstdint>
#include <span>

namespace sheaf {

// 1 / (1 + exp(-x)), within 2 units in the last place. Saturates beyond +-30.
float Sigmoid(float x);

// Replaces each score s by sigmoid(s) - y, where y is 1 for the `positives` (sorted label numbers) and 0 for the
// others, and returns the summed log loss.
double ScoresToGradient(std::span<float> scores, std::span<const uint16_t> positives);

}  // namespace sheaf
