// The contract as a whole: unary, and served.
#include <google/protobuf/descriptor.pb.h>

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "proto/methods.h"
#include "server/rpc/grpc_call.h"
#include "server/rpc/services.h"
#include "server/server_parts.h"
#include "storage/memory/memory_payload_store.h"
#include "storage/memory/memory_task_store.h"

namespace sheaf {
namespace {

using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;

// Every service of the package, found through the files that define requests.
std::vector<const ServiceDescriptor*> AllServices() {
  std::vector<const ServiceDescriptor*> services;
  for (const FileDescriptor* file :
       {v1::SyncRequest::descriptor()->file(), v1::ReadBlobRequest::descriptor()->file(),
        v1::GetRoundRequest::descriptor()->file(), v1::GetTaskRequest::descriptor()->file(),
        v1::CreateTokenRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) services.push_back(file->service(i));
  }
  return services;
}

std::vector<const MethodDescriptor*> AllMethods() {
  std::vector<const MethodDescriptor*> methods;
  for (const ServiceDescriptor* service : AllServices()) {
    for (int i = 0; i < service->method_count(); ++i) methods.push_back(service->method(i));
  }
  return methods;
}

// As in a gRPC path: "sheaf.v1.WorkService/Sync".
std::string PathOf(const MethodDescriptor& method) { return method.service()->full_name() + "/" + method.name(); }

class NoExecutor final : public Executor {
 public:
  void Post(Event) override {}
  void Defer(Deferred) override {}
};

// A server that does not run.
class ATable {
 public:
  const MethodTable& table() const { return parts_.methods; }
  CallPipeline& pipeline() { return parts_.pipeline; }

 private:
  ManualClock clock_;
  SeededRandom random_{1};
  MemoryTaskStore store_;
  MemoryPayloadStore payloads_;
  NoExecutor executor_;
  ServerParts parts_{store_, payloads_, executor_, random_, clock_, {}};
};

TEST_CASE("No method of any service streams, in either direction") {
  REQUIRE(AllMethods().size() >= 20);
  for (const MethodDescriptor* method : AllMethods()) {
    INFO(PathOf(*method));
    CHECK_FALSE(method->client_streaming());
    CHECK_FALSE(method->server_streaming());
  }
}

TEST_CASE("Every method of the contract has a row in the method table, and no row is without a method") {
  const ATable table;
  std::set<std::string> described;
  for (const MethodDescriptor* method : AllMethods()) described.insert(PathOf(*method));
  std::set<std::string> rows;
  for (const MethodRow& row : table.table().rows()) rows.insert(row.name);
  CHECK(rows == described);
}

TEST_CASE("Every method says which roles may call it; viewers change nothing, and workers only hand in") {
  const ATable table;
  const std::set<std::string> for_viewers = {"GetRound",     "ListRounds",    "ListTasks",
                                             "GetTask",      "DescribeQueue", "ListWorkers",
                                             "ExplainRound", "GetServerInfo", "ListServers"};
  const std::set<std::string> for_workers = {"Sync",         "StartUpload", "WriteChunk", "QueryUpload",
                                             "FinishUpload", "ReadBlob",    "SelectRows", "GetServerInfo"};
  for (const MethodDescriptor* method : AllMethods()) {
    INFO(PathOf(*method));
    const RoleSet roles = table.table().Find(PathOf(*method))->traits.roles;
    CHECK(roles.bits() != 0);
    CHECK(roles.has(v1::VIEWER) == for_viewers.contains(method->name()));
    CHECK(roles.has(v1::WORKER) == for_workers.contains(method->name()));
  }
}

TEST_CASE("Whoever only looks says so in the contract: clients of the Connect protocol then may use GET") {
  const ATable table;
  for (const MethodDescriptor* method : AllMethods()) {
    INFO(PathOf(*method));
    const bool says_so = method->options().idempotency_level() == google::protobuf::MethodOptions::NO_SIDE_EFFECTS;
    CHECK(says_so == table.table().Find(PathOf(*method))->traits.only_looks);
  }
}

TEST_CASE("Every service of the contract is offered by gRPC") {
  ATable table;
  std::set<std::string> described;
  for (const ServiceDescriptor* service : AllServices()) described.insert(service->full_name());
  std::set<std::string> offered;
  for (const NamedService& service : MakeServices(table.pipeline())) offered.insert(service.name);
  CHECK(offered == described);
}

TEST_CASE("Requests that change something carry a request id; only the data plane and Sync have their own way") {
  // Sync: poll_id and lease tokens. WriteChunk: offsets. FinishUpload: the upload itself.
  const std::set<std::string> changing = {"CreateRound", "CancelRound", "StartUpload", "RequeueTask",
                                          "DrainWorker", "DrainServer", "CreateToken", "RevokeToken"};
  size_t found = 0;
  for (const MethodDescriptor* method : AllMethods()) {
    if (!changing.contains(method->name())) continue;
    ++found;
    INFO(method->name());
    CHECK(method->input_type()->FindFieldByName("request_id") != nullptr);
  }
  CHECK(found == changing.size());
}

TEST_CASE("Every list has pages") {
  for (const MethodDescriptor* method : AllMethods()) {
    if (!method->name().starts_with("List")) continue;
    INFO(method->name());
    CHECK(method->input_type()->FindFieldByName("page_size") != nullptr);
    CHECK(method->input_type()->FindFieldByName("page_token") != nullptr);
    CHECK(method->output_type()->FindFieldByName("next_page_token") != nullptr);
  }
}

TEST_CASE("A status keeps its code and message on the way to gRPC, and a long message is cut") {
  const grpc::Status status = ToGrpcStatus(absl::NotFoundError("there is no round r-1"));
  CHECK(status.error_code() == grpc::StatusCode::NOT_FOUND);
  CHECK(status.error_message() == "there is no round r-1");
  CHECK(ToGrpcStatus(absl::OkStatus()).ok());
  CHECK(ToGrpcStatus(absl::InternalError(std::string(100'000, 'x'))).error_message().size() < 4096);
}

}  // namespace
}  // namespace sheaf
