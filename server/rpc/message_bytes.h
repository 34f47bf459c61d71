// ToBytes: a message as gRPC carries it.
//
//   ASSIGN_OR_RETURN(grpc::ByteBuffer bytes, ToBytes(answer));
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"

namespace sheaf {

// In pieces of up to 1 MiB. INTERNAL if it cannot be serialised: it has 2 GiB, or text that is none.
absl::StatusOr<grpc::ByteBuffer> ToBytes(const google::protobuf::Message& message);

}  // namespace sheaf
