// UnionGrowth: how much contributions bring, and how much of it is new, the more there are. For people who want to know
// how sparse a round is: nothing is decided by it.
//
//   UnionGrowth growth;
//   growth.Add(/*contributions=*/1, /*rows=*/40, /*touched=*/40);
//   growth.Add(1, 35, 61);    // 14 of them had been touched before.
//   growth.AddTo(counters);   // 2 contributions, 75 rows, 40 touched after the first and 61 after the second.
//
// Takes some kilobytes, however many contributions there are. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

class UnionGrowth {
 public:
  // `touched`: by these and all before them, if that is known.
  void Add(int64_t contributions, int64_t rows, std::optional<int64_t> touched) {
    contributions_ += contributions;
    rows_ += rows;
    if (!touched.has_value() || !is_whole_ || contributions_ < next_) return;
    points_.push_back({.contributions = contributions_, .touched = *touched});
    // A quarter more each time: a hundred points are enough for all contributions that there may be.
    next_ = contributions_ + std::max<int64_t>(1, contributions_ / 4);
  }

  // Some were folded before that are not counted here.
  void Miss() {
    is_whole_ = false;
    points_.clear();
  }

  void AddTo(v1::FoldCounters& counters) const {
    counters.set_contributions(contributions_);
    counters.set_rows(rows_);
    for (const Point& point : points_) {
      v1::UnionSize& size = *counters.add_growth();
      size.set_contributions(point.contributions);
      size.set_touched(point.touched);
    }
  }

 private:
  struct Point {
    int64_t contributions;
    int64_t touched;
  };

  int64_t contributions_ = 0;
  int64_t rows_ = 0;
  int64_t next_ = 1;
  bool is_whole_ = true;
  std::vector<Point> points_;
};

}  // namespace sheaf
