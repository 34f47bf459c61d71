// ArrivalCalendar: which calls are expected in each second to come. Who calls is given an appointment in the first
// second that has room, so that the calls of any number of workers come at one rate. Workers do not keep all of them,
// and others come without one: what the calendar erred by lately is made up for in what it gives out next.
//
//   ArrivalCalendar calendar(absl::Hours(4), now);
//   calendar.Advance(now, 170);                             // Before anything else, with the calls wanted in a second.
//   calendar.CountCall();                                   // One has come.
//   const absl::Time begin = calendar.Book(now + absl::Milliseconds(500));    // Of the second in which it comes again.
//   calendar.Cancel(begin);                                 // It comes before that.
//
// A counter per second until the longest appointment, whoever calls: 64 KiB for four hours. The first second with room
// is looked for from `soonest` once a second, and from where it was found by the next calls of the same second: O(1).
// Where calls of one second differ in that, each looks at every counter at most, which takes some microseconds. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace sheaf {

class ArrivalCalendar {
 public:
  // No appointment is later than `longest` from when it is made.
  ArrivalCalendar(absl::Duration longest, absl::Time now);

  // The time is `now`; from here on `per_second` calls are wanted. A clock that goes back counts as one that stands.
  void Advance(absl::Time now, double per_second);
  void CountCall() { ++num_calls_; }

  // The begin of a second that is not over at `soonest`, which must not lie in the past. If all are full, one of the
  // later half, each in turn.
  absl::Time Book(absl::Time soonest);
  // What Book returned is not kept. Nothing, once that second has begun.
  void Cancel(absl::Time booked);

  // Appointments that are still to come: the workers that are away, as far as they were told when to return.
  int64_t num_expected() const { return num_expected_; }
  // Calls a second beyond those that were expected, lately; negative if fewer came.
  double surprise() const { return surprise_; }

 private:
  int32_t& At(int64_t second) { return seconds_[static_cast<size_t>(second) & (seconds_.size() - 1)]; }
  int32_t At(int64_t second) const { return seconds_[static_cast<size_t>(second) & (seconds_.size() - 1)]; }
  // Beyond the last one, if all are full.
  int64_t FirstWithRoom(int64_t from) const;
  // The present second is over, with so many calls.
  void End(int64_t num_calls);

  // In seconds: no appointment is later.
  int64_t num_ahead_;
  // By second, modulo their number, which is a power of two.
  std::vector<int32_t> seconds_;
  // The present one, in seconds of Unix time.
  int64_t second_;
  int64_t num_calls_ = 0;
  int64_t num_expected_ = 0;
  double per_second_ = 0;
  double surprise_ = 0;
  // Of those from `sought_from_` on none before this one has room.
  int64_t sought_from_;
  int64_t first_free_;
  int64_t num_beyond_ = 0;
};

}  // namespace sheaf
