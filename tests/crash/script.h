// Script: what the programs and workers of a federation ask of a server, one operation after the other, drawn from a
// seed: rounds of both durabilities, inline and uploaded contributions, failures, releases, renewals, cancels, results
// handed in twice. Its Ledger says what was attempted and what the server promised.
//
//   Script script(seed, clock);
//   for (int i = 0; i < 300; ++i) script.Step(*server);
//   Ledger::Mark mark = script.ledger().mark();
//
// It goes on with another server after a crash: what was not answered is asked again.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "tests/crash/disk_server.h"

namespace sheaf::crash {

// Every contribution is one-hot, at a coordinate of its own: one that is lost or counted twice shows in the aggregate.
inline constexpr int kCoordinates = 512;
// Coordinates from here on belong to whoever finishes the rounds after a crash.
inline constexpr int kFinisherCoordinates = 384;

struct Ledger {
  // The task of each contribution that was sent, by its coordinate.
  std::vector<std::string> attempted;
  // Coordinates whose contribution was ACCEPTED, or a DUPLICATE of one that was.
  std::vector<int> accepted;
  // Calls that hand in an upload, each from when that was finished.
  std::vector<v1::SyncRequest> uploaded;
  // Rounds whose creation was answered, and those whose cancellation was asked for.
  std::vector<std::string> created;
  std::vector<std::string> cancelled;
  // Rounds that were shown to have ended: id, state, digest of the aggregate.
  struct End {
    std::string round;
    v1::RoundState state;
    std::string digest;
  };
  std::vector<End> ended;
  // Errors that no fault explains.
  std::vector<std::string> complaints;

  // The lists only grow: their lengths say what was known at a moment.
  struct Mark {
    size_t attempted = 0, accepted = 0, uploaded = 0, created = 0, cancelled = 0, ended = 0;
  };
  Mark mark() const {
    return {attempted.size(), accepted.size(), uploaded.size(), created.size(), cancelled.size(), ended.size()};
  }
};

// Serialised, for a round of this spec.
std::string OneHot(int coordinate, const v1::AggregateSpec& spec);

class Script {
 public:
  Script(uint64_t seed, ManualClock& clock) : random_(seed), clock_(clock) {}

  // One operation: a call or two.
  void Step(DiskServer& server);

  const Ledger& ledger() const { return ledger_; }
  // Errors with these codes are no complaint: a test makes them happen.
  void Expect(std::vector<absl::StatusCode> codes) { expected_ = std::move(codes); }

 private:
  struct Held {
    std::string worker;
    v1::Lease lease;
    // Of its contribution, once it was sent.
    int coordinate = -1;
    std::string bytes;
    bool is_uploaded = false;
    std::string upload_id;
    int64_t committed_bytes = 0;
    bool is_finished = false;
  };

  void Create(DiskServer& server);
  // Uploads one; its digest, or nothing if that failed.
  std::string Broadcast(DiskServer& server);
  void Lease(DiskServer& server);
  void Contribute(DiskServer& server, size_t which);
  // True once the upload is finished.
  bool Upload(DiskServer& server, Held& held, bool& is_lost);
  void HandIn(DiskServer& server, size_t which);
  void Replay(DiskServer& server);
  void Renew(DiskServer& server, size_t which);
  void GiveUp(DiskServer& server, size_t which);
  void Look(DiskServer& server);
  void Cancel(DiskServer& server);

  v1::SyncRequest Ask(const std::string& worker, int want);
  static v1::TaskResult ResultOf(const Held& held);
  template <typename T>
  bool Succeeded(const char* what, const absl::StatusOr<T>& result);

  SeededRandom random_;
  ManualClock& clock_;
  Ledger ledger_;
  std::vector<absl::StatusCode> expected_;
  std::vector<Held> held_;
  std::vector<Held> handed_in_;
  std::vector<std::string> live_;
  std::optional<v1::CreateRoundRequest> unanswered_create_;
  std::vector<std::string> broadcasts_;
  int num_requests_ = 0;
};

}  // namespace sheaf::crash
