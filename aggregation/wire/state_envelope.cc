#include "aggregation/wire/state_envelope.h"

#include <fmt/format.h>

#include "aggregation/wire/state_bytes.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr uint32_t kVersion = 2;

}  // namespace

std::string WrapState(uint32_t magic, std::string_view signature, std::string_view body) {
  StateWriter out;
  const StateEnvelope envelope{.magic = magic, .signature = signature, .body_bytes = static_cast<int64_t>(body.size())};
  WriteWrapped(
      envelope, [body](StateWriter& to) { to.PutBytes(body); }, out);
  return std::move(out).Take();
}

void WriteWrapped(const StateEnvelope& envelope, const std::function<void(StateWriter& out)>& write, StateWriter& out) {
  uint32_t checksum = 0;
  const ByteSink check = [&](std::string_view piece) {
    checksum = Crc32(piece, checksum);
    out.PutBytes(piece);
    return out.status();
  };
  StateWriter checked(check);
  checked.Put(envelope.magic);
  checked.Put(kVersion);
  checked.PutString(envelope.signature);
  checked.Put(envelope.body_bytes);
  const int64_t begin = checked.size();
  write(checked);
  const int64_t written = checked.size() - begin;
  // After an error, which `out` keeps, not everything gets here.
  const bool is_complete = checked.Finish().ok();
  SHEAF_CHECK(!is_complete || written == envelope.body_bytes, "a state of {} bytes was announced with {}", written,
              envelope.body_bytes);
  out.Put(checksum);
}

int64_t WrappedBytes(const StateEnvelope& envelope) {
  constexpr int64_t kMagicAndVersion = 2 * sizeof(uint32_t);
  constexpr int64_t kLengths = 2 * sizeof(int64_t);
  constexpr int64_t kChecksum = sizeof(uint32_t);
  return kMagicAndVersion + kLengths + static_cast<int64_t>(envelope.signature.size()) + envelope.body_bytes +
         kChecksum;
}

int64_t MeasureState(const std::function<void(StateWriter& out)>& write) {
  const ByteSink nowhere = [](std::string_view) { return absl::OkStatus(); };
  StateWriter out(nowhere, /*piece_bytes=*/0);
  write(out);
  return out.size();
}

absl::StatusOr<std::string_view> UnwrapState(uint32_t magic, std::string_view signature, std::string_view state) {
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
