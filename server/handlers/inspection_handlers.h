// InspectionHandlers: InspectionService, free of transport. See proto/sheaf/v1/inspection_service.proto for the
// contract.
#pragma once

#include "server/calls/call_context.h"
#include "server/core/batches/reply.h"
#include "sheaf/v1/inspection_service.pb.h"
#include "tls/serving_certificate.h"

namespace sheaf {

class Admission;
class Core;

class InspectionHandlers {
 public:
  // All must outlive the handlers. `certificate` is what the server shows; null where it shows none.
  InspectionHandlers(Core& core, const Admission& admission, const ServingCertificate* certificate = nullptr)
      : core_(core), admission_(admission), certificate_(certificate) {}

  void ListTasks(const v1::ListTasksRequest& request, const CallContext& call, Reply<v1::ListTasksResponse> reply);
  void GetTask(const v1::GetTaskRequest& request, const CallContext& call, Reply<v1::GetTaskResponse> reply);
  void RequeueTask(const v1::RequeueTaskRequest& request, const CallContext& call,
                   Reply<v1::RequeueTaskResponse> reply);
  void DescribeQueue(const v1::DescribeQueueRequest& request, const CallContext& call,
                     Reply<v1::DescribeQueueResponse> reply);
  void ListWorkers(const v1::ListWorkersRequest& request, const CallContext& call,
                   Reply<v1::ListWorkersResponse> reply);
  void DrainWorker(const v1::DrainWorkerRequest& request, const CallContext& call,
                   Reply<v1::DrainWorkerResponse> reply);
  void ExplainRound(const v1::ExplainRoundRequest& request, const CallContext& call,
                    Reply<v1::ExplainRoundResponse> reply);
  void ListServers(const v1::ListServersRequest& request, const CallContext& call,
                   Reply<v1::ListServersResponse> reply);
  void DrainServer(const v1::DrainServerRequest& request, const CallContext& call,
                   Reply<v1::DrainServerResponse> reply);
  void GetServerInfo(const v1::GetServerInfoRequest& request, const CallContext& call,
                     Reply<v1::GetServerInfoResponse> reply);

 private:
  Core& core_;
  const Admission& admission_;
  const ServingCertificate* const certificate_;
};

}  // namespace sheaf
