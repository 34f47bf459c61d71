// FaultyCalls: a transport that sends calls twice or long too late, and loses answers, as retries and proxies on the
// way do.
//
//   FaultyCalls calls(wire, timer, /*seed=*/7, {.twice = 0.1, .repeated_late = 0.1, .late_by = 3 * lease});
//   ASSIGN_OR_RETURN(v1::GetRoundResponse response, BlockingCall(calls, kGetRound, request));   // As of any Transport.
//   calls.Calm();                                            // From here on nothing happens to a call.
//
// Thread-safe. The destructor waits for what is still to be sent late; what it is given must outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/random.h"
#include "sdk/cpp/client/retrying_transport.h"
#include "sdk/cpp/client/transport.h"

namespace sheaf {

// Chances of a call; at most one of these happens to it.
struct CallFaults {
  // Sent twice at once; the second answer is lost.
  double twice = 0;
  // Answered as usual, and sent again `late_by` later.
  double repeated_late = 0;
  // Sent `late_by` later only, when the caller has long been told UNAVAILABLE.
  double late = 0;
  // Sent, and its answer lost: UNAVAILABLE.
  double answer_lost = 0;
  absl::Duration late_by;
};

class FaultyCalls final : public Transport {
 public:
  FaultyCalls(Transport& inner, Timer& timer, uint64_t seed, const CallFaults& faults)
      : inner_(inner), timer_(timer), late_by_(faults.late_by), random_(seed), faults_(faults) {}
  ~FaultyCalls() override;

  void CallMethod(std::string_view method, const google::protobuf::Message& request,
                  google::protobuf::Message* response, const CallOptions& options, Done done) override;

  void Calm() EXCLUDES(mutex_);
  void SetFaults(const CallFaults& faults) EXCLUDES(mutex_);
  int64_t num_faults() const EXCLUDES(mutex_);

 private:
  enum class Fault { kNone, kTwice, kRepeatedLate, kLate, kAnswerLost };
  // A call whose answer nobody will hear.
  struct Copy;

  Fault Draw() EXCLUDES(mutex_);
  void Opened() EXCLUDES(mutex_);
  void Closed() EXCLUDES(mutex_);
  std::shared_ptr<Copy> MakeCopy(std::string_view method, const google::protobuf::Message& request,
                                 const google::protobuf::Message& response, const CallOptions& options);
  void Send(const std::shared_ptr<Copy>& copy, std::function<void()> then);
  void SendLate(std::shared_ptr<Copy> copy);

  Transport& inner_;
  Timer& timer_;
  const absl::Duration late_by_;
  mutable Mutex mutex_;
  CondVar all_done_;
  SeededRandom random_ GUARDED_BY(mutex_);
  CallFaults faults_ GUARDED_BY(mutex_);
  int64_t num_faults_ GUARDED_BY(mutex_) = 0;
  int64_t num_open_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sheaf
