// The server as a process: exit codes, port file, signals.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>

#include "sdk/cpp/client/grpc_transport.h"
#include "tests/server/http/http_client.h"
#include "tests/server/running_server.h"
#include "tests/server/sheafd_process.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char name[] = "/tmp/sheafd-test-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

TEST_CASE("sheafd says where it listens, in its log and in the port file, and ends well on SIGTERM") {
  const TemporaryDirectory directory;
  SheafdProcess sheafd(
      {"--listen", "127.0.0.1:0", "--data-dir", directory / "data", "--port-file", directory / "port"});
  const std::string line = sheafd.WaitForLine("listening on");
  const std::string address = FirstLine(directory / "port");
  CHECK_THAT(address, Catch::Matchers::StartsWith("127.0.0.1:"));
  CHECK_THAT(line, Contains("listening on " + address) && Contains("data in " + (directory / "data")));
  GrpcTransport transport(address, {});
  const auto info = BlockingCall(transport, kGetServerInfo, {});
  REQUIRE(info.ok());
  CHECK(info->store() == "sqlite");
  sheafd.Signal(SIGTERM);
  CHECK(sheafd.Wait() == 0);
  CHECK_FALSE(std::filesystem::exists(directory / "port"));
}

TEST_CASE("What the log says of a call names the trace that the call is part of") {
  const TemporaryDirectory directory;
  SheafdProcess sheafd({"--listen", "127.0.0.1:0", "--store", "memory", "--port-file", directory / "port",
                        "--log-level", "debug", "--population-percent-max", "100", "--live-rounds-max", "1", "--http",
                        "127.0.0.1:0", "--http-port-file", directory / "http"});
  sheafd.WaitForLine("listening on");
  const auto channel = grpc::CreateChannel(FirstLine(directory / "port"), grpc::InsecureChannelCredentials());
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(channel);
  const auto call = [&](const std::string& method, const google::protobuf::Message& message,
                        const std::string& traceparent) {
    grpc::ClientContext context;
    if (!traceparent.empty()) context.AddMetadata("traceparent", traceparent);
    const grpc::Slice bytes(message.SerializeAsString());
    const grpc::ByteBuffer request(&bytes, 1);
    grpc::ByteBuffer response;
    std::promise<bool> is_ok;
    stub.UnaryCall(&context, "/" + method, {}, &request, &response,
                   [&](const grpc::Status& status) { is_ok.set_value(status.ok()); });
    return is_ok.get_future().get();
  };
  const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736";
  const std::string traceparent = "00-" + trace + "-00f067aa0ba902b7-01";
  REQUIRE(call(kGetServerInfo.name, v1::GetServerInfoRequest(), traceparent));
  CHECK_THAT(sheafd.WaitForLine("GetServerInfo from"),
             Contains("OK") && Contains(" trace=" + trace + "/00f067aa0ba902b7"));
  HttpClient http(FirstLine(directory / "http"));
  REQUIRE(http.Ask(Post(std::string("/") + kGetServerInfo.name, "application/json", "{}",
                        "traceparent: " + traceparent + "\r\n"))
              .status == 200);
  CHECK_THAT(sheafd.WaitForLine("GetServerInfo from"),
             Contains("OK") && Contains(" trace=" + trace + "/00f067aa0ba902b7"));
  // What is no trace is not repeated, whatever it is.
  for (const std::string other : {"", "00-none", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01"}) {
    REQUIRE(call(kGetServerInfo.name, v1::GetServerInfoRequest(), other));
    CHECK_THAT(sheafd.WaitForLine("GetServerInfo from"), !Contains("trace="));
  }
  // Also where the core's thread writes the line,
  REQUIRE(call(kCreateRound.name, ARound("one"), traceparent));
  REQUIRE(call(kSync.name, AParkedPoll("w", 0), traceparent));
  CHECK_THAT(sheafd.WaitForLine("worker w of population default joins"), Contains(" trace=" + trace));
  // and of who was refused what.
  CHECK_FALSE(call(kCreateRound.name, ARound("two"), traceparent));
  CHECK_THAT(sheafd.WaitForLine("is refused"), Contains("live_rounds_max") && Contains(" trace=" + trace));
}

TEST_CASE("What was created before a stop is there after the next start") {
  const TemporaryDirectory directory;
  const std::vector<std::string> arguments = {"--listen",         "127.0.0.1:0", "--data-dir",
                                              directory / "data", "--port-file", directory / "port"};
  std::string round;
  {
    SheafdProcess sheafd(arguments);
    sheafd.WaitForLine("listening on");
    GrpcTransport transport(FirstLine(directory / "port"), {});
    const auto created = BlockingCall(transport, kCreateRound, ARound("round"));
    REQUIRE(created.ok());
    round = created->round().id();
    sheafd.Signal(SIGINT);
    CHECK(sheafd.Wait() == 0);
  }
  SheafdProcess sheafd(arguments);
  sheafd.WaitForLine("listening on");
  GrpcTransport transport(FirstLine(directory / "port"), {});
  v1::GetRoundRequest request;
  request.set_round(round);
  const auto found = BlockingCall(transport, kGetRound, request);
  REQUIRE(found.ok());
  CHECK(found->round().tasks().queued() == 1);
}

TEST_CASE("A stop with a parked worker takes no longer than a stop without") {
  const TemporaryDirectory directory;
  SheafdProcess sheafd({"--listen", "127.0.0.1:0", "--store", "memory", "--port-file", directory / "port"});
  sheafd.WaitForLine("listening on");
  GrpcTransport transport(FirstLine(directory / "port"), {});
  auto parked = CallLater(transport, kSync, AParkedPoll("worker"));
  WaitForParkedPolls(transport, 1);
  sheafd.Signal(SIGTERM);
  CHECK(parked.get().ok());
  CHECK(sheafd.Wait() == 0);
}

TEST_CASE("A busy port ends sheafd with 1 and one sentence") {
  const RunningServer other;
  SheafdProcess sheafd({"--listen", other.address(), "--store", "memory"});
  CHECK_THAT(sheafd.ReadAll(), Contains("the port is in use; choose another with --listen"));
  CHECK(sheafd.Wait() == 1);
}

TEST_CASE("Wrong usage ends sheafd with 2") {
  SheafdProcess unknown({"--lisen", "127.0.0.1:0"});
  CHECK_THAT(unknown.ReadAll(), Contains("the nearest known one is --listen"));
  CHECK(unknown.Wait() == 2);
  SheafdProcess open({"--listen", "0.0.0.0:0"});
  CHECK_THAT(open.ReadAll(), Contains("--insecure"));
  CHECK(open.Wait() == 2);
}

TEST_CASE("--version and --print-config end with 0 and touch nothing") {
  const TemporaryDirectory directory;
  SheafdProcess version({"--version"});
  CHECK_THAT(version.ReadAll(), Catch::Matchers::StartsWith("sheafd "));
  CHECK(version.Wait() == 0);
  SheafdProcess config({"--print-config", "--data-dir", directory / "data"});
  CHECK_THAT(config.ReadAll(), Contains("data_dir") && Contains("flag --data-dir"));
  CHECK(config.Wait() == 0);
  CHECK_FALSE(std::filesystem::exists(directory / "data"));
}

TEST_CASE("Two servers on one data directory: the second is refused") {
  const TemporaryDirectory directory;
  const std::vector<std::string> arguments = {"--listen", "127.0.0.1:0", "--data-dir", directory / "data"};
  SheafdProcess first(arguments);
  first.WaitForLine("listening on");
  SheafdProcess second(arguments);
  CHECK_THAT(second.ReadAll(), Contains(directory / "data"));
  CHECK(second.Wait() == 1);
}

}  // namespace
}  // namespace sheaf
