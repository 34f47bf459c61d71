#include "server/handlers/method_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "server/core/core.h"
#include "server/core/requests/message_parts.h"
#include "server/handlers/access_handlers.h"
#include "server/handlers/blob_handlers.h"
#include "server/handlers/inspection_handlers.h"
#include "server/handlers/round_handlers.h"
#include "server/handlers/work_handlers.h"

namespace sheaf {

namespace {

using v1::OPERATOR;
using v1::SUBMITTER;
using v1::VIEWER;
using v1::WORKER;

const std::string kPackage = "sheaf.v1.";

constexpr RoleSet kLooking = {SUBMITTER, OPERATOR, VIEWER};

// A worker uploads what it was leased, a submitter what it broadcasts.
absl::Status CheckUploader(const v1::StartUploadRequest& request, const Identity& caller, Core&) {
  return caller.CheckRole("StartUpload", request.has_contribution() ? RoleSet{WORKER} : RoleSet{SUBMITTER});
}

// Those by which an overload is seen and mended.
Lane LaneOf(std::string_view method) {
  const bool is_inspection =
      method.starts_with("sheaf.v1.InspectionService/") || method.starts_with("sheaf.v1.AccessService/");
  return is_inspection ? Lane::kInspection : Lane::kWork;
}

absl::Status CheckNewRound(const v1::CreateRoundRequest& request, const Identity& caller, Core&) {
  return CheckPopulationScope(request.spec().population(), caller);
}

}  // namespace

MethodTable::MethodTable(Executor& executor, Core& core, Admission& admission, Handlers handlers, CallPool* pool)
    : executor_(executor), core_(core), admission_(admission), pool_(pool != nullptr ? *pool : at_once_) {
  Add("sheaf.v1.WorkService/Sync", {WORKER}, OfPopulation(&v1::SyncRequest::population), handlers.work,
      &WorkHandlers::Sync);
  rows_["sheaf.v1.WorkService/Sync"].abandon = [&work = handlers.work](CallId call) { work.AbandonSync(call); };

  BlobHandlers& blob = handlers.blob;
  constexpr RoleSet kUploading = {WORKER, SUBMITTER};
  Add("sheaf.v1.BlobService/StartUpload", kUploading, Scope<v1::StartUploadRequest>(CheckUploader), blob,
      &BlobHandlers::StartUpload);
  Add("sheaf.v1.BlobService/WriteChunk", kUploading, OfUpload(&v1::WriteChunkRequest::upload_id), blob,
      &BlobHandlers::WriteChunk);
  Add("sheaf.v1.BlobService/QueryUpload", kUploading, OfUpload(&v1::QueryUploadRequest::upload_id), blob,
      &BlobHandlers::QueryUpload);
  Add("sheaf.v1.BlobService/FinishUpload", kUploading, OfUpload(&v1::FinishUploadRequest::upload_id), blob,
      &BlobHandlers::FinishUpload);
  Add("sheaf.v1.BlobService/ReadBlob", {WORKER}, OfBroadcast(&v1::ReadBlobRequest::digest), blob,
      &BlobHandlers::ReadBlob);
  Add("sheaf.v1.BlobService/SelectRows", {WORKER}, OfBroadcast(&v1::SelectRowsRequest::digest), blob,
      &BlobHandlers::SelectRows);

  RoundHandlers& round = handlers.round;
  Add("sheaf.v1.RoundService/CreateRound", {SUBMITTER}, Scope<v1::CreateRoundRequest>(CheckNewRound), round,
      &RoundHandlers::CreateRound);
  Add("sheaf.v1.RoundService/GetRound", kLooking, OfRound(&v1::GetRoundRequest::round), round,
      &RoundHandlers::GetRound);
  rows_["sheaf.v1.RoundService/GetRound"].abandon = [&round](CallId call) { round.AbandonGetRound(call); };
  Add("sheaf.v1.RoundService/ListRounds", kLooking, OfPopulation(&v1::ListRoundsRequest::population), round,
      &RoundHandlers::ListRounds);
  Add("sheaf.v1.RoundService/CancelRound", {SUBMITTER, OPERATOR}, OfRound(&v1::CancelRoundRequest::round), round,
      &RoundHandlers::CancelRound);
  Add("sheaf.v1.RoundService/ReadAggregate", {SUBMITTER}, OfRound(&v1::ReadAggregateRequest::round), round,
      &RoundHandlers::ReadAggregate);

  InspectionHandlers& inspection = handlers.inspection;
  Add("sheaf.v1.InspectionService/ListTasks", kLooking, OfPopulation(&v1::ListTasksRequest::population), inspection,
      &InspectionHandlers::ListTasks);
  Add("sheaf.v1.InspectionService/GetTask", kLooking, OfTask(&v1::GetTaskRequest::task), inspection,
      &InspectionHandlers::GetTask);
  Add("sheaf.v1.InspectionService/RequeueTask", {OPERATOR}, OfTask(&v1::RequeueTaskRequest::task), inspection,
      &InspectionHandlers::RequeueTask);
  Add("sheaf.v1.InspectionService/DescribeQueue", kLooking, OfPopulation(&v1::DescribeQueueRequest::population),
      inspection, &InspectionHandlers::DescribeQueue);
  Add("sheaf.v1.InspectionService/ListWorkers", kLooking, OfPopulation(&v1::ListWorkersRequest::population), inspection,
      &InspectionHandlers::ListWorkers);
  Add("sheaf.v1.InspectionService/DrainWorker", {OPERATOR}, OfPopulation(&v1::DrainWorkerRequest::population),
      inspection, &InspectionHandlers::DrainWorker);
  Add("sheaf.v1.InspectionService/ExplainRound", kLooking, OfRound(&v1::ExplainRoundRequest::round), inspection,
      &InspectionHandlers::ExplainRound);
  Add("sheaf.v1.InspectionService/GetServerInfo", kEveryRole, OfServer<v1::GetServerInfoRequest>(), inspection,
      &InspectionHandlers::GetServerInfo);

  AccessHandlers& access = handlers.access;
  Add("sheaf.v1.AccessService/CreateToken", {OPERATOR}, OfServer<v1::CreateTokenRequest>(), access,
      &AccessHandlers::CreateToken);
  Add("sheaf.v1.AccessService/ListTokens", {OPERATOR}, OfServer<v1::ListTokensRequest>(), access,
      &AccessHandlers::ListTokens);
  Add("sheaf.v1.AccessService/RevokeToken", {OPERATOR}, OfServer<v1::RevokeTokenRequest>(), access,
      &AccessHandlers::RevokeToken);

  for (const char* method :
       {"RoundService/GetRound", "RoundService/ListRounds", "RoundService/ReadAggregate", "InspectionService/ListTasks",
        "InspectionService/GetTask", "InspectionService/DescribeQueue", "InspectionService/ListWorkers",
        "InspectionService/ExplainRound", "InspectionService/GetServerInfo", "AccessService/ListTokens"}) {
    rows_.at(kPackage + method).only_looks = true;
  }
  // Of everything else, answers are small, and the work is short or the core's.
  for (const char* name : {"BlobService/ReadBlob", "BlobService/SelectRows", "RoundService/ReadAggregate"}) {
    rows_.at(kPackage + name).traits.answer = AnswerKind::kRead;
  }
  for (const char* name :
       {"RoundService/ListRounds", "InspectionService/ListTasks", "InspectionService/GetTask",
        "InspectionService/ListWorkers", "InspectionService/ExplainRound", "AccessService/ListTokens"}) {
    rows_.at(kPackage + name).traits.answer = AnswerKind::kList;
  }
  // It hashes and flushes the whole file.
  rows_.at(kPackage + "BlobService/FinishUpload").traits.length = CallPool::Length::kLong;
}

namespace {

// A reply that fills the response of the call.
template <typename Response>
Reply<Response> ReplyInto(google::protobuf::Message* response, MethodTable::Done done) {
  return [response, done = std::move(done)](absl::StatusOr<Response> result) {
    if (result.ok()) *static_cast<Response*>(response) = *std::move(result);
    done(result.status());
  };
}

}  // namespace

template <typename Request>
MethodTable::Row MethodTable::MakeRow(std::string_view name, bool in_batch, RoleSet roles, Scope<Request> scope) {
  return {.in_batch = in_batch,
          .lane = LaneOf(name),
          .roles = roles,
          .traits = {.is_for_pool = !in_batch},
          .check_scope = [this, scope = std::move(scope)](const google::protobuf::Message& request,
                                                          const Identity& caller) {
            return scope(static_cast<const Request&>(request), caller, core_);
          }};
}

template <typename H, typename Request, typename Response>
void MethodTable::Add(const char* name, RoleSet roles, Scope<Request> scope, H& handlers,
                      void (H::*handler)(const Request&, const CallContext&, Reply<Response>)) {
  Row& row = rows_[name] = MakeRow(name, true, roles, std::move(scope));
  row.call = [&handlers, handler](const google::protobuf::Message& request, const CallContext& context,
                                  google::protobuf::Message* response, Done done) {
    (handlers.*handler)(static_cast<const Request&>(request), context, ReplyInto<Response>(response, std::move(done)));
  };
}

template <typename H, typename Request, typename Response>
void MethodTable::Add(const char* name, RoleSet roles, Scope<Request> scope, H& handlers,
                      absl::StatusOr<Response> (H::*handler)(const Request&)) {
  Row& row = rows_[name] = MakeRow(name, false, roles, std::move(scope));
  row.call = [&handlers, handler](const google::protobuf::Message& request, const CallContext&,
                                  google::protobuf::Message* response, Done done) {
    ReplyInto<Response>(response, std::move(done))((handlers.*handler)(static_cast<const Request&>(request)));
  };
}

template <typename H, typename Request, typename Response>
void MethodTable::Add(const char* name, RoleSet roles, Scope<Request> scope, H& handlers,
                      absl::StatusOr<Response> (H::*handler)(const Request&, int64_t answer_bytes_max)) {
  Row& row = rows_[name] = MakeRow(name, false, roles, std::move(scope));
  row.call = [this, &handlers, handler](const google::protobuf::Message& request, const CallContext& context,
                                        google::protobuf::Message* response, Done done) {
    ReplyInto<Response>(
        response, std::move(done))((handlers.*handler)(static_cast<const Request&>(request), AnswerBytesMax(context)));
  };
}

template <typename H, typename Request, typename Response>
void MethodTable::Add(const char* name, RoleSet roles, Scope<Request> scope, H& handlers,
                      absl::StatusOr<std::function<absl::StatusOr<Response>(int64_t)>> (H::*handler)(
                          const Request&, const CallContext&)) {
  Row& row = rows_[name] = MakeRow(name, true, roles, std::move(scope));
  row.look_up = [&handlers, handler](const google::protobuf::Message& request,
                                     const CallContext& context) -> absl::StatusOr<Reading> {
    auto read = (handlers.*handler)(static_cast<const Request&>(request), context);
    if (!read.ok()) return read.status();
    return [read = *std::move(read)](google::protobuf::Message* response, int64_t answer_bytes_max) {
      absl::StatusOr<Response> result = read(answer_bytes_max);
      if (result.ok()) *static_cast<Response*>(response) = *std::move(result);
      return result.status();
    };
  };
}

template <typename H, typename Request, typename Response>
void MethodTable::Add(const char* name, RoleSet roles, Scope<Request> scope, H& handlers,
                      void (H::*handler)(const Request&, Reply<Response>)) {
  Row& row = rows_[name] = MakeRow(name, false, roles, std::move(scope));
  row.call = [&handlers, handler](const google::protobuf::Message& request, const CallContext&,
                                  google::protobuf::Message* response, Done done) {
    (handlers.*handler)(static_cast<const Request&>(request), ReplyInto<Response>(response, std::move(done)));
  };
}

void MethodTable::Dispatch(std::string_view method, const CallContext& context,
                           const google::protobuf::Message& request, google::protobuf::Message* response,
                           Done done) const {
  const auto found = rows_.find(std::string(method));
  if (found == rows_.end()) return done(absl::UnimplementedError(fmt::format("there is no method {}", method)));
  const Row& row = found->second;
  if (absl::Status status = context.caller->CheckRole(method, row.roles); !status.ok()) return done(std::move(status));
  if (!row.in_batch) {
    if (absl::Status status = row.check_scope(request, *context.caller); !status.ok()) {
      return done(std::move(status));
    }
    return row.call(request, context, response, std::move(done));
  }
  admission_.Queue(row.lane, *context.caller);
  Post(row.lane,
       [this, name = std::string_view(found->first),
        call =
            Call{.row = &row, .context = context, .request = &request, .response = response, .done = std::move(done)}](
           absl::Time now) mutable {
         executor_.NoteWork(name);
         admission_.Dequeue(call.row->lane);
         call.context.now = now;
         RunInBatch(call);
       });
}

void MethodTable::RunInBatch(const Call& call) const {
  if (absl::Status status = call.row->check_scope(*call.request, *call.context.caller); !status.ok()) {
    return AnswerAfterBatch(call, std::move(status));
  }
  if (!call.row->look_up) {
    return call.row->call(*call.request, call.context, call.response,
                          [this, call](absl::Status status) { AnswerAfterBatch(call, std::move(status)); });
  }
  absl::StatusOr<Reading> reading = call.row->look_up(*call.request, call.context);
  if (!reading.ok()) return AnswerAfterBatch(call, reading.status());
  // What was looked up may be of this batch.
  executor_.Defer([this, call, reading = *std::move(reading)](const absl::Status& commit) {
    if (commit.ok()) return Read(call, reading);
    LooksAgain(call, commit) ? LookAgain(call) : call.done(commit);
  });
}

void MethodTable::AnswerAfterBatch(const Call& call, absl::Status status) const {
  executor_.Defer([this, call, status = std::move(status)](const absl::Status& commit) {
    if (commit.ok()) return call.done(status);
    LooksAgain(call, commit) && !absl::IsCancelled(status) ? LookAgain(call) : call.done(commit);
  });
}

// Others wrote in the batch, and the disk is full. Whoever only looks is not refused for that: with a full disk people
// look what is wrong.
bool MethodTable::LooksAgain(const Call& call, const absl::Status& commit) {
  return call.row->only_looks && absl::IsResourceExhausted(commit);
}

void MethodTable::LookAgain(const Call& call) const {
  if (absl::Status status = call.row->check_scope(*call.request, *call.context.caller); !status.ok()) {
    return call.done(std::move(status));
  }
  if (call.row->look_up) {
    absl::StatusOr<Reading> reading = call.row->look_up(*call.request, call.context);
    return reading.ok() ? Read(call, *std::move(reading)) : call.done(reading.status());
  }
  const auto is_outside = std::make_shared<bool>(true);
  call.row->call(*call.request, call.context, call.response, [this, call, is_outside](absl::Status status) {
    // One that waits again is answered in a later batch.
    *is_outside ? call.done(std::move(status)) : AnswerAfterBatch(call, std::move(status));
  });
  *is_outside = false;
}

void MethodTable::Read(const Call& call, Reading reading) const {
  pool_.Run(call.context.client, CallPool::Length::kShort, [this, call, reading = std::move(reading)] {
    call.done(reading(call.response, AnswerBytesMax(call.context)));
  });
}

int64_t MethodTable::AnswerBytesMax(const CallContext& context) const {
  const int64_t chunk = core_.limits().chunk_bytes_max;
  return context.answer_bytes_max == 0 ? chunk : std::min(chunk, context.answer_bytes_max);
}

MethodTable::Traits MethodTable::TraitsOf(std::string_view method) const {
  const auto found = rows_.find(std::string(method));
  return found == rows_.end() ? Traits() : found->second.traits;
}

void MethodTable::Post(Lane lane, Executor::Event event) const {
  lane == Lane::kInspection ? executor_.PostUrgent(std::move(event)) : executor_.Post(std::move(event));
}

absl::Status MethodTable::Enter(std::string_view method, const Identity& caller, int64_t bytes, absl::Time now) const {
  if (bytes > core_.limits().request_bytes_max) {
    return absl::ResourceExhaustedError(fmt::format(
        "the request has {} bytes, over request_bytes_max = {}; send less in one call: fewer tasks, smaller "
        "payloads, and what tasks share in the round's broadcast",
        bytes, core_.limits().request_bytes_max));
  }
  return admission_.Enter(LaneOf(method), caller, bytes, now);
}

bool MethodTable::CountsParts(int64_t bytes) { return bytes > kUncountedBytesMax; }

absl::Status MethodTable::CheckParts(const google::protobuf::Descriptor& type,
                                     google::protobuf::io::ZeroCopyInputStream& stream) const {
  return sheaf::CheckParts(type, stream, "request_parts_max", core_.limits().request_parts_max);
}

bool MethodTable::requires_tokens() const { return core_.access().is_required(); }

absl::StatusOr<IdentityPtr> MethodTable::Authenticate(std::string_view authorization,
                                                      std::span<const std::string> certificate_names) const {
  return core_.access().Authenticate(authorization, certificate_names);
}

RoleSet MethodTable::RolesOf(std::string_view method) const { return rows_.at(std::string(method)).roles; }

void MethodTable::Abandon(std::string_view method, CallId call) const {
  const auto found = rows_.find(std::string(method));
  if (found == rows_.end() || !found->second.abandon) return;
  // Behind the call itself, which may not have begun.
  executor_.Post([&row = found->second, call](absl::Time) { row.abandon(call); });
}

std::vector<std::string> MethodTable::methods() const {
  std::vector<std::string> names;
  for (const auto& [name, row] : rows_) names.push_back(name);
  return names;
}

}  // namespace sheaf
