#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.h"
#include "cli/commands/paging.h"
#include "cli/commands/silent_server.h"
#include "proto/methods.h"

namespace sheaf {
namespace {

class ServerDrain final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Positional("SERVER", "the server's name, as 'sheaf server list' shows it", &server_);
    arguments.Flag("--undo", "take it back into service", &undo_);
  }

  absl::Status Run(Session& session) override {
    v1::DrainServerRequest request;
    request.set_request_id(session.NewRequestId());
    request.set_server(server_);
    request.set_undo(undo_);
    ASSIGN_OR_RETURN(const v1::DrainServerResponse response, session.Call(kDrainServer, request));
    if (session.json()) return session.PrintJson(response);
    session.out() << Sentence(response.server()) << "\n";
    return undo_ ? absl::OkStatus() : NoteIfAlone(session);
  }

 private:
  std::string Sentence(const v1::Server& server) const {
    if (undo_) return fmt::format("server {} is back in service", server.name());
    return fmt::format("server {} {}, and takes nothing more until 'sheaf server drain --undo {}'", server.name(),
                       server.is_owner() ? "gives what it owns to the others" : "owns nothing", server.name());
  }

  absl::Status NoteIfAlone(Session& session) const {
    ASSIGN_OR_RETURN(const v1::ListServersResponse listed, ListAll(session, kListServers, v1::ListServersRequest(), 0,
                                                                   [](auto& page) { return page.mutable_servers(); }));
    const bool has_other = std::any_of(listed.servers().begin(), listed.servers().end(), [](const v1::Server& other) {
      return !other.is_draining() && !IsSilent(other);
    });
    if (!has_other) {
      session.err() << fmt::format("note: no other server is in service: {} goes on until there is one\n", server_);
    }
    return absl::OkStatus();
  }

  std::string server_;
  bool undo_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeServerDrain() { return std::make_unique<ServerDrain>(); }

}  // namespace sheaf
