#include "base/random.h"

#include <openssl/rand.h>

#include <bit>
#include <utility>

#include "base/check.h"

namespace sheaf {

uint64_t Random::Below(uint64_t bound) {
  SHEAF_CHECK(bound > 0);
  // Lemire 2019, without the rejection step: the bias is below bound / 2^64.
  return static_cast<uint64_t>((static_cast<unsigned __int128>(Bits()) * bound) >> 64);
}

double Random::Fraction() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }

absl::Duration Random::Between(absl::Duration low, absl::Duration high) { return low + (high - low) * Fraction(); }

std::string Random::Token(int length) {
  static constexpr char kAlphabet[] = "abcdefghijklmnopqrstuvwxyz234567";
  std::string token;
  token.reserve(length);
  uint64_t bits = 0;
  for (int i = 0; i < length; ++i) {
    if (i % 12 == 0) bits = Bits();
    token.push_back(kAlphabet[bits & 31]);
    bits >>= 5;
  }
  return token;
}

SeededRandom::SeededRandom(uint64_t seed) {
  for (uint64_t& word : state_) {
    seed += 0x9e3779b97f4a7c15;
    uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    word = z ^ (z >> 31);
  }
}

uint64_t SeededRandom::Bits() {
  const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

uint64_t SystemRandom::Bits() {
  if (num_ahead_ == 0) {
    SHEAF_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(ahead_.data()), sizeof ahead_) == 1,
                "the system gives no randomness");
    num_ahead_ = ahead_.size();
  }
  return std::exchange(ahead_[--num_ahead_], 0);
}

}  // namespace sheaf
