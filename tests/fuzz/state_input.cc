#include "tests/fuzz/state_input.h"

#include <cstring>

#include "aggregation/wire/state_bytes.h"
#include "aggregation/wire/state_envelope.h"
#include "base/check.h"

namespace sheaf::fuzz {
namespace {

constexpr size_t kHeaderBytes = 2 + 2 * sizeof(int64_t);

}  // namespace

std::optional<StateInput> ReadStateInput(std::string_view input) {
  if (input.size() < kHeaderBytes) return std::nullopt;
  StateInput state = {.spec = static_cast<uint8_t>(input[0]),
                      .kind = static_cast<StateInput::Kind>(static_cast<uint8_t>(input[1]) % StateInput::kNumKinds)};
  std::memcpy(&state.num_clients, &input[2], sizeof state.num_clients);
  std::memcpy(&state.num_contributions, &input[2 + sizeof state.num_clients], sizeof state.num_contributions);
  state.bytes = input.substr(kHeaderBytes);
  return state;
}

std::string WriteStateInput(const StateInput& state) {
  std::string input = {static_cast<char>(state.spec), static_cast<char>(state.kind)};
  input.append(reinterpret_cast<const char*>(&state.num_clients), sizeof state.num_clients);
  input.append(reinterpret_cast<const char*>(&state.num_contributions), sizeof state.num_contributions);
  return input.append(state.bytes);
}

Envelope OpenEnvelope(std::string_view state) {
  StateReader in(state);
  Envelope envelope;
  envelope.magic = in.Get<uint32_t>().value();
  SHEAF_CHECK(in.Get<uint32_t>().ok(), "the version is missing");
  envelope.signature = std::string(in.GetString().value());
  envelope.body = std::string(in.GetString().value());
  return envelope;
}

std::string SealLike(std::string_view example, std::string_view body) {
  const Envelope envelope = OpenEnvelope(example);
  return WrapState(envelope.magic, envelope.signature, body);
}

}  // namespace sheaf::fuzz
