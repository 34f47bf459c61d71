// WorkMeter: what a batch of the core's thread costs in processor time, and which of its parts. Whatever that thread
// does, everybody waits for, so that a batch that costs much is said in the log, and fails the tests of whole
// processes.
//
//   meter.Begin();
//   meter.Note("WorkService/Sync");                  // From here on,
//   meter.Note("leases and polls");                  // and from here on something else.
//   if (meter.End() > kBatchCpuMax) LogWarning("{}", meter.Warning(kBatchCpuMax));
//
// Not thread-safe: it measures the thread that calls it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "base/cpu_time.h"

namespace sheaf {

class WorkMeter {
 public:
  void Begin();
  // `what` is one of a few texts that live as long as the meter.
  void Note(std::string_view what);
  // What all of it has cost.
  absl::Duration End();
  // What each part has cost, once it has ended.
  void ForEachPart(absl::FunctionRef<void(std::string_view what, absl::Duration cost)> use) const {
    for (const Part& part : parts_) use(part.what, part.cost);
  }
  // "WorkService/Sync 61 ms (14), leases and polls 3 ms (1)": the dearest first.
  std::string Describe() const;
  // "a batch took 64 ms of the core's thread, more than 50: WorkService/Sync 61 ms (14), ..; page faults: 7": of what
  // all of it has cost, and of the pages of memory that were touched for the first time since Begin.
  std::string Warning(absl::Duration cost_max) const;

 private:
  struct Part {
    std::string_view what;
    absl::Duration cost;
    int count = 0;
  };
  Part& PartOf(std::string_view what);
  // Asks for the processor's time, and gives the current part what nobody else was given.
  void Read();

  std::vector<Part> parts_;
  size_t current_ = 0;
  absl::Duration begin_;
  int64_t faults_ = 0;
  // When the processor's time was asked for last, and what parts have been given since.
  absl::Duration read_;
  absl::Duration since_read_;
  // The clock at the last note.
  absl::Duration noted_;
};

}  // namespace sheaf
