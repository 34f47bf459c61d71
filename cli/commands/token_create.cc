#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/files.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/token_text.h"
#include "proto/methods.h"
#include "proto/time.h"

namespace sheaf {
namespace {

class TokenCreate final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Positional("NAME", "the holder's name; tokens of one name are one identity", &name_);
    arguments.Choices("--role", "ROLE", "what it may do", RoleNames(), &roles_).is_required = true;
    arguments.Texts("--for", "POPULATION", "only in this population; may be repeated [everywhere]", &populations_);
    arguments.Duration("--expires", "valid for this long, for example 720h [until it is revoked]", &lifetime_);
    arguments.Text("--certificate", "CN", "for a client that shows a certificate of this name instead of a secret",
                   &certificate_);
    arguments.Text("--to", "FILE",
                   "write the secret to this new file, which only its owner can read, instead of printing it", &file_);
  }

  absl::Status Run(Session& session) override {
    if (!file_.empty() && FileExists(file_)) return ExistsAlready(file_);
    v1::CreateTokenRequest request;
    request.set_request_id(session.NewRequestId());
    request.set_name(name_);
    for (const std::string& role : roles_) request.add_roles(ParseRole(role));
    for (const std::string& population : populations_) request.add_populations(population);
    if (lifetime_.has_value()) *request.mutable_lifetime() = ToProto(*lifetime_);
    request.set_certificate(certificate_);
    ASSIGN_OR_RETURN(v1::CreateTokenResponse response, session.Call(kCreateToken, request));
    if (!file_.empty()) {
      RETURN_IF_ERROR(WriteSecretFile(file_, response.secret() + "\n"));
      response.clear_secret();
    }
    if (session.json()) return session.PrintJson(response);
    const v1::Token& token = response.token();
    // The secret alone on stdout, so that it can be sent to a file.
    session.err() << fmt::format("token {} of {}: {}, {}; {}\n", token.id(), token.name(), RolesOf(token),
                                 PopulationsOf(token),
                                 !certificate_.empty() ? "for the certificate " + certificate_
                                 : file_.empty()       ? "its secret is shown only now"
                                                       : "its secret is in " + file_);
    if (!response.secret().empty()) session.out() << response.secret() << "\n";
    return absl::OkStatus();
  }

 private:
  std::string name_;
  std::vector<std::string> roles_;
  std::vector<std::string> populations_;
  std::optional<absl::Duration> lifetime_;
  std::string certificate_;
  std::string file_;
};

}  // namespace

std::unique_ptr<Command> MakeTokenCreate() { return std::make_unique<TokenCreate>(); }

}  // namespace sheaf
