// The methods of the wire contract, each with its name and its two messages: for clients, and for the server.
//
//   absl::StatusOr<v1::GetRoundResponse> response = BlockingCall(transport, kGetRound, request);
//   const MethodRow row = InBatch(kGetRound, {.roles = {v1::VIEWER}}, OfRound(&v1::GetRoundRequest::round), rounds,
//                                 &RoundHandlers::GetRound);
//
// Constants: thread-safe.
#pragma once

#include "sheaf/v1/access_service.pb.h"
#include "sheaf/v1/blob_service.pb.h"
#include "sheaf/v1/inspection_service.pb.h"
#include "sheaf/v1/round_service.pb.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf {

template <typename RequestType, typename ResponseType>
struct Method {
  using Request = RequestType;
  using Response = ResponseType;
  // As in a gRPC path, without the leading slash.
  const char* name;
};

#define SHEAF_METHOD(service, method) \
  inline constexpr Method<v1::method##Request, v1::method##Response> k##method { "sheaf.v1." #service "/" #method }

SHEAF_METHOD(WorkService, Sync);

SHEAF_METHOD(BlobService, StartUpload);
SHEAF_METHOD(BlobService, WriteChunk);
SHEAF_METHOD(BlobService, QueryUpload);
SHEAF_METHOD(BlobService, FinishUpload);
SHEAF_METHOD(BlobService, ReadBlob);
SHEAF_METHOD(BlobService, SelectRows);

SHEAF_METHOD(RoundService, CreateRound);
SHEAF_METHOD(RoundService, OpenRound);
SHEAF_METHOD(RoundService, GetRound);
SHEAF_METHOD(RoundService, ListRounds);
SHEAF_METHOD(RoundService, CancelRound);
SHEAF_METHOD(RoundService, ReadAggregate);

SHEAF_METHOD(InspectionService, ListTasks);
SHEAF_METHOD(InspectionService, GetTask);
SHEAF_METHOD(InspectionService, RequeueTask);
SHEAF_METHOD(InspectionService, DescribeQueue);
SHEAF_METHOD(InspectionService, ListWorkers);
SHEAF_METHOD(InspectionService, DrainWorker);
SHEAF_METHOD(InspectionService, ExplainRound);
SHEAF_METHOD(InspectionService, GetServerInfo);
SHEAF_METHOD(InspectionService, ListServers);
SHEAF_METHOD(InspectionService, DrainServer);

SHEAF_METHOD(AccessService, CreateToken);
SHEAF_METHOD(AccessService, ListTokens);
SHEAF_METHOD(AccessService, RevokeToken);

#undef SHEAF_METHOD

}  // namespace sheaf
