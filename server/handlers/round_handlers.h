// RoundHandlers: RoundService, free of transport. See proto/sheaf/v1/round_service.proto for the contract of each
// method.
#pragma once

#include "absl/time/time.h"
#include "server/core/access_control.h"
#include "server/core/reply.h"
#include "sheaf/v1/round_service.pb.h"

namespace sheaf {

class Core;

class RoundHandlers {
 public:
  explicit RoundHandlers(Core& core) : core_(core) {}

  void CreateRound(const v1::CreateRoundRequest& request, absl::Time now, Reply<v1::CreateRoundResponse> reply);
  void GetRound(const v1::GetRoundRequest& request, const IdentityPtr& caller, absl::Time now,
                Reply<v1::GetRoundResponse> reply);
  // Whoever made this call, not yet answered, has gone. From any thread.
  void AbandonGetRound(const v1::GetRoundRequest& request);
  void ListRounds(const v1::ListRoundsRequest& request, absl::Time now, Reply<v1::ListRoundsResponse> reply);
  void CancelRound(const v1::CancelRoundRequest& request, absl::Time now, Reply<v1::CancelRoundResponse> reply);
  void ReadAggregate(const v1::ReadAggregateRequest& request, absl::Time now, Reply<v1::ReadAggregateResponse> reply);

 private:
  Core& core_;
};

}  // namespace sheaf
