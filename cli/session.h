// Session: what a command runs against: the global options, the streams, and the server.
//
//   v1::GetRoundRequest request;
//   request.set_round(round_);
//   ASSIGN_OR_RETURN(v1::GetRoundResponse response, session.Call(kGetRound, request));
//   if (session.json()) return session.PrintJson(response);
//
// Not thread-safe. The host must outlive it.
#pragma once

#include <google/protobuf/message.h>

#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "cli/host.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/human_text.h"
#include "cli/terminal/table.h"
#include "sdk/cpp/client/channel_options.h"
#include "sdk/cpp/client/transport.h"

namespace sheaf {

// Options of every command, after flags, environment and defaults were weighed.
struct GlobalOptions {
  std::string server = "127.0.0.1:7433";
  ChannelSecurity security;
  std::string output = "table";
  std::string population = "default";
  std::optional<absl::Duration> timeout;
  std::string color = "auto";
  bool no_headers = false;
};

class Session {
 public:
  Session(Host& host, GlobalOptions options);

  const GlobalOptions& options() const { return options_; }
  Host& host() { return host_; }
  std::ostream& out() { return host_.out; }
  std::ostream& err() { return host_.err; }
  absl::Time now() const { return host_.clock.Now(); }
  bool json() const { return options_.output == "json"; }
  // Whether to colour what goes to stdout, and to stderr.
  bool out_colors() const { return out_colors_; }
  bool err_colors() const { return err_colors_; }
  TableStyle table_style() const { return {.headers = !options_.no_headers, .colors = out_colors_}; }

  // The server of --server. The session owns it.
  absl::StatusOr<Transport*> transport();
  // The same server, with calls repeated while it restarts. For long waits, after a first call went through.
  absl::StatusOr<Transport*> patient_transport();
  // An idempotency key nobody else has.
  std::string NewRequestId() { return host_.random.Token(16); }
  // Longest time a plain call may take.
  absl::Duration call_timeout() const { return options_.timeout.value_or(absl::Seconds(30)); }

  // One call, with the time limit of --timeout; again, if the connection was closed in the middle. UNAVAILABLE if the
  // server cannot be reached; DEADLINE_EXCEEDED if it does not answer in time; else the server's own status.
  template <typename M>
  absl::StatusOr<typename M::Response> Call(const M& method, const typename M::Request& request) {
    return Call(method, request, call_timeout());
  }
  template <typename M>
  absl::StatusOr<typename M::Response> Call(const M& method, const typename M::Request& request,
                                            absl::Duration timeout) {
    ASSIGN_OR_RETURN(Transport * server, transport());
    auto response = BlockingCall(*server, method, request, {.timeout = timeout});
    return WasHungUpOn(response.status()) ? BlockingCall(*server, method, request, {.timeout = timeout}) : response;
  }

  // Protobuf's own JSON mapping of `message`, on stdout.
  absl::Status PrintJson(const google::protobuf::Message& message);
  void PrintTable(const Table& table) { out() << table.Render(table_style()); }

 private:
  Host& host_;
  GlobalOptions options_;
  bool out_colors_;
  bool err_colors_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Transport> patient_transport_;
};

}  // namespace sheaf
