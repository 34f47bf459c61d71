// Host: the machine as a command sees it: streams, terminal, environment, time, chance, and the way to a server.
// main.cc builds the real one; tests build theirs and so drive whole commands without a process.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/random.h"
#include "sdk/cpp/client/channel_options.h"
#include "sdk/cpp/client/retrying_transport.h"
#include "sdk/cpp/client/transport.h"

namespace sheaf {

struct Host {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  // Columns of the terminal.
  int terminal_width = 80;
  const Clock& clock;
  Random& random;
  // Lets this much time pass.
  std::function<void(absl::Duration)> pause;
  // A variable's value, unless it is unset.
  std::function<std::optional<std::string>(const std::string& name)> environment;
  // A transport to HOST:PORT or a URL; the codes of CheckChannelSecurity. Connecting itself happens at the first call.
  std::function<absl::StatusOr<std::unique_ptr<Transport>>(const std::string& address, const ChannelOptions& options)>
      connect;
  // For calls that outlive a server's restart.
  Timer& timer;
  // How this program was called, for commands to type next.
  std::string program = "sheaf";
  // Where this executable lies, and with it sheafd and sheaf-worker.
  std::string binary_directory;
};

}  // namespace sheaf
