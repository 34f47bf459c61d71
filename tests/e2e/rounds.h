// Rounds whose sum shows which contributions were counted, and a worker that is the test itself.
//
//   auto round = CreateRound(transport, random.Token(16), OneHotRound({.num_tasks = 8}));
//   v1::SyncRequest request = APoll("hand", "poll-1", 4);
//   // After all tasks:
//   CHECK(CountsOf(transport, round->id()) == std::vector<int64_t>(8, 1));       // Each once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "sdk/cpp/client/transport.h"
#include "sheaf/v1/round.pb.h"
#include "tests/e2e/processes.h"

namespace sheaf {

struct OneHotOptions {
  int num_tasks = 8;
  // How long each task takes.
  absl::Duration work = absl::ZeroDuration();
  absl::Duration lease = absl::Seconds(30);
  // Coordinates of each output; as many as tasks if that is more.
  int64_t size = 0;
  v1::Durability durability = v1::DURABLE;
  // The last of the tasks wait for a worker with the label gate=open.
  int num_gated = 0;
};

// Task i adds 1 to coordinate i of the outputs "counts" (sum) and "touched" (sparse_sum_to_dense).
v1::RoundSpec OneHotRound(const OneHotOptions& options);

// Creates it; fails the test if that is refused.
std::string StartRound(Federation& federation, const v1::RoundSpec& spec);
v1::Round RoundOf(Transport& transport, const std::string& id);
v1::Task TaskOf(Transport& transport, const std::string& id);
// Tasks of the round in one state, or all.
std::vector<v1::Task> TasksOf(Transport& transport, const std::string& round,
                              v1::TaskState state = v1::TASK_STATE_UNSPECIFIED);
// Waits for its end; fails the test if it does not succeed.
v1::Round Await(Federation& federation, const std::string& id, absl::Duration timeout = absl::Seconds(40));
// The released output "counts", up to its last 1. Fails the test if "touched" says anything else.
std::vector<int64_t> CountsOf(Transport& transport, const std::string& round);

// What a worker called `name` says that offers noop, one_hot and slow, and wants `want` tasks.
v1::SyncRequest APoll(const std::string& name, const std::string& poll_id, int want,
                      absl::Duration wait = absl::ZeroDuration());
v1::SyncResponse SyncOnce(Transport& transport, const v1::SyncRequest& request);
// Hands in what the lease's task asks for.
void AddResult(const v1::Lease& lease, v1::SyncRequest& request);
void AddHeld(const v1::Lease& lease, int64_t progress, v1::SyncRequest& request);
// The verdicts, by name.
std::vector<std::string> VerdictsOf(const v1::SyncResponse& response);

}  // namespace sheaf
