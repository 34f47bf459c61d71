#include <fmt/format.h>

#include "cli/commands.h"
#include "proto/methods.h"

namespace sheaf {
namespace {

class TokenRevoke final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Positional("TOKEN", "the token's id, as `sheaf token list` shows it", &token_);
  }

  absl::Status Run(Session& session) override {
    v1::RevokeTokenRequest request;
    request.set_request_id(session.NewRequestId());
    request.set_token(token_);
    ASSIGN_OR_RETURN(const v1::RevokeTokenResponse response, session.Call(kRevokeToken, request));
    if (session.json()) return session.PrintJson(response);
    session.out() << fmt::format("token {} of {} is revoked\n", response.token().id(), response.token().name());
    return absl::OkStatus();
  }

 private:
  std::string token_;
};

}  // namespace

std::unique_ptr<Command> MakeTokenRevoke() { return std::make_unique<TokenRevoke>(); }

}  // namespace sheaf
