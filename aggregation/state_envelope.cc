#include "aggregation/state_envelope.h"

#include <fmt/format.h>

#include "aggregation/state_bytes.h"
#include "base/checksum.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr uint32_t kVersion = 2;

}  // namespace

std::string SealState(uint32_t magic, std::string_view signature, std::string_view body) {
  StateWriter out;
  out.Put(magic);
  out.Put(kVersion);
  out.PutString(signature);
  out.PutString(body);
  out.Put(Crc32(out.bytes()));
  return std::move(out).Take();
}

absl::StatusOr<std::string_view> OpenState(uint32_t magic, std::string_view signature, std::string_view state) {
  StateReader in(state);
  ASSIGN_OR_RETURN(const uint32_t found_magic, in.Get<uint32_t>());
  if (found_magic != magic) return absl::InvalidArgumentError("this is not a serialised state of this kind");
  ASSIGN_OR_RETURN(const uint32_t version, in.Get<uint32_t>());
  if (version != kVersion) {
    return absl::InvalidArgumentError(
        fmt::format("the state has version {}, this program reads version {}; use the same release on both sides",
                    version, kVersion));
  }
  if (in.remaining() < static_cast<int64_t>(sizeof(uint32_t))) return StateReader::Missing();
  const std::string_view covered = state.substr(0, state.size() - sizeof(uint32_t));
  StateReader trailer(state.substr(covered.size()));
  ASSIGN_OR_RETURN(const uint32_t checksum, trailer.Get<uint32_t>());
  if (checksum != Crc32(covered)) return absl::DataLossError("the state's checksum is wrong: its bytes were damaged");
  ASSIGN_OR_RETURN(const std::string_view found_signature, in.GetString());
  if (found_signature != signature) {
    return absl::InvalidArgumentError(
        fmt::format("the state belongs to '{}', not to '{}'", found_signature.substr(0, 512), signature));
  }
  ASSIGN_OR_RETURN(const std::string_view body, in.GetString());
  if (in.remaining() != static_cast<int64_t>(sizeof(uint32_t)))
    return absl::DataLossError("the state has bytes beyond its end");
  return body;
}

}  // namespace sheaf
