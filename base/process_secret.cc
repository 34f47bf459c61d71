#include "base/process_secret.h"

#include <sys/auxv.h>

#include <string>

#include "base/checksum.h"

namespace sheaf {
namespace {

std::array<uint64_t, 4> MakeSecret() {
  // The kernel gives each process 16 random bytes. The C library makes the keys of its own defences from them: what is
  // used here must not lead back to those.
  constexpr size_t kRandomBytes = 16;
  const auto* const random = reinterpret_cast<const char*>(getauxval(AT_RANDOM));  // NOLINT(performance-no-int-to-ptr)
  const std::string digest = Sha256Hex(std::string("sheaf process secret") +
                                       (random == nullptr ? std::string() : std::string(random, kRandomBytes)) +
                                       // Where there are none, the place of the program in memory is left.
                                       std::to_string(reinterpret_cast<uintptr_t>(&MakeSecret)));
  std::array<uint64_t, 4> secret = {};
  for (size_t i = 0; i < secret.size(); ++i) secret[i] = std::stoull(digest.substr(16 * i, 16), nullptr, 16);
  return secret;
}

}  // namespace

const std::array<uint64_t, 4>& ProcessSecret() {
  static const std::array<uint64_t, 4> secret = MakeSecret();
  return secret;
}

}  // namespace sheaf
