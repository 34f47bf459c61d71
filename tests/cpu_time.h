// How much more CPU time of this thread something takes when its input is ten times as large. CPU time, because a busy
// machine makes everything wait; the least of several runs in turns, because it also makes everything slower at times.
//
// Sizes are chosen so that the larger input, with what is made of it, fits the second cache of a core (1-2 MiB), and
// the smaller one takes more than the fixed cost of a call: what does not fit takes up to twice as long a unit,
// whatever is done with it. So also what is sorted is within the bound: at these sizes comparing is a small part of
// reading, and ten times as much to sort takes 12 to 14 times as long. In instructions all of it takes 9.4 to 11 times
// as many.
//
//   CHECK(CpuRatio([&](int64_t n) { return [input = MakeInput(n)] { Parse(input); }; }, 10'000) <= kLinear);
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <functional>
#include <limits>

namespace sheaf {

// Ten times the input takes at most this much more; what is in proportion to the square takes 100 times.
#ifdef __SANITIZE_ADDRESS__
// It keeps what was freed, and its own notes, in the caches.
inline constexpr double kLinear = 30;
#else
inline constexpr double kLinear = 12;
#endif

inline double CpuSeconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  work();
  return now() - begin;
}

// Makes what is to be measured for an input of this size.
using WorkOfSize = std::function<std::function<void()>(int64_t size)>;

// The time that 10 * size takes by the time that `size` takes: the least of some measurements, each with inputs of its
// own, because where they lie in memory makes a difference, too. Ends early once the ratio is within `wanted`: noise
// only ever makes it larger. A neighbour that fills the caches does so for seconds: what is not within it soon is
// measured again later.
inline double CpuRatio(const WorkOfSize& make, int64_t size, double wanted = kLinear) {
  constexpr int kMeasurements = 25;
  constexpr int kMeasurementsAtOnce = 5;
  constexpr int kLaterMilliseconds = 500;
  constexpr int kRuns = 20;
  constexpr int kSmallRuns = 10;
  constexpr double kHopeless = 4;
  double least = std::numeric_limits<double>::max();
  for (int measurement = 0; measurement < kMeasurements && least > 0.95 * wanted; ++measurement) {
    if (measurement >= kMeasurementsAtOnce) ::poll(nullptr, 0, kLaterMilliseconds);
    const std::function<void()> small = make(size);
    const std::function<void()> large = make(10 * size);
    double small_seconds = std::numeric_limits<double>::max();
    double large_seconds = std::numeric_limits<double>::max();
    for (int run = 0; run < kRuns; ++run) {
      for (int i = 0; i < kSmallRuns; ++i) small_seconds = std::min(small_seconds, CpuSeconds(small));
      large_seconds = std::min(large_seconds, CpuSeconds(large));
      const double ratio = large_seconds / small_seconds;
      if (run > 0 && (ratio <= 0.95 * wanted || ratio > kHopeless * wanted)) break;
    }
    least = std::min(least, large_seconds / small_seconds);
    if (measurement + 1 >= kMeasurementsAtOnce && least > kHopeless * wanted) break;
  }
  return least;
}

}  // namespace sheaf
