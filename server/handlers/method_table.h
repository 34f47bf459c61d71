// MethodTable: every RPC the server answers, one row each, by its gRPC path. gRPC, later HTTP, and the simulation
// all dispatch through it.
//
//   table.Dispatch("sheaf.v1.WorkService/Sync", request, &response, [](absl::Status status) {...});
//
// A row says whether its handler runs inside a batch of the executor, because it reads or changes the queue, or
// at once in the caller's thread, because it only moves bytes of the (thread-safe) PayloadStore.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "google/protobuf/message.h"
#include "server/core/executor.h"
#include "server/core/reply.h"

namespace sheaf {

class BlobHandlers;
class InspectionHandlers;
class RoundHandlers;
class WorkHandlers;

struct Handlers {
  WorkHandlers& work;
  BlobHandlers& blob;
  RoundHandlers& round;
  InspectionHandlers& inspection;
};

class MethodTable {
 public:
  using Done = std::function<void(absl::Status)>;

  // Both must outlive the table.
  MethodTable(Executor& executor, Handlers handlers);

  // Calls `done` exactly once, from any thread, with `response` filled if OK. Request and response must live until
  // then. UNIMPLEMENTED, naming it, if there is no such method. Thread-safe.
  void Dispatch(std::string_view method, const google::protobuf::Message& request, google::protobuf::Message* response,
                Done done) const;

  // Whoever dispatched `request`, and was not answered yet, has gone: a call that waits is ended, so that nothing is
  // handed out to nobody. Dispatch's `done` is still called. Thread-safe.
  void Abandon(std::string_view method, const google::protobuf::Message& request) const;

  // "sheaf.v1.WorkService/Sync" ...
  std::vector<std::string> methods() const;

 private:
  struct Row {
    bool in_batch;
    std::function<void(const google::protobuf::Message& request, google::protobuf::Message* response, absl::Time now,
                       Done done)>
        call;
    // Null where no call waits, or waiting hands out nothing.
    std::function<void(const google::protobuf::Message& request)> abandon;
  };

  // A handler that runs inside a batch.
  template <typename H, typename Request, typename Response>
  void Add(const char* name, H& handlers, void (H::*handler)(const Request&, absl::Time, Reply<Response>));
  // A handler that runs at once in the caller's thread.
  template <typename H, typename Request, typename Response>
  void Add(const char* name, H& handlers, absl::StatusOr<Response> (H::*handler)(const Request&));

  Executor& executor_;
  std::unordered_map<std::string, Row> rows_;
};

}  // namespace sheaf
