#include "tests/simulation/program_actor.h"

#include <utility>

#include "sdk/cpp/proto_duration.h"

namespace sheaf::simulation {

ProgramActor::ProgramActor(Weather& weather, SimServer& server, RoundPlan plan)
    : weather_(weather), transport_(weather, server), plan_(std::move(plan)) {
  weather_.agenda.After(plan_.create_after, [this] { Create(); });
}

void ProgramActor::Create() {
  v1::CreateRoundRequest request;
  request.set_request_id(plan_.request_id);
  *request.mutable_spec() = plan_.spec;
  Call(transport_, kCreateRound, request, {.timeout = absl::Seconds(5)},
       [this](const absl::StatusOr<v1::CreateRoundResponse>& response) {
         if (absl::IsInvalidArgument(response.status())) {
           return weather_.journal.Break("the spec is right", "{}: {}", plan_.request_id, response.status().ToString());
         }
         if (!response.ok()) return weather_.agenda.After(Pause(), [this] { Create(); });
         round_ = response->round().id();
         weather_.journal.Note("{} is round {}", plan_.request_id, round_);
         if (plan_.cancel_after.has_value()) weather_.agenda.After(*plan_.cancel_after, [this] { Cancel(); });
         Watch();
       });
}

void ProgramActor::Watch() {
  absl::Duration wait = weather_.chance.Between(absl::ZeroDuration(), absl::Seconds(20));
  v1::GetRoundRequest request;
  request.set_round(round_);
  request.set_etag(etag_);
  *request.mutable_wait() = ToProtoDuration(wait);
  Call(transport_, kGetRound, request, {.timeout = wait + absl::Seconds(5)},
       [this](const absl::StatusOr<v1::GetRoundResponse>& response) {
         if (absl::IsNotFound(response.status())) {
           return weather_.journal.Break("rounds exist", "round {} was created and is gone", round_);
         }
         if (!response.ok()) return weather_.agenda.After(Pause(), [this] { Watch(); });
         etag_ = response->round().etag();
         v1::RoundState state = response->round().state();
         is_done_ = state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED;
         if (!is_done_) Watch();
       });
}

void ProgramActor::Cancel() {
  if (is_done_) return;
  has_cancelled_ = true;
  v1::CancelRoundRequest request;
  request.set_request_id(plan_.request_id + "-cancel");
  request.set_round(round_);
  request.set_reason("the program has changed its mind");
  Call(transport_, kCancelRound, request, {.timeout = absl::Seconds(5)},
       [this](const absl::StatusOr<v1::CancelRoundResponse>& response) {
         if (response.ok() || absl::IsFailedPrecondition(response.status())) return;
         weather_.agenda.After(Pause(), [this] { Cancel(); });
       });
}

}  // namespace sheaf::simulation
