#include "server/core/sync/arrival_calendar.h"

#include <algorithm>
#include <bit>
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

// Room for 8.3 calls is room for 9 in three seconds of ten, spread evenly: the multiples of the golden ratio have such
// fractions (Weyl), here of 2^32. If each second were rounded the same way, a small fleet's calls were some tenth off.
constexpr uint32_t kGolden = 2'654'435'769;

int64_t SecondOf(absl::Time time) { return absl::ToUnixSeconds(time); }

}  // namespace

ArrivalCalendar::ArrivalCalendar(absl::Duration longest, absl::Time now)
    : num_ahead_(std::max<int64_t>(absl::ToInt64Seconds(longest), 2)),
      seconds_(std::bit_ceil(static_cast<size_t>(num_ahead_) + 1)),
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

int64_t ArrivalCalendar::FirstWithRoom(int64_t from) const {
  const double room = std::clamp(per_second_ - surprise_, kRoomMin * per_second_, kRoomMax * per_second_);
  const double whole = std::floor(room);
  const auto calls = static_cast<int32_t>(std::min(whole, 1e9));
  const auto part = static_cast<uint32_t>((room - whole) * 0x1p32);
  int64_t second = from;
  while (second <= second_ + num_ahead_ &&
         At(second) >= calls + (static_cast<uint32_t>(second) * kGolden < part ? 1 : 0)) {
    ++second;
  }
  return second;
}

absl::Time ArrivalCalendar::Book(absl::Time soonest) {
  if (const int64_t from = SecondOf(soonest); from != sought_from_) {
    sought_from_ = from;
    first_free_ = std::max(from, second_);
  }
  first_free_ = FirstWithRoom(first_free_);
  const int64_t last = second_ + num_ahead_;
  const int64_t second = first_free_ <= last ? first_free_ : last - num_beyond_++ % (num_ahead_ / 2);
  ++At(second);
  ++num_expected_;
  return absl::FromUnixSeconds(second);
}

void ArrivalCalendar::Cancel(absl::Time booked) {
  const int64_t second = SecondOf(booked);
  if (second <= second_ || second > second_ + num_ahead_ || At(second) == 0) return;
  --At(second);
  --num_expected_;
  first_free_ = std::min(first_free_, second);
}

}  // namespace sheaf
