#include "cli/session.h"

#include "base/status_macros.h"
#include "cli/json_output.h"
#include "cli/terminal/errors.h"
#include "sdk/cpp/client/retrying_transport.h"
#include "sdk/cpp/client/server_address.h"

namespace sheaf {
namespace {

constexpr char kFilesHint[] =
    "--tls-ca, --tls-cert, --tls-key and --token-file name files of this machine, as do SHEAF_TLS_CA and so on";

bool UseColors(const Host& host, const std::string& choice, bool is_terminal) {
  if (choice != "auto") return choice == "always";
  // https://no-color.org: set and not empty means no.
  if (!host.environment("NO_COLOR").value_or("").empty()) return false;
  return is_terminal && host.environment("TERM").value_or("") != "dumb";
}

}  // namespace

Session::Session(Host& host, GlobalOptions options)
    : host_(host),
      options_(std::move(options)),
      out_colors_(UseColors(host, options_.color, host.out_is_terminal)),
      err_colors_(UseColors(host, options_.color, host.err_is_terminal)) {}

absl::StatusOr<Transport*> Session::transport() {
  if (transport_ == nullptr) {
    RETURN_IF_ERROR(WithHint(ParseServerAddress(options_.server).status(), "correct --server, or SHEAF_SERVER"));
    absl::StatusOr<std::unique_ptr<Transport>> connected =
        host_.connect(options_.server, {.security = options_.security});
    // Nothing was called yet: it is about files of this machine.
    if (!connected.ok()) return WithHint(connected.status(), kFilesHint);
    transport_ = *std::move(connected);
  }
  return transport_.get();
}

absl::StatusOr<Transport*> Session::patient_transport() {
  if (patient_transport_ == nullptr) {
    ASSIGN_OR_RETURN(Transport * inner, transport());
    patient_transport_ =
        std::make_unique<RetryingTransport>(*inner, host_.timer, host_.clock, host_.random, RetryOptions());
  }
  return patient_transport_.get();
}

absl::Status Session::PrintJson(const google::protobuf::Message& message) {
  ASSIGN_OR_RETURN(std::string json, ToJson(message, JsonStyle::kIndented));
  out() << json << "\n";
  return absl::OkStatus();
}

}  // namespace sheaf
