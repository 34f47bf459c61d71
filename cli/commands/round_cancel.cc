#include <fmt/format.h>

#include "cli/commands.h"
#include "proto/methods.h"

namespace sheaf {
namespace {

class RoundCancel final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Positional("ROUND", "the round's id", &round_);
    arguments.Text("--reason", "TEXT", "kept with the round", &reason_);
  }

  absl::Status Run(Session& session) override {
    v1::CancelRoundRequest request;
    request.set_request_id(session.NewRequestId());
    request.set_round(round_);
    request.set_reason(reason_);
    ASSIGN_OR_RETURN(const v1::CancelRoundResponse response, session.Call(kCancelRound, request));
    if (session.json()) return session.PrintJson(response);
    session.out() << fmt::format("round {} is cancelled\n", response.round().id());
    return absl::OkStatus();
  }

 private:
  std::string round_;
  std::string reason_;
};

}  // namespace

std::unique_ptr<Command> MakeRoundCancel() { return std::make_unique<RoundCancel>(); }

}  // namespace sheaf
