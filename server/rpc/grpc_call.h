// GrpcCall: gRPC's front door to the pipeline: one unary call whose messages are bytes, as gRPC's callback API has
// them.
//
//   grpc::ServerUnaryReactor* reactor = StartGrpcCall(pipeline, method, *context, request_bytes, answer_bytes);
//
// It is gRPC's reactor and the pipeline's Call in one object, so that a call costs one allocation. Lives until gRPC has
// said that it is done. Thread-safe where gRPC and the pipeline ask for it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "server/calls/call_pipeline.h"

namespace sheaf {

// The call has begun when this returns. All arguments must live until it is done, as gRPC's do; the request is cleared
// before.
grpc::ServerUnaryReactor* StartGrpcCall(CallPipeline& pipeline, const MethodRow& method,
                                        grpc::CallbackServerContext& context, grpc::ByteBuffer& request,
                                        grpc::ByteBuffer& answer);

// The same of a call that another server forwards (forwarded_metadata.h), on behalf of whom it names. UNAVAILABLE to
// whoever does not show `secret`: it was this port's owner's before.
grpc::ServerUnaryReactor* StartForwardedGrpcCall(CallPipeline& pipeline, const MethodRow& method,
                                                 grpc::CallbackServerContext& context, grpc::ByteBuffer& request,
                                                 grpc::ByteBuffer& answer, const std::string& secret);

// What the caller shows: the metadata `authorization`, or else the names in the certificate of its connection. Refers
// to the context.
Credentials CredentialsOf(const grpc::CallbackServerContext& context);

// The same code; the message, cut where gRPC's headers would not carry it.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace sheaf
