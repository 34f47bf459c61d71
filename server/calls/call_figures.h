// CallFigures: what is counted of calls, by method: how they ended, how long they took, what they brought and got, and
// which limit refused them. For whoever looks on; nothing is decided by it.
//
//   CallFigures figures(methods);
//   figures.Of(*methods.Find("sheaf.v1.WorkService/Sync")).duration_seconds.Observe(0.002);
//   figures.CountRefusal(absl::ResourceExhaustedError("..."));
//
// Refers to the table. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/counter.h"
#include "base/histogram.h"
#include "server/calls/method_table.h"

namespace sheaf {

struct MethodFigures {
  // By absl::StatusCode, which is gRPC's.
  std::array<Counter, 17> by_code;
  // From when the whole request was there until the answer was on its way. A call that waits for something counts its
  // wait.
  Histogram duration_seconds{kDurationBounds};
  // On the wire, without headers.
  Counter request_bytes;
  Counter answer_bytes;
};

class CallFigures {
 public:
  explicit CallFigures(const MethodTable& methods);

  const MethodTable& methods() const { return methods_; }
  // `method` is a row of the table.
  MethodFigures& Of(const MethodRow& method) { return by_method_[PlaceOf(method)]; }
  const MethodFigures& Of(const MethodRow& method) const { return by_method_[PlaceOf(method)]; }

  struct Ended {
    absl::StatusCode code = absl::StatusCode::kOk;
    absl::Duration took;
    int64_t request_bytes = 0;
    int64_t answer_bytes = 0;
  };
  void Count(const MethodRow& method, const Ended& ended);
  // Counts it if a limit says so; see RefusingLimit.
  void CountRefusal(const absl::Status& status);
  // In the order of LimitRows().
  const std::vector<Counter>& refused_by_limit() const { return refused_by_limit_; }

 private:
  size_t PlaceOf(const MethodRow& method) const { return static_cast<size_t>(&method - methods_.rows().data()); }

  const MethodTable& methods_;
  std::vector<MethodFigures> by_method_;
  std::vector<Counter> refused_by_limit_;
};

}  // namespace sheaf
