// ParseInvocation: what sheafd was told to do, by flag, environment and file (settings/settings.h).
//
//   ASSIGN_OR_RETURN(const Invocation invocation, ParseInvocation({"--listen", "127.0.0.1:0"}, ProcessEnvironment()));
//   if (!invocation.output.empty()) fmt::print("{}", invocation.output);   // --help, --version or --print-config.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "server/core/limits/limits.h"
#include "settings/settings.h"
#include "tls/certificates.h"

namespace sheaf {

struct Config {
  std::string listen;
  // Of HTTP/1.1; empty: none.
  std::string http;
  std::vector<std::string> http_origins;
  // Empty: tabs are given nothing to run.
  std::string join;
  std::string data_dir;
  // "sqlite", "memory", or a connection string of PostgreSQL, without a password.
  std::string store;
  // Empty: none.
  std::string port_file;
  std::string http_port_file;
  LogLevel log_level = LogLevel::kInfo;
  bool insecure = false;
  CertificateFiles tls;
  // No other machine can reach any of the addresses.
  bool is_loopback = true;
  absl::Duration stop_grace;
  // Of a store that is a database.
  absl::Duration takeover_after;
  // HOST:PORT, for other servers of the database.
  std::string peer_listen;
  Limits limits;

  bool is_in_postgres() const { return store != "sqlite" && store != "memory"; }
};

struct Invocation {
  Config config;
  // Make a token, print it and end well; no server may run on the store.
  bool create_operator_token = false;
  // If not empty, print this and end well.
  std::string output;
};

// Every knob, one row each. The values go to `invocation`, which must outlive it.
Settings SettingsOf(Invocation& invocation);

// `arguments` without the program's name. INVALID_ARGUMENT, naming the setting and where it came from, if anything is
// unknown or makes no sense.
absl::StatusOr<Invocation> ParseInvocation(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace sheaf
