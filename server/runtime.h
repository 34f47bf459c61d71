// Runtime: a whole server in this process, from stores to ports: the core in its thread, the handlers, gRPC, and HTTP
// where it is asked for.
//
//   ASSIGN_OR_RETURN(auto runtime, Runtime::Start(store, payloads, clock, random,
//                                                 {.listen = "127.0.0.1:0", .data_directory = dir}));
//   LogInfo("listening on {}", runtime->address());
//   RETURN_IF_ERROR(runtime->Stop());
//
// With Options::forwarder it is the front of stores that others may own: see SharedServer (shared_server.h).
//
// Start first recovers what a crash left behind. A failed flush ends the process with one line: nobody may be
// told anything any more, and a restart finds what is durable. Not thread-safe: main owns it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/random.h"
#include "server/core/limits/limits.h"
#include "server/net/listener.h"
#include "server/rpc/grpc_server.h"
#include "server/server_parts.h"
#include "server/store_threads.h"
#include "server/web/join_files.h"
#include "storage/payload_store.h"
#include "storage/records.h"
#include "storage/task_store.h"
#include "tls/certificates.h"

namespace sheaf {

// The ports on which callers come.
struct Doors {
  std::unique_ptr<Listener> rpc;
  // Null: no HTTP.
  std::unique_ptr<Listener> http;
};

class Runtime {
 public:
  struct Options {
    std::string listen;
    // HOST:PORT of HTTP/1.1; empty: none.
    std::string http;
    // See HttpServer::Options.
    std::vector<std::string> http_origins;
    // What tabs may run as workers, at /join; none: nothing.
    std::optional<JoinFiles> join;
    // Without a certificate nothing is encrypted, on either port. With authorities, clients must show a certificate
    // that one of these signed. The files are read again when they change; see CertificateWatch.
    CertificateFiles tls;
    // Nobody gets in without a token, even while there is none.
    bool requires_tokens = false;
    std::string data_directory;
    // The store has to hear from its server at least so often.
    absl::Duration idle_max = absl::InfiniteDuration();
    absl::Duration stop_grace = absl::Seconds(1);
    Limits limits;
    // Ports that are there already, instead of `listen` and `http`.
    Doors doors;
    // The port for other servers that forward calls; none: they do not.
    std::unique_ptr<Listener> peers;
    GrpcServer::Options::ForPeers for_peers;
    // Who answers all calls; outlives the runtime, whose own store nobody asks then.
    Forwarder* forwarder = nullptr;
    // Called once, before anybody can call.
    std::function<void(Runtime& runtime)> before_calls = [](Runtime&) {};
  };

  // All must outlive the runtime; only the runtime uses `store` and `random` from now on. The codes of the stores, and
  // of CertificateWatch::Open, GrpcServer::Start and HttpServer::Start. FAILED_PRECONDITION, with the remedy, if tokens
  // are required and no operator has one.
  static absl::StatusOr<std::unique_ptr<Runtime>> Start(TaskStore& store, PayloadStore& payloads, const Clock& clock,
                                                        Random& random, Options options);

  // Stops the thread and the port at once if Stop was not called.
  ~Runtime();

  // HOST:PORT, with the port that was chosen.
  const std::string& address() const;
  // The same of HTTP/1.1; empty if there is none.
  const std::string& http_address() const;

  // What `GET /metrics` answers now (docs/reference/metrics.md). Thread-safe, and takes no time of the core's.
  std::string Metrics() const;

  // The tokens of the store that it began with are these from now on, because another store's are. Thread-safe. The
  // codes of ReplaceTokens.
  absl::Status SetTokens(const std::vector<TokenRecord>& tokens);

  // For stores that are served behind the forwarder.
  ServerParts& parts();
  CallPool& pool();
  // What is served, for metrics: `parts` are those of the store. All must live until HideStore returns.
  void ShowStore(const StoreParts& parts, const StoreThreads& threads, TaskStore& store, PayloadStore& payloads);
  void HideStore(Shard shard);

  // The graceful way: health says NOT_SERVING, parked polls are answered, open calls get `stop_grace`, the ports close,
  // accepted work is checkpointed. When it returns, the stores can be closed. The error of the last checkpoint, if it
  // failed: what was accepted is durable all the same. Stopping twice is fine.
  // Of stores behind the forwarder, `drain` answers whoever is parked there.
  absl::Status Stop(const std::function<void()>& drain = [] {});

 private:
  struct Served;
  struct State;
  explicit Runtime(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace sheaf
