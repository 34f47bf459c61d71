#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/commands/round_waiting.h"
#include "cli/files.h"
#include "proto/methods.h"
#include "sdk/cpp/client/round_client.h"

namespace sheaf {
namespace {

class RoundOpen final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Positional("ROUND", "the round's id", &round_);
    arguments.Text("--broadcast", "FILE", "a .safetensors file for the workers", &broadcast_);
    arguments.Flag("--wait", "wait until the round ends", &wait_);
  }

  absl::Status Run(Session& session) override {
    std::string bytes;
    if (!broadcast_.empty()) {
      ASSIGN_OR_RETURN(bytes, ReadFile(broadcast_));
    }
    ASSIGN_OR_RETURN(Transport * transport, session.transport());
    v1::OpenRoundResponse response;
    ASSIGN_OR_RETURN(*response.mutable_round(), OpenRound(*transport, session.host().random, round_, bytes));
    if (wait_) {
      ASSIGN_OR_RETURN(const v1::Round ended, AwaitRound(session, round_, Progress::kShown));
      return ReportEnd(session, ended);
    }
    if (session.json()) return session.PrintJson(response);
    session.out() << fmt::format("round {} is open\n", response.round().id());
    return absl::OkStatus();
  }

 private:
  std::string round_;
  std::string broadcast_;
  bool wait_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeRoundOpen() { return std::make_unique<RoundOpen>(); }

}  // namespace sheaf
