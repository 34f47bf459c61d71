// NewRounds: how a round comes to be: what must be there for it, the record that it gets, and that one request_id
// creates one round, however often it comes.
//
//   ASSIGN_OR_RETURN(RoundRecord round, new_rounds.Create(request, now));
//
// Runs in the core's thread, inside a batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/broadcasts/broadcasts.h"
#include "server/core/rounds/live_rounds.h"
#include "server/core/rounds/round_spec.h"
#include "sheaf/v1/round_service.pb.h"

namespace sheaf {

class NewRounds {
 public:
  // All outlive this.
  NewRounds(CoreContext& context, LiveRounds& rounds, Broadcasts& broadcasts)
      : context_(context), rounds_(rounds), broadcasts_(broadcasts) {}

  // INVALID_ARGUMENT, NOT_FOUND (the broadcast), ALREADY_EXISTS (the request_id), RESOURCE_EXHAUSTED; see
  // RoundService.CreateRound. With validate_only, a record that was not stored and has no id.
  absl::StatusOr<RoundRecord> Create(const v1::CreateRoundRequest& request, absl::Time now);
  // What Create with validate_only answers for a request that was prepared.
  absl::StatusOr<RoundRecord> Validate(const v1::CreateRoundRequest& request, const PreparedRound& prepared,
                                       absl::Time now) const;

  // The same in parts, for a round of which many tasks are stored before it is created (see RoundCreations).
  // The round that an earlier call with this request_id created, if there is one, and nothing is asked for otherwise.
  // Else errors as Create, if a new one would be refused.
  absl::StatusOr<std::optional<RoundRecord>> FindCreated(const v1::CreateRoundRequest& request,
                                                         const PreparedRound& prepared);
  RoundId NewId();
  struct StagedRound {
    RoundId id;
    absl::Time create_time;
    // Of prepared.tasks, the first.
    int64_t num_staged = 0;
    // Those of its tasks.
    RequirementIndex requirements;
  };
  // Empties what it needs of `staged` if it is created.
  absl::StatusOr<RoundRecord> Create(const v1::CreateRoundRequest& request, const PreparedRound& prepared,
                                     StagedRound& staged, absl::Time now);

 private:
  // Without an id.
  static RoundRecord RecordOf(const v1::CreateRoundRequest& request, const PreparedRound& prepared, absl::Time now);
  // Why no such round may be created.
  absl::Status CheckNew(const PreparedRound& prepared) const;
  // Why it cannot continue the round that it names, if it names one.
  absl::Status CheckContinues(const v1::RoundSpec& spec) const;
  // A round was created, by this call or, if nothing else was asked for, by an earlier one.
  absl::StatusOr<RoundRecord> OnCreated(const v1::CreateRoundRequest& request, const PreparedRound& prepared,
                                        TaskStore::CreateRoundResult created);
  // It is live from this batch on.
  absl::Status Begin(const RoundRecord& record, RequirementIndex requirements, absl::Time now);
  // What the round that an earlier call created has that this call asks for otherwise; empty: nothing. Looks at 1000
  // tasks at most, if the round was created by this version.
  absl::StatusOr<std::string> DifferenceFrom(const RoundRecord& earlier, const v1::RoundSpec& asked,
                                             const PreparedRound& prepared);

  CoreContext& context_;
  LiveRounds& rounds_;
  Broadcasts& broadcasts_;
};

}  // namespace sheaf
