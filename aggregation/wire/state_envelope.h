// The envelope of serialised states: magic, version, the signature of what it belongs to, body, CRC-32 of all before
// it. docs/reference/partial-aggregates.md publishes the bytes of an output: to change them takes a new version.
//
//   const std::string bytes = WrapState(kMagic, signature, "body");
//   ASSIGN_OR_RETURN(const std::string_view body, UnwrapState(kMagic, signature, bytes));
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "aggregation/wire/state_bytes.h"

namespace sheaf {

std::string WrapState(uint32_t magic, std::string_view signature, std::string_view body);
// The same for a body that is never in memory whole. Its length stands before it: MeasureState tells it.
struct StateEnvelope {
  uint32_t magic;
  std::string_view signature;
  int64_t body_bytes;
};
// CHECKs that `write` writes as many bytes. Errors are those of the sink behind `out`, which keeps them.
void WriteWrapped(const StateEnvelope& envelope, const std::function<void(StateWriter& out)>& write, StateWriter& out);
// With the envelope.
int64_t WrappedBytes(const StateEnvelope& envelope);
// How many bytes `write` writes: it costs as much as writing them.
int64_t MeasureState(const std::function<void(StateWriter& out)>& write);
// The body, a view into `state`. INVALID_ARGUMENT if it is no such state, of another version, or of another signature
// (says both); DATA_LOSS if the checksum or a length is wrong.
absl::StatusOr<std::string_view> UnwrapState(uint32_t magic, std::string_view signature, std::string_view state);

}  // namespace sheaf
