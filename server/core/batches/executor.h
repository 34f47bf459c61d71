// Executor: the one place where the server's state changes. Events run one after the other, many of them
// to a batch; a batch is one store transaction and one flush, and nobody is told anything before it is durable.
//
//   executor.Post([&](absl::Time now) {                                // From any thread.
//     LogInfo("in the core's thread, inside a batch, at {}", absl::FormatTime(now));
//     executor.Defer([](const absl::Status& commit) {                  // After the flush (or its failure).
//       LogInfo("answered: {}", commit.ToString());
//     });
//   });
//
// The server runs it on a thread (runtime.h), the simulation in its own loop; both through BatchRunner.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sheaf {

class Executor {
 public:
  using Event = std::function<void(absl::Time now)>;
  using Deferred = std::function<void(const absl::Status& commit)>;
  virtual ~Executor() = default;

  // Runs `event` in a batch soon. Thread-safe.
  virtual void Post(Event event) = 0;
  // The same, ahead of everything that was only posted: for the little that must work while a server is overloaded, to
  // see it and to mend it. Thread-safe.
  virtual void PostUrgent(Event event) { Post(std::move(event)); }
  // Of a call: callers take turns, by name, so that nobody waits for all that another one has sent. Those of one caller
  // run in the order in which they came. Thread-safe.
  virtual void PostCall(const std::string& /*caller*/, Event event) { Post(std::move(event)); }
  // Only from inside an event: runs `deferred` when this batch is durable, or has failed. Deferred work
  // that changes state posts a new event.
  virtual void Defer(Deferred deferred) = 0;
  // Only from inside an event, or what the core does between events: says what is done from here on, for whoever
  // measures it. `what` lives for ever.
  virtual void NoteWork(std::string_view /*what*/) {}
};

}  // namespace sheaf
