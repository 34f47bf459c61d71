#include "server/handlers/method_table.h"

#include <fmt/format.h>

#include <memory>

#include "server/handlers/blob_handlers.h"
#include "server/handlers/inspection_handlers.h"
#include "server/handlers/round_handlers.h"
#include "server/handlers/work_handlers.h"

namespace sheaf {

MethodTable::MethodTable(Executor& executor, Handlers handlers) : executor_(executor) {
  Add("sheaf.v1.WorkService/Sync", handlers.work, &WorkHandlers::Sync);
  rows_["sheaf.v1.WorkService/Sync"].abandon = [&work = handlers.work](const google::protobuf::Message& request) {
    work.AbandonSync(static_cast<const v1::SyncRequest&>(request));
  };

  Add("sheaf.v1.BlobService/StartUpload", handlers.blob, &BlobHandlers::StartUpload);
  Add("sheaf.v1.BlobService/WriteChunk", handlers.blob, &BlobHandlers::WriteChunk);
  Add("sheaf.v1.BlobService/QueryUpload", handlers.blob, &BlobHandlers::QueryUpload);
  Add("sheaf.v1.BlobService/FinishUpload", handlers.blob, &BlobHandlers::FinishUpload);
  Add("sheaf.v1.BlobService/ReadBlob", handlers.blob, &BlobHandlers::ReadBlob);
  Add("sheaf.v1.BlobService/SelectRows", handlers.blob, &BlobHandlers::SelectRows);

  Add("sheaf.v1.RoundService/CreateRound", handlers.round, &RoundHandlers::CreateRound);
  Add("sheaf.v1.RoundService/GetRound", handlers.round, &RoundHandlers::GetRound);
  Add("sheaf.v1.RoundService/ListRounds", handlers.round, &RoundHandlers::ListRounds);
  Add("sheaf.v1.RoundService/CancelRound", handlers.round, &RoundHandlers::CancelRound);
  Add("sheaf.v1.RoundService/ReadAggregate", handlers.round, &RoundHandlers::ReadAggregate);

  Add("sheaf.v1.InspectionService/ListTasks", handlers.inspection, &InspectionHandlers::ListTasks);
  Add("sheaf.v1.InspectionService/GetTask", handlers.inspection, &InspectionHandlers::GetTask);
  Add("sheaf.v1.InspectionService/RequeueTask", handlers.inspection, &InspectionHandlers::RequeueTask);
  Add("sheaf.v1.InspectionService/DescribeQueue", handlers.inspection, &InspectionHandlers::DescribeQueue);
  Add("sheaf.v1.InspectionService/ListWorkers", handlers.inspection, &InspectionHandlers::ListWorkers);
  Add("sheaf.v1.InspectionService/DrainWorker", handlers.inspection, &InspectionHandlers::DrainWorker);
  Add("sheaf.v1.InspectionService/ExplainRound", handlers.inspection, &InspectionHandlers::ExplainRound);
  Add("sheaf.v1.InspectionService/GetServerInfo", handlers.inspection, &InspectionHandlers::GetServerInfo);
}

template <typename H, typename Request, typename Response>
void MethodTable::Add(const char* name, H& handlers, void (H::*handler)(const Request&, absl::Time, Reply<Response>)) {
  rows_[name] = {.in_batch = true,
                 .call = [&handlers, handler](const google::protobuf::Message& request,
                                              google::protobuf::Message* response, absl::Time now, Done done) {
                   (handlers.*handler)(static_cast<const Request&>(request), now,
                                       [response, done = std::move(done)](absl::StatusOr<Response> result) {
                                         if (result.ok()) *static_cast<Response*>(response) = *std::move(result);
                                         done(result.status());
                                       });
                 }};
}

template <typename H, typename Request, typename Response>
void MethodTable::Add(const char* name, H& handlers, absl::StatusOr<Response> (H::*handler)(const Request&)) {
  rows_[name] = {.in_batch = false,
                 .call = [&handlers, handler](const google::protobuf::Message& request,
                                              google::protobuf::Message* response, absl::Time, Done done) {
                   absl::StatusOr<Response> result = (handlers.*handler)(static_cast<const Request&>(request));
                   if (result.ok()) *static_cast<Response*>(response) = *std::move(result);
                   done(result.status());
                 }};
}

void MethodTable::Dispatch(std::string_view method, const google::protobuf::Message& request,
                           google::protobuf::Message* response, Done done) const {
  const auto found = rows_.find(std::string(method));
  if (found == rows_.end()) return done(absl::UnimplementedError(fmt::format("there is no method {}", method)));
  const Row& row = found->second;
  if (!row.in_batch) return row.call(request, response, absl::InfinitePast(), std::move(done));
  executor_.Post([this, &row, &request, response, done = std::move(done)](absl::Time now) {
    row.call(request, response, now, [this, done](absl::Status status) {
      executor_.Defer(
          [done, status = std::move(status)](const absl::Status& commit) { done(commit.ok() ? status : commit); });
    });
  });
}

void MethodTable::Abandon(std::string_view method, const google::protobuf::Message& request) const {
  const auto found = rows_.find(std::string(method));
  if (found != rows_.end() && found->second.abandon) found->second.abandon(request);
}

std::vector<std::string> MethodTable::methods() const {
  std::vector<std::string> names;
  for (const auto& [name, row] : rows_) names.push_back(name);
  return names;
}

}  // namespace sheaf
