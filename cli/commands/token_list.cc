#include "cli/commands.h"
#include "cli/commands/paging.h"
#include "cli/terminal/token_text.h"
#include "proto/methods.h"

namespace sheaf {
namespace {

class TokenList final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Number("--limit", "N", "stop after this many; 0 shows all", {.min = 0}, &limit_);
    DeclarePageToken(arguments, &page_token_);
  }

  absl::Status Run(Session& session) override {
    v1::ListTokensRequest request;
    request.set_page_token(page_token_);
    ASSIGN_OR_RETURN(v1::ListTokensResponse response,
                     ListAll(session, kListTokens, request, limit_, [](auto& page) { return page.mutable_tokens(); }));
    if (session.json()) return session.PrintJson(response);
    Table table(
        {{"TOKEN"}, {"NAME"}, {"ROLES"}, {"FOR"}, {"STATE"}, {"AGE", Align::kRight}, {"CREATOR"}, {"CERTIFICATE"}});
    for (const v1::Token& token : response.tokens()) {
      table.AddRow({token.id(), token.name(), RolesOf(token), PopulationsOf(token), StateOf(token, session.now()),
                    AgeOf(token.create_time(), session.now()), token.creator().empty() ? "-" : token.creator(),
                    token.certificate().empty() ? "-" : token.certificate()});
    }
    session.PrintTable(table);
    NoteIfCut(session, response, limit_);
    return absl::OkStatus();
  }

 private:
  int64_t limit_ = kListLimitDefault;
  std::string page_token_;
};

}  // namespace

std::unique_ptr<Command> MakeTokenList() { return std::make_unique<TokenList>(); }

}  // namespace sheaf
