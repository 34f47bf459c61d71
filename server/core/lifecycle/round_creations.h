// RoundCreations: RoundService.CreateRound, for rounds of any size. A round of few tasks is created in the batch of its
// call. One of many is checked beside the core, which would take as long as storing it; its tasks are stored some in
// each batch, where nobody sees them; and the last batch creates it, all at once. If a batch fails, or the server
// stops, nothing was created, and the caller comes again with the same request_id.
//
//   creations.Create(request, now, reply);
//
// A broadcast that comes along is stored first, beside the core.
//
// Runs in the core's thread, inside a batch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/batches/reply.h"
#include "server/core/broadcasts/inline_broadcasts.h"
#include "server/core/lifecycle/new_rounds.h"
#include "server/core/rounds/round_spec.h"
#include "sheaf/v1/round_service.pb.h"

namespace sheaf {

class RoundCreations {
 public:
  // All outlive this.
  RoundCreations(CoreContext& context, Broadcasts& broadcasts, InlineBroadcasts& inline_broadcasts,
                 NewRounds& new_rounds)
      : context_(context), broadcasts_(broadcasts), inline_broadcasts_(inline_broadcasts), new_rounds_(new_rounds) {}

  // As NewRounds::Create; and as BlobService.FinishUpload, of the broadcast. The request must live until the reply.
  void Create(const v1::CreateRoundRequest& request, absl::Time now, Reply<RoundRecord> reply);

 private:
  // Of a request that has its broadcast with it.
  void StoreBroadcast(const v1::CreateRoundRequest& request, Reply<RoundRecord> reply);
  // Of one that names its broadcast.
  void CreateNamed(const v1::CreateRoundRequest& request, absl::Time now, Reply<RoundRecord> reply);

  struct Creation {
    const v1::CreateRoundRequest* request = nullptr;
    Reply<RoundRecord> reply;
    absl::StatusOr<PreparedRound> prepared;
    // Of prepared.tasks, sorted, each once.
    std::vector<std::string> requirements;
    NewRounds::StagedRound staged;
    // Calls with the same request_id that came meanwhile.
    std::vector<std::function<void(absl::Time now)>> others;
  };
  using CreationPtr = std::shared_ptr<Creation>;

  bool IsLarge(const v1::RoundSpec& spec) const;
  // Beside the core.
  void Prepare(const CreationPtr& creation);
  void Begin(const CreationPtr& creation, absl::Time now);
  // Stores the next tasks, or the last and the round.
  void GoOn(const CreationPtr& creation, absl::Time now);
  void End(const CreationPtr& creation, absl::StatusOr<RoundRecord> result);

  CoreContext& context_;
  Broadcasts& broadcasts_;
  InlineBroadcasts& inline_broadcasts_;
  NewRounds& new_rounds_;
  // By request_id.
  std::map<std::string, CreationPtr> creations_;
};

}  // namespace sheaf
