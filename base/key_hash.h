// KeyHash: hashes of keys that strangers choose, for tables of any kind.
//
//   std::unordered_map<std::string, absl::Time, KeyHash> seen_times;
//   absl::node_hash_map<std::string, uint32_t, KeyHash, std::equal_to<>> slots;
//
// Every step multiplies by words of ProcessSecret, so that nobody outside can tell which keys collide. Standard hashes
// are no match for that: std::hash has a fixed seed, and absl::Hash (20220623) gives all strings of more than 16 bytes
// that begin with one known word the same value, whatever its seed. As fast as they are. Values differ from process to
// process. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/process_secret.h"

namespace sheaf {

struct KeyHash {
  using is_transparent = void;

  size_t operator()(std::string_view key) const {
    const char* at = key.data();
    size_t left = key.size();
    uint64_t state = secret[0] ^ left;
    for (; left > 16; at += 16, left -= 16) state = Mix(Load<uint64_t>(at) ^ secret[1], Load<uint64_t>(at + 8) ^ state);
    // The rest as two words, which overlap unless there are 16 bytes.
    uint64_t a = 0, b = 0;
    if (left >= 8) {
      a = Load<uint64_t>(at);
      b = Load<uint64_t>(at + left - 8);
    } else if (left >= 4) {
      a = Load<uint32_t>(at);
      b = Load<uint32_t>(at + left - 4);
    } else if (left > 0) {
      a = static_cast<uint64_t>(static_cast<unsigned char>(at[0])) << 16 |
          static_cast<uint64_t>(static_cast<unsigned char>(at[left / 2])) << 8 |
          static_cast<unsigned char>(at[left - 1]);
    }
    return static_cast<size_t>(Mix(Mix(a ^ secret[1], b ^ state) ^ secret[2], secret[3]));
  }
  size_t operator()(uint64_t key) const {
    return static_cast<size_t>(Mix(Mix(key ^ secret[0], secret[1]) ^ secret[2], secret[3]));
  }

 private:
  template <typename Word>
  static Word Load(const char* from) {
    Word word;
    std::memcpy(&word, from, sizeof word);
    return word;
  }
  // Both halves of the product.
  static uint64_t Mix(uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  std::array<uint64_t, 4> secret = ProcessSecret();
};

}  // namespace sheaf
