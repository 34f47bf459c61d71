// The binary `sheaf`: the real machine behind a Host.
#include <malloc.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "cli/command_line.h"
#include "sdk/cpp/client/grpc_log.h"
#include "sdk/cpp/client/grpc_transport.h"
#include "sdk/cpp/client/open_transport.h"

namespace {

int TerminalWidth() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

std::string BinaryDirectory() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : self.parent_path().string();
}

std::optional<std::string> Environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  // A reader that has seen enough (`| head`) ends us quietly, as it ends other tools; but see InterruptGuard.
  std::signal(SIGPIPE, SIG_DFL);
  // `demo` sends models. Megabyte buffers come and go with every chunk: keep them.
  mallopt(M_MMAP_THRESHOLD, 64 << 20);
  mallopt(M_TRIM_THRESHOLD, 128 << 20);
  sheaf::ConfigureLog("sheaf", sheaf::LogLevel::kWarning);
  if (!Environment("GRPC_VERBOSITY").has_value()) sheaf::RouteGrpcLog();
  sheaf::SystemClock clock;
  sheaf::SystemRandom random;
  sheaf::GrpcTimer timer;
  sheaf::Host host{
      .in = std::cin,
      .out = std::cout,
      .err = std::cerr,
      .out_is_terminal = ::isatty(STDOUT_FILENO) == 1,
      .err_is_terminal = ::isatty(STDERR_FILENO) == 1,
      .terminal_width = TerminalWidth(),
      .clock = clock,
      .random = random,
      .pause =
          [](absl::Duration duration) { ::poll(nullptr, 0, static_cast<int>(absl::ToInt64Milliseconds(duration))); },
      .environment = Environment,
      .connect = [](const std::string& address,
                    const sheaf::ChannelOptions& options) -> absl::StatusOr<std::unique_ptr<sheaf::Transport>> {
        if (absl::Status status = sheaf::CheckChannelSecurity(address, options.security); !status.ok()) return status;
        return sheaf::OpenTransport(address, options);
      },
      .timer = timer,
      .program = argc > 0 ? argv[0] : "sheaf",
      .binary_directory = BinaryDirectory(),
  };
  return sheaf::RunCommandLine({argv + 1, argv + argc}, host);
}
