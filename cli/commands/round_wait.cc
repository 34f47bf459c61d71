#include "cli/commands.h"
#include "cli/commands/round_waiting.h"

namespace sheaf {
namespace {

class RoundWait final : public Command {
 public:
  void Declare(Arguments& arguments) override { arguments.Positional("ROUND", "the round's id", &round_); }

  absl::Status Run(Session& session) override {
    ASSIGN_OR_RETURN(const v1::Round round, AwaitRound(session, round_, Progress::kSilent));
    return ReportEnd(session, round);
  }

 private:
  std::string round_;
};

}  // namespace

std::unique_ptr<Command> MakeRoundWait() { return std::make_unique<RoundWait>(); }

}  // namespace sheaf
