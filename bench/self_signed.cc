#include "bench/self_signed.h"

#include <fmt/format.h>

#include <cstdlib>

namespace sheaf::bench {

absl::StatusOr<SelfSigned> MakeSelfSigned(const Setup& setup) {
  SelfSigned made = {.certificate = setup.directory + "/bench.pem", .key = setup.directory + "/bench.key"};
  const std::string command = fmt::format(
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=bench -addext "
      "subjectAltName=IP:127.0.0.1 -keyout '{}' -out '{}' 2>/dev/null",
      made.key, made.certificate);
  if (std::system(command.c_str()) != 0) return absl::UnavailableError("this failed: " + command);
  return made;
}

}  // namespace sheaf::bench
