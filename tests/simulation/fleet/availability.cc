#include "tests/simulation/fleet/availability.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sheaf::simulation {
namespace {

constexpr double kPartMean = 0.5;
constexpr double kPartSwing = 0.3;

double Angle(absl::Duration time) { return 2 * std::numbers::pi * absl::FDivDuration(time, absl::Hours(24)); }

absl::Duration Exponential(absl::Duration mean, Random& random) { return mean * -std::log1p(-random.Fraction()); }

}  // namespace

Availability::Availability(absl::Duration stay) : stay_(stay) {
  for (int minute = 0; minute < kMinutes; ++minute) {
    const absl::Duration time = absl::Minutes(minute);
    // Who comes makes up for who goes, and for the change of Part: part' = come (1 - part) - part / stay.
    const double change = -kPartSwing * std::sin(Angle(time)) * 2 * std::numbers::pi / 24;
    const double part = Part(time);
    const double come = (change + part / absl::ToDoubleHours(stay)) / (1 - part);
    come_per_hour_[static_cast<size_t>(minute)] = std::max(come, 0.0);
    come_per_hour_max_ = std::max(come_per_hour_max_, come);
  }
}

double Availability::Part(absl::Duration time) { return kPartMean + kPartSwing * std::cos(Angle(time)); }

absl::Duration Availability::UntilGone(Random& random) const { return Exponential(stay_, random); }

absl::Duration Availability::UntilThere(absl::Duration time, Random& random) const {
  // As if they came at the highest rate all day, and of each time so much is true as the rate is then (Lewis and
  // Shedler, Simulation of nonhomogeneous Poisson processes by thinning, 1979).
  absl::Duration until;
  while (true) {
    until += Exponential(absl::Hours(1) / come_per_hour_max_, random);
    const auto minute = static_cast<size_t>(absl::ToInt64Minutes(time + until) % kMinutes);
    if (random.Chance(come_per_hour_[minute] / come_per_hour_max_)) return until;
  }
}

}  // namespace sheaf::simulation
