// ProcessSecret: random words that nobody outside of this process knows, for the hashes of keys that strangers choose:
// whoever knows how a table hashes can send keys that all collide, and each of n of them then costs n.
//
//   const uint64_t mixed = key * (ProcessSecret()[0] | 1);
//
// They are another for each process and the same for as long as it runs. So nothing that anybody sees may depend on
// them, neither a result nor an order: they are no source of chance (random.h is). Thread-safe.
#pragma once

#include <array>
#include <cstdint>

namespace sheaf {

const std::array<uint64_t, 4>& ProcessSecret();

}  // namespace sheaf
