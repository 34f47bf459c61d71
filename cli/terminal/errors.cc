#include "cli/terminal/errors.h"

#include <fmt/format.h>

#include <ostream>

#include "absl/strings/cord.h"
#include "cli/terminal/table.h"

namespace sheaf {
namespace {

constexpr char kHintUrl[] = "sheaf.v1/hint";

bool Says(std::string_view message, std::string_view words) { return message.find(words) != std::string_view::npos; }

// The client says first whom it cannot reach, and so do we. gRPC wraps the reason of a failed connection in one
// sentence per layer; the innermost is the one to act on.
std::string Reason(std::string message) {
  constexpr std::string_view kUnreachable = " cannot be reached: ";
  if (message.starts_with("the server at ") && Says(message, kUnreachable)) {
    message.erase(0, message.find(kUnreachable) + kUnreachable.size());
  }
  if (Says(message, "DNS resolution failed")) return "there is no host of this name";
  if (!Says(message, "failed to connect to all addresses")) return message;
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

// What to do when no connection came about, by what OpenSSL, gRPC or the kernel said of it.
bool SaysHungUp(std::string_view message) {
  return Says(message, "Socket closed") || Says(message, "Connection reset by peer");
}

std::string ConnectionHint(std::string_view message, const ErrorContext& context) {
  struct Row {
    std::string_view says;
    std::string_view hint;
  };
  static constexpr Row kRows[] = {
      {"its certificate is not to be believed", "'openssl s_client -connect HOST:PORT' shows it, and who signed it"},
      {"TLS failed (", "'openssl s_client -connect HOST:PORT' shows what the server speaks"},
      {"the proxy ", "docs/guides/behind-a-proxy.md; NO_PROXY names hosts that are reached without it"},
      {"does not speak HTTP/1.1", "a server listens for HTTP/1.1 where 'sheafd --http HOST:PORT' says"},
      {"hung up without an answer", "somebody listens there: check the port, and which of http:// and https:// it is"},
      {"the answer broke off", "something ended the connection: the server, or what stands before it; try again"},
      {"http1.x server", "that is a port of HTTP/1.1: write http://HOST:PORT, or give the port of gRPC"},
      {"missing selected ALPN", "that is a port of HTTP/1.1: write https://HOST:PORT, or give the port of gRPC"},
      {"certificate verify failed",
       "somebody answers there whose certificate none of --tls-ca's authorities signed: ask the operator for the right "
       "file"},
      {"Hostname Verification Check failed",
       "the certificate is for other names: use one of them in --server ('openssl s_client -connect HOST:PORT' shows "
       "them)"},
      {"wrong version number",
       "the server does not speak TLS: leave out --tls-ca and SHEAF_TLS_CA, or ask its operator"},
      {"certificate required", "the server wants a certificate of yours: --tls-cert FILE --tls-key FILE"},
      {"alert ", "TLS was refused: the server may want a certificate of yours (--tls-cert FILE --tls-key FILE)"},
      {"SSL", "TLS failed: 'openssl s_client -connect HOST:PORT' shows what the server speaks"},
      {"no host of this name", "check the name in --server or SHEAF_SERVER"},
      {"DNS resolution failed", "check the name in --server or SHEAF_SERVER"},
  };
  for (const Row& row : kRows) {
    if (Says(message, row.says)) return std::string(row.hint);
  }
  if (SaysHungUp(message) && !context.uses_tls) {
    return "somebody listens there and hangs up: a server that speaks TLS needs --tls-ca FILE or SHEAF_TLS_CA";
  }
  if (SaysHungUp(message)) {
    return "somebody listens there and hangs up: the server may want a certificate of yours (--tls-cert, --tls-key)";
  }
  return "start one with 'sheafd', or name another with --server HOST:PORT or SHEAF_SERVER";
}

std::string DefaultHint(const absl::Status& status, const ErrorContext& context) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return ConnectionHint({status.message().data(), status.message().size()}, context);
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

bool WasHungUpOn(const absl::Status& status) {
  const std::string_view message(status.message().data(), status.message().size());
  return absl::IsUnavailable(status) &&
         (SaysHungUp(message) || Says(message, "hung up without an answer") || Says(message, "the answer broke off"));
}

void PrintError(std::ostream& err, const absl::Status& status, const ErrorContext& context, bool colors) {
  std::string hint = HintOf(status);
  if (hint.empty()) hint = DefaultHint(status, context);
  err << Paint("error:", Color::kRed, colors) << " " << Printable(ErrorText(status, context)) << "\n"
      << Paint("hint:", Color::kYellow, colors) << " " << hint << "\n";
}

}  // namespace sheaf
