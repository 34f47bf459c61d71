#include <fmt/format.h>

#include <map>

#include "absl/strings/str_join.h"
#include "cli/commands.h"
#include "cli/terminal/field_list.h"
#include "proto/methods.h"
#include "proto/time.h"

namespace sheaf {
namespace {

class ServerInfo final : public Command {
 public:
  absl::Status Run(Session& session) override {
    ASSIGN_OR_RETURN(const v1::GetServerInfoResponse info, session.Call(kGetServerInfo, v1::GetServerInfoRequest()));
    if (session.json()) return session.PrintJson(info);
    FieldList fields;
    fields.Add("Server", {session.options().server, Color::kBold});
    fields.Add("State", info.is_draining() ? Cell("DRAINING", Color::kYellow) : Cell("SERVING", Color::kGreen));
    fields.Add("Version", info.version());
    fields.Add("Protocol", fmt::format("{} to {}", info.protocol_version_min(), info.protocol_version_max()));
    fields.Add("Up for", HumanDuration(session.now() - FromProto(info.start_time())));
    fields.Add("Store", fmt::format("{}, schema {}", info.store(), info.schema_version()));
    fields.AddIf("Data directory", info.data_directory());
    fields.Add("Live rounds", HumanCount(info.num_live_rounds()));
    fields.Add("Workers", HumanCount(info.num_workers()));
    fields.Add("Refused calls", HumanCount(info.num_refused_calls()));
    AddCertificate(session, info, fields);
    fields.Add("Operators", absl::StrJoin(info.operators(), ", "));
    session.out() << fields.Render(session.table_style());
    PrintLimits(session, info);
    return absl::OkStatus();
  }

 private:
  static void AddCertificate(Session& session, const v1::GetServerInfoResponse& info, FieldList& fields) {
    if (!info.has_certificate_expire_time()) return;
    const absl::Time end = FromProto(info.certificate_expire_time());
    const absl::Duration left = end - session.now();
    const std::string day = absl::FormatTime("%Y-%m-%d %H:%M UTC", end, absl::UTCTimeZone());
    const bool is_over = left <= absl::ZeroDuration();
    // As long before its end as the server warns.
    const bool is_near = left <= absl::Hours(14 * 24);
    const std::string text =
        is_over ? fmt::format("expired on {}", day) : fmt::format("valid until {}, for {}", day, HumanDuration(left));
    fields.Add("Certificate", is_over ? Cell(text, Color::kRed) : is_near ? Cell(text, Color::kYellow) : Cell(text));
    if (!info.certificate_problem().empty()) {
      fields.Add("Renewed one", Cell("is not shown: " + info.certificate_problem(), Color::kRed));
    }
  }
  static void PrintLimits(Session& session, const v1::GetServerInfoResponse& info) {
    if (info.limits().empty()) return;
    Table table({{"LIMIT"}, {"VALUE", Align::kRight}});
    for (const auto& [name, value] : std::map<std::string, int64_t>(info.limits().begin(), info.limits().end())) {
      table.AddRow({name, HumanCount(value)});
    }
    TableStyle style = session.table_style();
    style.indent = 2;
    style.headers = false;
    session.out() << "\nLimits\n" << table.Render(style);
  }
};

}  // namespace

std::unique_ptr<Command> MakeServerInfo() { return std::make_unique<ServerInfo>(); }

}  // namespace sheaf
