// HttpServer: the server's methods on a TCP port by HTTP/1.1, for browsers, curl and whoever sits behind a proxy that
// passes nothing else. Calls are unary calls of the Connect protocol (connect_protocol.h).
//
//   ASSIGN_OR_RETURN(auto server, HttpServer::Start(pipeline, clock, {.listen = "127.0.0.1:0"}));
//   LogInfo("HTTP on {}", server->address());          // "127.0.0.1:41234"
//   server->SetServing(false);                         // /readyz says so.
//   pipeline.WaitUntilIdle(absl::Seconds(1));          // Whoever is answered has been answered.
//   server->Shutdown(absl::Seconds(1));
//
// Every call is the pipeline's (server/calls/call_pipeline.h). A few threads wait for all connections; one that is
// parked costs none. What else the port answers is a row of the table of routes. Owns its threads and connections,
// refers to the pipeline and the clock. Thread-safe, but for destruction.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "server/calls/call_pipeline.h"
#include "server/http/routes.h"
#include "server/net/certificate_watch.h"
#include "server/net/listener.h"

namespace sheaf {

class HttpServer {
 public:
  struct Options {
    // HOST:PORT.
    std::string listen;
    // A port that is there already, instead.
    std::unique_ptr<Listener> listener;
    // Null: nothing is encrypted. With authorities, clients must show a certificate that one of these signed. Outlives
    // the server.
    CertificateWatch* certificates = nullptr;
    // Web sites whose pages may call; see Origins.
    std::vector<std::string> origins;
    // Beside the methods and the health checks.
    std::vector<Route> routes;
  };
  // Serves the pipeline's methods, within its limits; both must outlive the server. The codes of Listener::Open
  // and TlsContext::Use. The certificates are watched from now on: they must not be looked at any more when the server
  // is destroyed.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(CallPipeline& pipeline, const Clock& clock, Options options);

  // Shuts down at once if Shutdown was not called.
  ~HttpServer();

  // HOST:PORT, with the port that was chosen.
  const std::string& address() const;

  // What /readyz is told.
  void SetServing(bool is_serving);

  // Takes no more connections or calls, gives open ones `grace`, then hangs up. Returns when all have been answered:
  // the methods must answer parked calls before this is called, or from another thread.
  void Shutdown(absl::Duration grace);

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace sheaf
