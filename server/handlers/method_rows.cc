#include "server/handlers/method_rows.h"

#include "base/status_macros.h"
#include "proto/methods.h"
#include "server/calls/scope.h"
#include "server/core/core.h"

namespace sheaf {
namespace {

using v1::OPERATOR;
using v1::RELAY;
using v1::SUBMITTER;
using v1::VIEWER;
using v1::WORKER;

constexpr RoleSet kLooking = {SUBMITTER, OPERATOR, VIEWER};
constexpr RoleSet kLookingOrRelaying = {SUBMITTER, OPERATOR, VIEWER, RELAY};
constexpr RoleSet kSubmitting = {SUBMITTER, RELAY};
constexpr RoleSet kUploading = {WORKER, SUBMITTER, RELAY};

// A worker uploads what it was leased, who creates rounds what they broadcast.
absl::Status CheckUploader(const v1::StartUploadRequest& request, const Identity& caller, Core& /*core*/) {
  if (request.has_contribution()) return caller.CheckRole("StartUpload", {WORKER});
  RETURN_IF_ERROR(caller.CheckRole("StartUpload", kSubmitting));
  return request.population().empty() ? absl::OkStatus() : CheckPopulationScope(request.population(), caller);
}

Subject AboutUpload(const v1::StartUploadRequest& request) {
  if (request.has_contribution()) return {.kind = Subject::kNamed, .name = request.contribution().task()};
  Subject subject = AboutPopulation(request.population());
  subject.may_be_first = true;
  // Of clients before 0.2, who do not say for whom it is.
  return request.population().empty() ? Subject() : subject;
}

absl::Status CheckNewRound(const v1::CreateRoundRequest& request, const Identity& caller, Core& /*core*/) {
  RETURN_IF_ERROR(request.spec().release() == v1::PARTIAL_AGGREGATE
                      ? caller.CheckRole("CreateRound of a partial aggregate", {RELAY})
                      : caller.CheckRole("CreateRound", {SUBMITTER}));
  return CheckPopulationScope(request.spec().population(), caller);
}

Subject AboutNewRound(const v1::CreateRoundRequest& request) {
  Subject subject = AboutPopulation(request.spec().population());
  subject.may_be_first = true;
  return subject;
}

// A worker's tasks are where they were leased, whether or not this server has heard that their population is there.
Subject AboutSync(const v1::SyncRequest& request) {
  if (!request.results().empty()) return {.kind = Subject::kNamed, .name = request.results(0).task()};
  if (!request.held().empty()) return {.kind = Subject::kNamed, .name = request.held(0).task()};
  return AboutPopulation(request.population());
}

std::vector<MethodRow> WorkRows(WorkHandlers& work) {
  return {
      InBatch(kSync, {.roles = {WORKER}}, {OfPopulation(&v1::SyncRequest::population).check, AboutSync}, work,
              &WorkHandlers::Sync, &WorkHandlers::AbandonSync),
  };
}

// FinishUpload hashes and flushes the whole file.
std::vector<MethodRow> BlobRows(UploadHandlers& upload, TransferHandlers& transfer) {
  return {
      InBatch(kStartUpload, {.roles = kUploading}, {CheckUploader, AboutUpload}, upload, &UploadHandlers::StartUpload),
      InPool(kWriteChunk, {.roles = kUploading}, OfUpload(&v1::WriteChunkRequest::upload_id), transfer,
             &TransferHandlers::WriteChunk),
      InPool(kQueryUpload, {.roles = kUploading}, OfUpload(&v1::QueryUploadRequest::upload_id), transfer,
             &TransferHandlers::QueryUpload),
      InPool(kFinishUpload, {.roles = kUploading, .length = CallPool::Length::kLong},
             OfUpload(&v1::FinishUploadRequest::upload_id), upload, &UploadHandlers::FinishUpload),
      InPool(kReadBlob, {.roles = {WORKER}, .answer = AnswerKind::kRead}, OfBroadcast(&v1::ReadBlobRequest::digest),
             transfer, &TransferHandlers::ReadBlob),
      InPool(kSelectRows, {.roles = {WORKER}, .answer = AnswerKind::kRead}, OfBroadcast(&v1::SelectRowsRequest::digest),
             transfer, &TransferHandlers::SelectRows),
  };
}

std::vector<MethodRow> RoundRows(RoundHandlers& round) {
  return {
      InBatch(kCreateRound, {.roles = kSubmitting}, {CheckNewRound, AboutNewRound}, round, &RoundHandlers::CreateRound),
      InBatch(kOpenRound, {.roles = kSubmitting}, OfRound(&v1::OpenRoundRequest::round, {SUBMITTER}), round,
              &RoundHandlers::OpenRound),
      InBatch(kGetRound, {.roles = kLookingOrRelaying, .only_looks = true},
              OfRound(&v1::GetRoundRequest::round, kLooking), round, &RoundHandlers::GetRound,
              &RoundHandlers::AbandonGetRound),
      InBatch(kListRounds, {.roles = kLooking, .answer = AnswerKind::kList, .only_looks = true},
              OfPopulation(&v1::ListRoundsRequest::population), round, &RoundHandlers::ListRounds),
      InBatch(kCancelRound, {.roles = {SUBMITTER, OPERATOR, RELAY}},
              OfRound(&v1::CancelRoundRequest::round, {SUBMITTER, OPERATOR}), round, &RoundHandlers::CancelRound),
      InBatchThenPool(kReadAggregate, {.roles = kSubmitting, .answer = AnswerKind::kRead, .only_looks = true},
                      OfReleaseOf(&v1::ReadAggregateRequest::round), round, &RoundHandlers::ReadAggregate),
  };
}

// By these an overload is seen and mended, and by those of access.
std::vector<MethodRow> InspectionRows(InspectionHandlers& inspection) {
  constexpr MethodTraits kOne = {.roles = kLooking, .lane = Lane::kInspection, .only_looks = true};
  constexpr MethodTraits kMany = {
      .roles = kLooking, .lane = Lane::kInspection, .answer = AnswerKind::kList, .only_looks = true};
  constexpr MethodTraits kManyOrRelaying = {
      .roles = kLookingOrRelaying, .lane = Lane::kInspection, .answer = AnswerKind::kList, .only_looks = true};
  constexpr MethodTraits kMending = {.roles = {OPERATOR}, .lane = Lane::kInspection};
  return {
      InBatch(kListTasks, kMany, OfPopulation(&v1::ListTasksRequest::population), inspection,
              &InspectionHandlers::ListTasks),
      InBatch(kGetTask, kMany, OfTask(&v1::GetTaskRequest::task), inspection, &InspectionHandlers::GetTask),
      InBatch(kRequeueTask, kMending, OfTask(&v1::RequeueTaskRequest::task), inspection,
              &InspectionHandlers::RequeueTask),
      InBatch(kDescribeQueue, kOne, OfPopulation(&v1::DescribeQueueRequest::population), inspection,
              &InspectionHandlers::DescribeQueue),
      InBatch(kListWorkers, kManyOrRelaying, OfPopulation(&v1::ListWorkersRequest::population), inspection,
              &InspectionHandlers::ListWorkers),
      InBatch(kDrainWorker, kMending, OfPopulation(&v1::DrainWorkerRequest::population), inspection,
              &InspectionHandlers::DrainWorker),
      InBatch(kExplainRound, kMany, OfRound(&v1::ExplainRoundRequest::round), inspection,
              &InspectionHandlers::ExplainRound),
      InBatch(kListServers, kMany, OfServer<v1::ListServersRequest>(), inspection, &InspectionHandlers::ListServers),
      InBatch(kDrainServer, kMending, OfServer<v1::DrainServerRequest>(), inspection, &InspectionHandlers::DrainServer),
      InBatch(kGetServerInfo, {.roles = kEveryRole, .lane = Lane::kInspection, .only_looks = true},
              OfServer<v1::GetServerInfoRequest>(), inspection, &InspectionHandlers::GetServerInfo),
  };
}

std::vector<MethodRow> AccessRows(AccessHandlers& access) {
  constexpr MethodTraits kChanging = {.roles = {OPERATOR}, .lane = Lane::kInspection};
  return {
      InBatch(kCreateToken, kChanging, OfServer<v1::CreateTokenRequest>(), access, &AccessHandlers::CreateToken),
      InBatch(kListTokens,
              {.roles = {OPERATOR}, .lane = Lane::kInspection, .answer = AnswerKind::kList, .only_looks = true},
              OfServer<v1::ListTokensRequest>(), access, &AccessHandlers::ListTokens),
      InBatch(kRevokeToken, kChanging, OfServer<v1::RevokeTokenRequest>(), access, &AccessHandlers::RevokeToken),
  };
}

}  // namespace

Handlers::Handlers(Core& core, PayloadStore& payloads, const Admission& admission,
                   const ServingCertificate* certificate)
    : work(core),
      upload(core, payloads),
      transfer(payloads, core.open_blobs(), core.limits()),
      round(core),
      inspection(core, admission, certificate),
      access(core) {}

std::vector<MethodRow> MethodRows(Handlers& handlers) {
  std::vector<MethodRow> rows = WorkRows(handlers.work);
  const auto add = [&rows](const std::vector<MethodRow>& service) {
    rows.insert(rows.end(), service.begin(), service.end());
  };
  add(BlobRows(handlers.upload, handlers.transfer));
  add(RoundRows(handlers.round));
  add(InspectionRows(handlers.inspection));
  add(AccessRows(handlers.access));
  return rows;
}

}  // namespace sheaf
