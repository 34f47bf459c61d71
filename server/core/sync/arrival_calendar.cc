#include "server/core/sync/arrival_calendar.h"

#include <algorithm>
#include <cmath>

namespace sheaf {
namespace {

// Surprises of so many seconds count: many calls, few of the hours in which those change that are there to call.
constexpr double kSurpriseSeconds = 120;
// Surprises are made up for within these bounds, as parts of the calls wanted. Where more come unasked than that, it is
// a crowd that was never told anything, and will not come like that again; if it kept the calendar empty, nobody would
// come once it is gone. Where fewer come, most of those who were told have gone.
constexpr double kRoomMin = 0.5;
constexpr double kRoomMax = 4;

int64_t SecondOf(absl::Time time) { return absl::ToUnixSeconds(time); }

}  // namespace

ArrivalCalendar::ArrivalCalendar(absl::Duration longest, absl::Time now)
    : seconds_(static_cast<size_t>(std::max<int64_t>(absl::ToInt64Seconds(longest), 2)) + 1),
      second_(SecondOf(now)),
      sought_from_(second_),
      first_free_(second_) {}

void ArrivalCalendar::Advance(absl::Time now, double per_second) {
  const int64_t second = SecondOf(now);
  // At most once around: by then nothing is expected any more.
  const int64_t num_ended = std::min(second - second_, static_cast<int64_t>(seconds_.size()));
  for (int64_t i = 0; i < num_ended; ++i) End(i == 0 ? num_calls_ : 0);
  if (num_ended > 0) {
    second_ = second;
    num_calls_ = 0;
  } else if (per_second <= per_second_) {
    // More room is looked for at once, in the first second of all too; less is noticed with the next.
    return;
  }
  per_second_ = per_second;
  sought_from_ = first_free_ = second_;
}

void ArrivalCalendar::End(int64_t num_calls) {
  int32_t& expected = At(second_);
  const double surprise = std::min(static_cast<double>(num_calls - expected), per_second_);
  surprise_ += (surprise - surprise_) / kSurpriseSeconds;
  num_expected_ -= expected;
  expected = 0;
  ++second_;
}

double ArrivalCalendar::Room() const {
  return std::clamp(per_second_ - surprise_, kRoomMin * per_second_, kRoomMax * per_second_);
}

absl::Time ArrivalCalendar::Book(absl::Time soonest) {
  const auto num_ahead = static_cast<int64_t>(seconds_.size()) - 1;
  const double room = Room();
  if (const int64_t from = SecondOf(soonest); from != sought_from_) {
    sought_from_ = from;
    first_free_ = std::max(from, second_);
  }
  while (first_free_ <= second_ + num_ahead && At(first_free_) >= room) ++first_free_;
  int64_t second = first_free_;
  if (second > second_ + num_ahead) {
    const int64_t half = num_ahead / 2;
    second = second_ + num_ahead - num_beyond_++ % half;
  }
  ++At(second);
  ++num_expected_;
  return absl::FromUnixSeconds(second);
}

void ArrivalCalendar::Cancel(absl::Time booked) {
  const int64_t second = SecondOf(booked);
  if (second <= second_ || second >= second_ + static_cast<int64_t>(seconds_.size()) || At(second) == 0) return;
  --At(second);
  --num_expected_;
  first_free_ = std::min(first_free_, second);
}

}  // namespace sheaf
