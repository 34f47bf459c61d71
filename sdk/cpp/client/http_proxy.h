// HttpProxy: the proxy that stands between us and a server, as the environment says it to every program.
//
//   const HttpProxy proxy = ProxyFor(address, Environment);   // Of HTTPS_PROXY=http://user:secret@proxy:3128
//   proxy.url;                                                // as it is there.
//   proxy.name();                                             // "http://proxy:3128", for the eyes of people.
//
// A function of values. docs/guides/behind-a-proxy.md says the rules.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "sdk/cpp/client/server_address.h"

namespace sheaf {

struct HttpProxy {
  bool is_used() const { return !url.empty(); }
  // Without the user and the password.
  std::string name() const;
  // HOST:PORT; what is no URL is returned as it is.
  std::string target() const;

  // Empty: none.
  std::string url;
  // Which variable named it.
  std::string variable;
};

// `environment`: a variable's value, unless it is unset.
HttpProxy ProxyFor(const ServerAddress& server,
                   const std::function<std::optional<std::string>(const std::string& name)>& environment);

// HOST:PORT of whoever is connected to first: the proxy, or else the server. Reads this process's environment.
std::string FirstHop(const ServerAddress& server);
// The same proxy, of this process's environment.
HttpProxy ProxyFor(const ServerAddress& server);

}  // namespace sheaf
