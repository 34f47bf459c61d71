#include "server/rpc/services.h"

#include "sheaf/v1/access_service.grpc.pb.h"
#include "sheaf/v1/blob_service.grpc.pb.h"
#include "sheaf/v1/inspection_service.grpc.pb.h"
#include "sheaf/v1/round_service.grpc.pb.h"
#include "sheaf/v1/work_service.grpc.pb.h"

namespace sheaf {
namespace {

// One override of the generated class: one line, the same for all.
#define SHEAF_SERVE(service, method)                                                                         \
  grpc::ServerUnaryReactor* method(grpc::CallbackServerContext* context, const v1::method##Request* request, \
                                   v1::method##Response* response) override {                                \
    return adaptor_.Serve("sheaf.v1." #service "/" #method, *context, *request, *response);                  \
  }

class WorkService final : public v1::WorkService::CallbackService {
 public:
  explicit WorkService(UnaryAdaptor& adaptor) : adaptor_(adaptor) {}
  SHEAF_SERVE(WorkService, Sync)

 private:
  UnaryAdaptor& adaptor_;
};

class BlobService final : public v1::BlobService::CallbackService {
 public:
  explicit BlobService(UnaryAdaptor& adaptor) : adaptor_(adaptor) {}
  SHEAF_SERVE(BlobService, StartUpload)
  SHEAF_SERVE(BlobService, WriteChunk)
  SHEAF_SERVE(BlobService, QueryUpload)
  SHEAF_SERVE(BlobService, FinishUpload)
  SHEAF_SERVE(BlobService, ReadBlob)
  SHEAF_SERVE(BlobService, SelectRows)

 private:
  UnaryAdaptor& adaptor_;
};

class RoundService final : public v1::RoundService::CallbackService {
 public:
  explicit RoundService(UnaryAdaptor& adaptor) : adaptor_(adaptor) {}
  SHEAF_SERVE(RoundService, CreateRound)
  SHEAF_SERVE(RoundService, GetRound)
  SHEAF_SERVE(RoundService, ListRounds)
  SHEAF_SERVE(RoundService, CancelRound)
  SHEAF_SERVE(RoundService, ReadAggregate)

 private:
  UnaryAdaptor& adaptor_;
};

class InspectionService final : public v1::InspectionService::CallbackService {
 public:
  explicit InspectionService(UnaryAdaptor& adaptor) : adaptor_(adaptor) {}
  SHEAF_SERVE(InspectionService, ListTasks)
  SHEAF_SERVE(InspectionService, GetTask)
  SHEAF_SERVE(InspectionService, RequeueTask)
  SHEAF_SERVE(InspectionService, DescribeQueue)
  SHEAF_SERVE(InspectionService, ListWorkers)
  SHEAF_SERVE(InspectionService, DrainWorker)
  SHEAF_SERVE(InspectionService, ExplainRound)
  SHEAF_SERVE(InspectionService, GetServerInfo)

 private:
  UnaryAdaptor& adaptor_;
};

class AccessService final : public v1::AccessService::CallbackService {
 public:
  explicit AccessService(UnaryAdaptor& adaptor) : adaptor_(adaptor) {}
  SHEAF_SERVE(AccessService, CreateToken)
  SHEAF_SERVE(AccessService, ListTokens)
  SHEAF_SERVE(AccessService, RevokeToken)

 private:
  UnaryAdaptor& adaptor_;
};

#undef SHEAF_SERVE

}  // namespace

std::vector<NamedService> MakeServices(UnaryAdaptor& adaptor) {
  std::vector<NamedService> services;
  services.push_back({v1::WorkService::service_full_name(), std::make_unique<WorkService>(adaptor)});
  services.push_back({v1::BlobService::service_full_name(), std::make_unique<BlobService>(adaptor)});
  services.push_back({v1::RoundService::service_full_name(), std::make_unique<RoundService>(adaptor)});
  services.push_back({v1::InspectionService::service_full_name(), std::make_unique<InspectionService>(adaptor)});
  services.push_back({v1::AccessService::service_full_name(), std::make_unique<AccessService>(adaptor)});
  return services;
}

}  // namespace sheaf
