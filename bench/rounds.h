// The rounds of the benchmarks: the computation "noop", contributions for a dense sum of floats: 256, or 1 KiB, unless
// said otherwise.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "sdk/cpp/client/transport.h"

namespace sheaf::bench {

// A durable round of `num_tasks` interchangeable tasks; returns its id.
absl::StatusOr<std::string> CreateRound(Transport& transport, const std::string& request_id, int num_tasks);
v1::CreateRoundRequest ARound(const std::string& request_id, int num_tasks, int64_t num_elements = 256);

// Creates such a round, waits for its end and reads the aggregate's first bytes. INTERNAL if it does not succeed.
absl::Status RunRound(Transport& transport, const std::string& request_id, int num_tasks);

// A serialised contribution to such a round.
std::string AContribution(int64_t num_elements = 256);

// What a worker asks for that wants `want` tasks and waits up to `wait`, without results.
v1::SyncRequest APoll(const std::string& worker, int64_t poll, int want, absl::Duration wait);

// Adds the result of one lease.
void AddResult(const v1::Lease& lease, const std::string& contribution, v1::SyncRequest& request);

}  // namespace sheaf::bench
