#include "cli/commands.h"
#include "proto/methods.h"

namespace sheaf {
namespace {

class RoundExplain final : public Command {
 public:
  void Declare(Arguments& arguments) override { arguments.Positional("ROUND", "the round's id", &round_); }

  absl::Status Run(Session& session) override {
    v1::ExplainRoundRequest request;
    request.set_round(round_);
    ASSIGN_OR_RETURN(const v1::ExplainRoundResponse response, session.Call(kExplainRound, request));
    if (session.json()) return session.PrintJson(response);
    session.out() << Paint(Printable(response.summary()), Color::kBold, session.out_colors()) << "\n";
    for (const std::string& reason : response.reasons()) session.out() << "  - " << Printable(reason) << "\n";
    for (const std::string& hint : response.hints()) {
      session.out() << Paint("try:", Color::kYellow, session.out_colors()) << " " << Printable(hint) << "\n";
    }
    return absl::OkStatus();
  }

 private:
  std::string round_;
};

}  // namespace

std::unique_ptr<Command> MakeRoundExplain() { return std::make_unique<RoundExplain>(); }

}  // namespace sheaf
