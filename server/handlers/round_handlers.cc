#include "server/handlers/round_handlers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "server/calls/scope.h"
#include "server/core/core.h"
#include "server/core/inspection/views.h"
#include "server/core/requests/names.h"
#include "server/core/requests/paging.h"
#include "server/core/requests/state_filter.h"

namespace sheaf {
namespace {

absl::StatusOr<v1::ListRoundsResponse> List(Core& core, const v1::ListRoundsRequest& request) {
  ASSIGN_OR_RETURN(const int page_size, PageSize(request.page_size(), core.limits().page_size_max));
  TaskQueries::ListRoundsParams params{.population = PopulationOrDefault(request.population()),
                                       .job = request.job(),
                                       .after = RoundId(request.page_token())};
  ASSIGN_OR_RETURN(params.states, ParseStates<RoundState>(request.states(), *v1::RoundState_descriptor()));
  v1::ListRoundsResponse response;
  PageRoom room(core.limits().page_bytes_max);
  const auto read = [&](int limit) {
    params.limit = limit;
    return core.queries().ListRounds(params);
  };
  const absl::StatusOr<bool> has_more =
      FillPage(page_size, read, [&](const RoundRecord& record) -> absl::StatusOr<bool> {
        ASSIGN_OR_RETURN(v1::Round round, ToProto(record));
        if (!room.Take(round)) return false;
        params.after = record.id;
        *response.add_rounds() = std::move(round);
        return true;
      });
  if (absl::IsNotFound(has_more.status())) return BadPageToken(request.page_token());
  RETURN_IF_ERROR(has_more.status());
  if (*has_more) response.set_next_page_token(response.rounds().rbegin()->id());
  return response;
}

absl::StatusOr<v1::CancelRoundResponse> Cancel(Core& core, const v1::CancelRoundRequest& request, absl::Time now) {
  RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  ASSIGN_OR_RETURN(const RoundRecord record, core.closing().Cancel(RoundId(request.round()), request.reason(), now));
  v1::CancelRoundResponse response;
  ASSIGN_OR_RETURN(*response.mutable_round(), ToProto(record));
  return response;
}

// The digest of the round's aggregate.
absl::StatusOr<std::string> FindAggregate(Core& core, const RoundId& id) {
  ASSIGN_OR_RETURN(const RoundRecord record, core.queries().GetRound(id));
  ASSIGN_OR_RETURN(const v1::Round round, ToProto(record));
  if (round.state() != v1::SUCCEEDED) {
    const bool may_come =
        round.state() == v1::ANNOUNCED || round.state() == v1::COLLECTING || round.state() == v1::SEALING;
    return absl::FailedPreconditionError(fmt::format("round {} is {}, so it has no aggregate{}", record.id,
                                                     v1::RoundState_Name(round.state()),
                                                     may_come ? " yet; wait for it first" : ""));
  }
  return round.aggregate().digest();
}

absl::StatusOr<v1::ReadAggregateResponse> Read(PayloadStore& payloads, const std::string& digest,
                                               const v1::ReadAggregateRequest& request, int64_t answer_bytes_max) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const BlobView> blob, payloads.OpenBlob(digest));
  const int64_t size_bytes = blob->size_bytes();
  if (request.offset() < 0 || request.offset() > size_bytes || request.length() < 0) {
    return absl::OutOfRangeError(fmt::format(
        "offset {} lies beyond the aggregate's {} bytes, or the length is negative", request.offset(), size_bytes));
  }
  const int64_t length =
      std::min(request.length() == 0 ? answer_bytes_max : std::min(request.length(), answer_bytes_max),
               size_bytes - request.offset());
  v1::ReadAggregateResponse response;
  const ByteRange range = {.offset = request.offset(), .length = length};
  RETURN_IF_ERROR(blob->Append({&range, 1}, *response.mutable_data()));
  response.set_size_bytes(size_bytes);
  response.set_digest(digest);
  return response;
}

