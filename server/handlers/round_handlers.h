// RoundHandlers: RoundService, free of transport. See proto/sheaf/v1/round_service.proto for the contract of each
// method.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "server/calls/call_context.h"
#include "server/core/batches/reply.h"
#include "sheaf/v1/round_service.pb.h"

namespace sheaf {

class Core;

class RoundHandlers {
 public:
  explicit RoundHandlers(Core& core) : core_(core) {}

  void CreateRound(const v1::CreateRoundRequest& request, const CallContext& call,
                   Reply<v1::CreateRoundResponse> reply);
  void OpenRound(const v1::OpenRoundRequest& request, const CallContext& call, Reply<v1::OpenRoundResponse> reply);
  void GetRound(const v1::GetRoundRequest& request, const CallContext& call, Reply<v1::GetRoundResponse> reply);
  // Whoever made this call has gone.
  void AbandonGetRound(CallId call);
  void ListRounds(const v1::ListRoundsRequest& request, const CallContext& call, Reply<v1::ListRoundsResponse> reply);
  void CancelRound(const v1::CancelRoundRequest& request, const CallContext& call,
                   Reply<v1::CancelRoundResponse> reply);
  // Looks the aggregate up, in a batch. What it returns reads about so many bytes of it at most, in the CallPool: after
  // a restart the file is checked first.
  absl::StatusOr<std::function<absl::StatusOr<v1::ReadAggregateResponse>(int64_t answer_bytes_max)>> ReadAggregate(
      const v1::ReadAggregateRequest& request, const CallContext& call);

 private:
  // `reply`, with what a round that has succeeded released, if that is no larger.
  Reply<v1::GetRoundResponse> WithAggregate(Reply<v1::GetRoundResponse> reply, int64_t bytes_max);

  Core& core_;
};

}  // namespace sheaf
