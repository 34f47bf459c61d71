// Credentials: what a caller shows of itself. Refers to what the transport has.
//
//   const Credentials shown = {.authorization = "Bearer sheaf_..."};
//   ASSIGN_OR_RETURN(IdentityPtr caller, pipeline.Identify([&] { return shown; }));
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sheaf {

struct Credentials {
  // The header `authorization`; empty: none.
  std::string_view authorization;
  // Of the certificate that was checked when the connection was made; none without one.
  std::vector<std::string> certificate_names;
};

}  // namespace sheaf