absl::Status ReadAggregateFile(PayloadStore& payloads, v1::GetRoundResponse& response) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const BlobView> blob,
                   payloads.OpenBlob(response.round().aggregate().digest()));
  const ByteRange all = {.offset = 0, .length = blob->size_bytes()};
  return blob->Append({&all, 1}, *response.mutable_aggregate_file());
}

// Answers with the round that a record is of.
template <typename Response>
Reply<RoundRecord> WithRound(Reply<Response> reply) {
  return [reply = std::move(reply)](const absl::StatusOr<RoundRecord>& record) {
    if (!record.ok()) return reply(record.status());
    absl::StatusOr<v1::Round> round = ToProto(*record);
    if (!round.ok()) return reply(round.status());
    Response response;
    *response.mutable_round() = *std::move(round);
    reply(std::move(response));
  };
}

}  // namespace

void RoundHandlers::CreateRound(const v1::CreateRoundRequest& request, const CallContext& call,
                                Reply<v1::CreateRoundResponse> reply) {
  if (absl::Status status = CheckRequestId(request.request_id()); !status.ok()) return reply(std::move(status));
  core_.creations().Create(request, call.now, WithRound(std::move(reply)));
}

void RoundHandlers::OpenRound(const v1::OpenRoundRequest& request, const CallContext& call,
                              Reply<v1::OpenRoundResponse> reply) {
  if (absl::Status status = CheckRequestId(request.request_id()); !status.ok()) return reply(std::move(status));
  core_.openings().Open(request, call.now, WithRound(std::move(reply)));
}

void RoundHandlers::GetRound(const v1::GetRoundRequest& request, const CallContext& call,
                             Reply<v1::GetRoundResponse> reply) {
  if (request.aggregate_bytes_max() > 0) {
    // As for ReadAggregate: whoever only looks at rounds does not see what they release.
    const absl::Status status = CheckReleaseScope(request.round(), *call.caller, core_);
    if (!status.ok()) return reply(status);
    reply = WithAggregate(std::move(reply), request.aggregate_bytes_max());
  }
  core_.watch().Get(request, call.id, call.caller, call.now, std::move(reply));
}

Reply<v1::GetRoundResponse> RoundHandlers::WithAggregate(Reply<v1::GetRoundResponse> reply, int64_t bytes_max) {
  const int64_t most = std::min(bytes_max, core_.limits().inline_bytes_max);
  return [&core = core_, reply = std::move(reply), most](absl::StatusOr<v1::GetRoundResponse> response) {
    if (!response.ok() || response->round().state() != v1::SUCCEEDED) return reply(std::move(response));
    if (response->round().aggregate().size_bytes() > most) return reply(std::move(response));
    // A file is read beside the core, and answered from a later batch.
    CoreContext& context = core.context();
    const std::string strand = "aggregate of " + response->round().id();
    context.receptions.Run(strand, [&context, reply, response = *std::move(response)]() mutable {
      const absl::Status read = ReadAggregateFile(context.payloads, response);
      context.executor.Post(
          [reply, read, response = std::move(response)](absl::Time) { read.ok() ? reply(response) : reply(read); });
    });
  };
}

void RoundHandlers::AbandonGetRound(CallId call) { core_.watch().Abandon(call); }

void RoundHandlers::ListRounds(const v1::ListRoundsRequest& request, const CallContext& /*call*/,
                               Reply<v1::ListRoundsResponse> reply) {
  reply(List(core_, request));
}

void RoundHandlers::CancelRound(const v1::CancelRoundRequest& request, const CallContext& call,
                                Reply<v1::CancelRoundResponse> reply) {
  reply(Cancel(core_, request, call.now));
}

absl::StatusOr<std::function<absl::StatusOr<v1::ReadAggregateResponse>(int64_t)>> RoundHandlers::ReadAggregate(
    const v1::ReadAggregateRequest& request, const CallContext& /*call*/) {
  ASSIGN_OR_RETURN(const std::string digest, FindAggregate(core_, RoundId(request.round())));
  return [&payloads = core_.context().payloads, &request, digest](int64_t answer_bytes_max) {
    return Read(payloads, digest, request, answer_bytes_max);
  };
}

}  // namespace sheaf
