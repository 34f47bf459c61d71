// The inputs of the state target: what kind of state for which spec, and its bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sheaf::fuzz {

struct StateInput {
  enum Kind : uint8_t {
    // A checkpoint of a round, as it is.
    kCheckpoint,
    // The inside of its only output's state.
    kCheckpointInside,
    // A partial aggregate, as it is, and its inside.
    kPartial,
    kPartialInside,
    kNumKinds,
  };
  uint8_t spec = 0;
  Kind kind = kCheckpoint;
  int64_t num_clients = 0;
  int64_t num_contributions = 0;
  std::string_view bytes;
};

// Nothing if the input is too short.
std::optional<StateInput> ReadStateInput(std::string_view input);
std::string WriteStateInput(const StateInput& state);

// The envelope of a serialised state, opened without its checks.
struct Envelope {
  uint32_t magic = 0;
  std::string signature;
  std::string body;
};
Envelope OpenEnvelope(std::string_view state);

// `body` in an envelope like that of `example`.
std::string SealLike(std::string_view example, std::string_view body);

}  // namespace sheaf::fuzz
