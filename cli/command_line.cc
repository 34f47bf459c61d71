#include "cli/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "base/version.h"
#include "cli/exit_codes.h"
#include "cli/help_text.h"
#include "cli/parser.h"
#include "cli/terminal/errors.h"

namespace sheaf {
namespace {

absl::Status ApplyEnvironment(const Arguments& global, const std::vector<std::string>& given, const Host& host) {
  for (const Argument& argument : global.all()) {
    if (argument.environment.empty()) continue;
    if (std::find(given.begin(), given.end(), argument.names) != given.end()) continue;
    const std::optional<std::string> value = host.environment(argument.environment);
    if (!value.has_value() || value->empty()) continue;
    const absl::Status set = argument.set(*value);
    if (!set.ok()) {
      return absl::InvalidArgumentError(fmt::format("{}: {}", argument.environment, std::string(set.message())));
    }
  }
  return absl::OkStatus();
}

std::string HelpFor(const ParsedLine& line, const Arguments& global) {
  if (line.row != nullptr) return CommandHelp(*line.row, line.arguments, global);
  return line.noun.empty() ? OverviewHelp() : NounHelp(line.noun);
}

// Everything that is not running a command: help, version, and words that name none.
absl::Status RunWithoutCommand(const ParsedLine& line, const Arguments& global, Host& host) {
  if (line.wants_version) {
    host.out << VersionLine("sheaf");
    return absl::OkStatus();
  }
  if (line.wants_help || line.noun.empty()) {
    host.out << HelpFor(line, global);
    return absl::OkStatus();
  }
  host.err << NounHelp(line.noun) << "\n";
  return WithHint(absl::InvalidArgumentError(fmt::format("'sheaf {}' needs a verb", line.noun)),
                  fmt::format("for example 'sheaf {} --help'", line.noun));
}

}  // namespace

void DeclareGlobalOptions(Arguments& arguments, GlobalOptions* options) {
  arguments
      .Text("-s,--server", "ADDRESS", "the server to talk to: HOST:PORT, or the URL of its HTTP/1.1", &options->server)
      .environment = "SHEAF_SERVER";
  ChannelSecurity& security = options->security;
  arguments
      .Text("--tls-ca", "FILE",
            "the authorities of the server's certificate, or 'system'; turns TLS on, as https:// does",
            &security.tls_ca)
      .environment = "SHEAF_TLS_CA";
  arguments.Text("--tls-cert", "FILE", "a certificate of yours, if the server asks for one", &security.tls_cert)
      .environment = "SHEAF_TLS_CERT";
  arguments.Text("--tls-key", "FILE", "the key of that certificate", &security.tls_key).environment = "SHEAF_TLS_KEY";
  arguments.Text("--token-file", "FILE", "the token that says who you are", &security.token_file).environment =
      "SHEAF_TOKEN_FILE";
  arguments.Flag("--insecure", "send the token to another machine without TLS", &security.is_insecure).environment =
      "SHEAF_INSECURE";
  arguments.Choice("-o,--output", "a table for people, or JSON for programs", {"table", "json"}, &options->output);
  arguments.Text("--population", "NAME", "the namespace of rounds and workers", &options->population).environment =
      "SHEAF_POPULATION";
  arguments.Duration("--timeout", "give up after this long, for example 5m [30s per call]", &options->timeout);
  arguments.Choice("--color", "colours", {"auto", "always", "never"}, &options->color);
  arguments.Flag("--no-headers", "leave the header line out of tables", &options->no_headers);
}

int RunCommandLine(const std::vector<std::string>& args, Host& host) {
  GlobalOptions options;
  Arguments global;
  DeclareGlobalOptions(global, &options);
  ParsedLine line = ParseLine(args, global);
  absl::Status status = line.status;
  if (status.ok()) status = ApplyEnvironment(global, line.given, host);

  ErrorContext context{.server = options.server,
                       .uses_tls = UsesTls(options.server, options.security),
                       .noun = line.noun,
                       .command = ""};
  if (line.row != nullptr) context.command = CommandName(*line.row);
  Session session(host, options);
  if (status.ok()) {
    const bool runs = line.row != nullptr && !line.wants_help && !line.wants_version;
    status = runs ? line.command->Run(session) : RunWithoutCommand(line, global, host);
  }
  host.out.flush();
  if (status.ok() && !host.out.good()) {
    status = WithHint(absl::DataLossError("cannot write to standard output"), "is the disk that it goes to full?");
  }
  if (!status.ok()) PrintError(host.err, status, context, session.err_colors());
  host.err.flush();
  return static_cast<int>(ToExitCode(status.code()));
}

}  // namespace sheaf
