#include <fmt/format.h>

#include <string>

#include "cli/commands.h"
#include "cli/commands/paging.h"
#include "cli/commands/silent_server.h"
#include "proto/methods.h"
#include "proto/time.h"

namespace sheaf {
namespace {

// "blue, red and more"; of a server that has them all, "all".
std::string PopulationsOf(const v1::Server& server) {
  if (server.populations().empty()) return server.is_owner() && server.num_shards() == 0 ? "all" : "-";
  return fmt::format("{}{}", fmt::join(server.populations(), ", "), server.has_more_populations() ? " and more" : "");
}

Cell StateOf(const v1::Server& server) {
  if (IsSilent(server)) return {"SILENT", Color::kRed};
  // On its way out of service; until there is another one it stays so.
  if (server.is_draining()) return {server.is_owner() ? "DRAINING" : "DRAINED", Color::kYellow};
  return server.is_owner() ? Cell("OWNER", Color::kGreen) : Cell("WAITING");
}

class ServerList final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Number("--limit", "N", "stop after this many; 0 shows all", {.min = 0}, &limit_);
    DeclarePageToken(arguments, &page_token_);
  }

  absl::Status Run(Session& session) override {
    v1::ListServersRequest request;
    request.set_page_token(page_token_);
    ASSIGN_OR_RETURN(
        const v1::ListServersResponse response,
        ListAll(session, kListServers, request, limit_, [](auto& page) { return page.mutable_servers(); }));
    if (session.json()) return session.PrintJson(response);
    Table table({{"SERVER"},
                 {"ADDRESS"},
                 {"VERSION"},
                 {"STATE"},
                 {"FOR", Align::kRight},
                 {"UP", Align::kRight},
                 {"HEARD OF", Align::kRight},
                 {"POPULATIONS"}});
    for (const v1::Server& server : response.servers()) {
      const absl::Duration silent_for = FromProto(server.silent_for());
      const bool is_silent = IsSilent(server);
      table.AddRow(
          {server.name().empty() ? "-" : server.name(),
           server.address().empty() ? session.options().server : server.address(), server.version(), StateOf(server),
           is_silent           ? HumanDuration(silent_for)
           : server.is_owner() ? HumanDuration(FromProto(server.owner_for()))
                               : "-",
           HumanDuration(FromProto(server.up_for())), HumanDuration(silent_for) + " ago", PopulationsOf(server)});
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

std::unique_ptr<Command> MakeServerList() { return std::make_unique<ServerList>(); }

}  // namespace sheaf
