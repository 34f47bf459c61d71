#include "base/version.h"

#include <fmt/format.h>

#include "cli/commands.h"

namespace sheaf {
namespace {

class Version final : public Command {
 public:
  absl::Status Run(Session& session) override {
    if (session.json()) {
      session.out() << fmt::format(R"({{"version":"{}","protocolVersionMin":{},"protocolVersionMax":{}}})", kVersion,
                                   kProtocolVersionMin, kProtocolVersionMax)
                    << "\n";
    } else {
      session.out() << VersionLine("sheaf");
    }
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<Command> MakeVersion() { return std::make_unique<Version>(); }

}  // namespace sheaf
