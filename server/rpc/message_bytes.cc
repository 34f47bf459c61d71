#include "server/rpc/message_bytes.h"

#include <grpc/slice.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include <array>
#include <cstdint>

namespace sheaf {
namespace {

constexpr int kSliceBytesMax = 1 << 20;

}  // namespace

absl::StatusOr<grpc::ByteBuffer> ToBytes(const google::protobuf::Message& message) {
  const size_t size = message.ByteSizeLong();
  if (size <= size_t{GRPC_SLICE_INLINED_SIZE}) {
    // It needs no memory of its own.
    std::array<uint8_t, GRPC_SLICE_INLINED_SIZE> bytes;
    message.SerializeWithCachedSizesToArray(bytes.data());
    const grpc::Slice slice(bytes.data(), size);
    return grpc::ByteBuffer(&slice, 1);
  }
  grpc::ByteBuffer bytes;
  grpc::ProtoBufferWriter stream(&bytes, kSliceBytesMax, static_cast<int>(size));
  if (!message.SerializeToZeroCopyStream(&stream)) return absl::InternalError("a message cannot be serialised");
  return bytes;
}

}  // namespace sheaf
