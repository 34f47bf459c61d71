// Random: where chance comes from. Ids, tokens, jitter and sampling draw from one of
// these; tests and simulations seed it, only a binary's main takes SystemRandom.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"

namespace sheaf {

class Random {
 public:
  virtual ~Random() = default;

  // 64 uniform bits.
  virtual uint64_t Bits() = 0;

  // Uniform in [0, bound). bound > 0.
  uint64_t Below(uint64_t bound);
  // Uniform in [0, 1).
  double Fraction();
  // True with probability p.
  bool Chance(double p) { return Fraction() < p; }
  // Uniform in [low, high).
  absl::Duration Between(absl::Duration low, absl::Duration high);
  // `length` characters of [a-z2-7]: 5 random bits each.
  std::string Token(int length);
};

// The same seed gives the same sequence on every machine (splitmix64 into xoshiro256**, Blackman and Vigna 2018).
// Not thread-safe.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(uint64_t seed);
  uint64_t Bits() override;

 private:
  uint64_t state_[4];
};

// OpenSSL's generator, which the operating system seeds: fit for secrets. To ask it costs the same for 4 KiB as for
// nearly nothing, so that it is asked for many at once; what was given away is not kept. Not thread-safe.
class SystemRandom final : public Random {
 public:
  uint64_t Bits() override;

 private:
  std::array<uint64_t, 512> ahead_ = {};
  size_t num_ahead_ = 0;
};

}  // namespace sheaf
