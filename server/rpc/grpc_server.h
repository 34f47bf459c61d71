// GrpcServer: the server's methods on a TCP port, by gRPC's callback API: a parked call costs no thread.
//
//   ASSIGN_OR_RETURN(auto server, GrpcServer::Start(pipeline, clock, {.listen = "127.0.0.1:0"}));
//   LogInfo("listening on {}", server->address());     // "127.0.0.1:41234"
//   server->SetServing(false);                         // Health says NOT_SERVING, for the server and each service.
//   pipeline.WaitUntilIdle(absl::Seconds(1));          // Whoever is answered has been answered.
//   server->Shutdown(absl::Seconds(1));
//
// Health checking is for everybody, reflection for whoever may call something. Every other call is the pipeline's
// (server/calls/call_pipeline.h), and gRPC only its front door (grpc_call.h). Owns what gRPC needs, refers to the
// pipeline and the clock. Thread-safe, but for destruction.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "server/calls/call_pipeline.h"
#include "server/net/certificate_watch.h"
#include "server/net/listener.h"
#include "tls/certificates.h"

namespace sheaf {

class GrpcServer {
 public:
  struct Options {
    // HOST:PORT.
    std::string listen;
    // A port that is there already, instead.
    std::unique_ptr<Listener> listener;
    // Null: nothing is encrypted. With authorities, clients must show a certificate that one of these signed. Outlives
    // the server.
    const CertificateWatch* certificates = nullptr;
    // Its clients are servers, which forward others' calls (grpc_forwarder.h): it shows them this certificate, and
    // serves who shows its secret.
    struct ForPeers {
      LoadedCertificates shown;
      std::string secret;
    };
    std::optional<ForPeers> for_peers;
  };
  // Serves the pipeline's methods, within its limits; all must outlive the server. UNAVAILABLE, with the remedy, if the
  // port is in use; INVALID_ARGUMENT if this machine has no such address.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(CallPipeline& pipeline, const Clock& clock, Options options);

  // Shuts down at once if Shutdown was not called.
  ~GrpcServer();

  // HOST:PORT, with the port that was chosen.
  const std::string& address() const;

  // What health checks are told.
  void SetServing(bool is_serving);

  // Takes no more calls, gives open ones `grace`, then cancels them. Returns when all have been answered: the
  // methods must answer parked calls before this is called, or from another thread.
  void Shutdown(absl::Duration grace);

 private:
  struct State;
  explicit GrpcServer(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace sheaf
