// Availability: when a worker of a fleet can work at all: a phone that charges, a tab that is open. Of all workers a
// part can that varies by a factor of four in a day, as in "Towards Federated Learning at Scale" (figure 5); and who
// can, can for some hours.
//
//   Availability availability(absl::Hours(3));
//   bool can = random.Chance(availability.Part(age));
//   absl::Duration until = can ? availability.UntilGone(random) : availability.UntilThere(age, random);
//
// Times count from a midnight. Thread-safe, but for the Random.
#pragma once

#include <array>

#include "absl/time/time.h"
#include "base/random.h"

namespace sheaf::simulation {

class Availability {
 public:
  // So long a worker is there, on average.
  explicit Availability(absl::Duration stay);

  // Between a fifth and four fifths.
  static double Part(absl::Duration time);
  absl::Duration UntilGone(Random& random) const;
  absl::Duration UntilThere(absl::Duration time, Random& random) const;

 private:
  static constexpr int kMinutes = 24 * 60;

  const absl::Duration stay_;
  // By the minute of the day: how many of those that are away come in an hour, as a part of them.
  std::array<double, kMinutes> come_per_hour_;
  double come_per_hour_max_ = 0;
};

}  // namespace sheaf::simulation
