// CallPipeline: what every call goes through on its way from a transport to its handler and back, whatever the
// transport: who calls, how large the request is, whether there is room for it (Admission) and for its answer
// (AnswerBooks), and only then it is parsed, and dispatched. One pipeline serves all transports of a server, so that
// what they take together stays within the limits. A transport makes a Call (call.h) for each call that comes.
//
//   CallPipeline pipeline({.methods = methods, .dispatcher = dispatcher, .access = core.access(),
//                          .admission = admission, .answers = answers, .figures = figures, .limits = core.limits(),
//                          .clock = clock});
//   pipeline.Tick(now);                             // Each transport, twice a second: answers that nobody takes.
//   pipeline.WaitUntilIdle(absl::Seconds(1));       // Whoever is answered has been answered.
//
// Knows no transport. Refers to all it is given. Thread-safe.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log_quota.h"
#include "base/mutex.h"
#include "server/calls/admission.h"
#include "server/calls/answer_books.h"
#include "server/calls/call_figures.h"
#include "server/calls/credentials.h"
#include "server/calls/dispatcher.h"
#include "server/calls/forwarder.h"
#include "server/calls/method_table.h"
#include "server/core/access/access_control.h"
#include "server/core/limits/limits.h"

namespace sheaf {

class CallPipeline {
 public:
  struct Parts {
    const MethodTable& methods;
    const Dispatcher& dispatcher;
    const AccessControl& access;
    Admission& admission;
    AnswerBooks& answers;
    CallFigures& figures;
    const Limits& limits;
    const Clock& clock;
    // Null: this server answers all calls itself.
    Forwarder* forwarder = nullptr;
  };
  // All must outlive it.
  explicit CallPipeline(const Parts& parts) : parts_(parts), access_(&parts.access) {}

  const MethodTable& methods() const { return parts_.methods; }
  const Dispatcher& dispatcher() const { return parts_.dispatcher; }
  // Whoever answers calls instead of the dispatcher; null: nobody.
  Forwarder* forwarder() const { return parts_.forwarder; }
  // Calls are answered in this process.
  bool owns_store() const { return parts_.forwarder == nullptr || parts_.forwarder->is_here(); }
  AnswerBooks& answers() { return parts_.answers; }
  CallFigures& figures() { return parts_.figures; }
  const Limits& limits() const { return parts_.limits; }
  absl::Time Now() const { return parts_.clock.Now(); }

  // From now on this one knows who calls, and nobody asks the one before any more. Must be there until the next.
  void SetAccess(const AccessControl& access) EXCLUDES(access_mutex_);
  // There are tokens, or this server asks for them all the same: whoever calls must show who it is.
  bool requires_identity() const EXCLUDES(access_mutex_);
  // Who calls; the codes of AccessControl::Authenticate. `credentials` is asked only where somebody wants to know.
  absl::StatusOr<IdentityPtr> Identify(absl::FunctionRef<Credentials()> credentials) const EXCLUDES(access_mutex_);
  // Whether there is room for a request, before it is parsed; see Admission. RESOURCE_EXHAUSTED also if it has more
  // bytes than any may. If OK, Leave must follow.
  absl::Status Enter(const MethodRow& method, const Identity& caller, int64_t bytes, absl::Time now);
  void Leave(const Identity& caller, int64_t bytes) { parts_.admission.Leave(caller, bytes); }
  // Whether a request of this size must be looked through by CheckParts before it may be parsed; see message_parts.h.
  static bool CountsParts(int64_t bytes);
  absl::Status CheckParts(const google::protobuf::Descriptor& type,
                          google::protobuf::io::ZeroCopyInputStream& stream) const;
  // Says in the log, now and then, who was refused what.
  void NoteRefusal(std::string_view method, std::string_view connection, const absl::Status& status);

  // Cuts off answers that nobody takes, and ends waits for room. More often does no harm.
  void Tick(absl::Time now) { parts_.answers.Tick(now); }

  // A call begins, and has been answered.
  void Open() EXCLUDES(mutex_);
  void Close() EXCLUDES(mutex_);
  int64_t num_open() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return num_open_;
  }
  // True if no call is open, within `timeout`.
  bool WaitUntilIdle(absl::Duration timeout) EXCLUDES(mutex_);

 private:
  const Parts parts_;
  mutable Mutex access_mutex_;
  const AccessControl* access_ GUARDED_BY(access_mutex_);
  LogQuota refusals_;
  Mutex mutex_;
  CondVar idle_;
  int64_t num_open_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sheaf
