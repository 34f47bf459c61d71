// Shard: one of the stores into which a database is divided, each with its own populations, rounds and owner. What lies
// in one says so in its name, so that whoever has the name knows where to ask: "r-7k2m9q4x" is a round of the first
// shard, "r3-7k2m9q4x" one of the fourth.
//
//   const std::string name = NamePrefix('r', 3) + "7k2m9q4x";
//   const Shard shard = ShardOf("r3-7k2m9q4x/17");          // 3
#pragma once

#include <string>
#include <string_view>

namespace sheaf {

using Shard = int;

// Of every store that is not divided; the tokens and the list of populations are there.
inline constexpr Shard kHomeShard = 0;
// Populations are placed in so many. Those of one shard share an owner, its core and its limits.
inline constexpr int kNumShards = 16;

// "r-", "r3-".
std::string NamePrefix(char kind, Shard shard);
// kHomeShard where the name says none.
Shard ShardOf(std::string_view name);

}  // namespace sheaf
