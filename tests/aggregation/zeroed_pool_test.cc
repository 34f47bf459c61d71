#include "aggregation/memory/zeroed_pool.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <span>

#include "aggregation/memory/slab_cache.h"

namespace sheaf {
namespace {

// Numbers that a slab holds.
constexpr auto kSlab = static_cast<int64_t>(kSlabBytes / sizeof(int64_t));

bool AllZero(std::span<const int64_t> numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](int64_t number) { return number == 0; });
}

TEST_CASE("Memory of a pool is zero whatever pools before have written to it") {
  for (int round = 0; round < 3; ++round) {
    ZeroedPool pool;
    for (const int64_t size : {int64_t{1}, int64_t{1000}, kSlab / 3, kSlab / 3, kSlab, kSlab + 1, kSlab / 2}) {
      const std::span numbers(pool.Allocate<int64_t>(size), static_cast<size_t>(size));
      INFO("round " << round << ", " << size << " numbers");
      CHECK(AllZero(numbers));
      std::fill(numbers.begin(), numbers.end(), int64_t{-1});
    }
  }
}

TEST_CASE("What is given back to a pool is handed out again, and is zero") {
  ZeroedPool pool;
  int64_t* const first = pool.Allocate<int64_t>(kSlab / 8);
  std::fill_n(first, kSlab / 8, int64_t{-1});
  const int64_t allocated = pool.allocated_bytes();
  pool.GiveBack(first, kSlab / 8);
  CHECK(pool.unused_bytes() == allocated);
  int64_t* const again = pool.Allocate<int64_t>(kSlab / 8);
  CHECK(again == first);
  CHECK(AllZero({again, static_cast<size_t>(kSlab / 8)}));
  CHECK(pool.unused_bytes() == 0);
  CHECK(pool.allocated_bytes() == allocated);
}

}  // namespace
}  // namespace sheaf
