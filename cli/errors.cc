#include "cli/errors.h"

#include <fmt/format.h>

#include <ostream>

#include "absl/strings/cord.h"
#include "cli/table.h"

namespace sheaf {
namespace {

constexpr char kHintUrl[] = "sheaf.v1/hint";

// gRPC wraps the reason of a failed connection in one sentence per layer; the innermost is the one to act on.
std::string Reason(const std::string& message) {
  if (message.find("failed to connect to all addresses") == std::string::npos) return message;
  const size_t colon = message.rfind(": ");
  return colon == std::string::npos ? message : message.substr(colon + 2);
}

std::string ErrorText(const absl::Status& status, const ErrorContext& context) {
  std::string message(status.message().data(), status.message().size());
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return fmt::format("cannot reach a Sheaf server at {}: {}", context.server, Reason(message));
    case absl::StatusCode::kDeadlineExceeded:
      if (message.empty() || message == "Deadline Exceeded") {
        return fmt::format("the server at {} did not answer in time", context.server);
      }
      return message;
    default:
      return message.empty() ? absl::StatusCodeToString(status.code()) : message;
  }
}

std::string DefaultHint(const absl::Status& status, const ErrorContext& context) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return "start one with 'sheafd', or name another with --server HOST:PORT or SHEAF_SERVER";
    case absl::StatusCode::kDeadlineExceeded:
      return "allow more with --timeout, for example --timeout 5m";
    case absl::StatusCode::kUnimplemented:
      return "the server is older than this sheaf; 'sheaf server info' shows its version";
    case absl::StatusCode::kPermissionDenied:
      return "ask the server's operator for a token that may do this";
    case absl::StatusCode::kUnauthenticated:
      return "give your token with --token-file FILE or SHEAF_TOKEN_FILE; the server's operator makes one with 'sheaf "
             "token create'";
    case absl::StatusCode::kInvalidArgument:
      return fmt::format("'sheaf {}--help' shows what it takes", context.command.empty() ? "" : context.command + " ");
    case absl::StatusCode::kNotFound:
      if (context.noun == "round" || context.noun == "task" || context.noun == "worker" || context.noun == "token") {
        return fmt::format("'sheaf {} list' shows those there are", context.noun);
      }
      return "check the name";
    case absl::StatusCode::kFailedPrecondition:
      if (context.noun == "round") return "'sheaf round describe ROUND' shows its state";
      if (context.noun == "task") return "'sheaf task describe TASK' shows its state";
      return "'sheaf server info' shows the server's state";
    default:
      return "'sheaf server info' shows the server's state; its log says more";
  }
}

}  // namespace

absl::Status WithHint(absl::Status status, std::string_view hint) {
  if (!status.ok() && HintOf(status).empty()) status.SetPayload(kHintUrl, absl::Cord(std::string(hint)));
  return status;
}

std::string HintOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kHintUrl);
  return payload.has_value() ? std::string(*payload) : "";
}

void PrintError(std::ostream& err, const absl::Status& status, const ErrorContext& context, bool colors) {
  std::string hint = HintOf(status);
  if (hint.empty()) hint = DefaultHint(status, context);
  err << Paint("error:", Color::kRed, colors) << " " << Printable(ErrorText(status, context)) << "\n"
      << Paint("hint:", Color::kYellow, colors) << " " << hint << "\n";
}

}  // namespace sheaf
