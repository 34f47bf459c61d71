// What a client of HTTP/1.1 does of its own: what it sends, which connections it has, and what servers and proxies that
// are slow, wrong or hostile cost it.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/mutex.h"
#include "base/retry_hint.h"
#include "sdk/cpp/client/http_transport.h"
#include "tests/sdk/little_http_server.h"
#include "tests/wait_until.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Request = LittleHttpServer::Request;
using Peer = LittleHttpServer::Peer;

constexpr absl::Duration kSoon = absl::Milliseconds(200);

HttpTransport To(const std::string& address, const ChannelOptions& options = {}) {
  return HttpTransport(*ParseServerAddress(address), options);
}

absl::Status Ask(Transport& transport, absl::Duration timeout = absl::Seconds(20)) {
  return BlockingCall(transport, kGetServerInfo, {}, {.timeout = timeout}).status();
}

// Of a new connection, to a server that does this.
absl::Status AskOne(const LittleHttpServer::Handler& handler, const ChannelOptions& options = {},
                    absl::Duration timeout = absl::Seconds(20)) {
  LittleHttpServer server(handler);
  HttpTransport transport = To(server.address(), options);
  return Ask(transport, timeout);
}

void AnswerEmpty(const Request&, Peer& peer) { peer.Answer("200 OK", "application/proto", ""); }

std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

// A variable of this process, for as long as this lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
};

// A file with a token, which goes with this.
class ScratchToken {
 public:
  explicit ScratchToken(const std::string& token) {
    char name[] = "/tmp/sheaf-token-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    directory_ = name;
    Write(token);
  }
  ~ScratchToken() { std::filesystem::remove_all(directory_); }

  std::string path() const { return directory_ + "/token"; }
  void Write(const std::string& token) const {
    std::ofstream(path()) << token;
    REQUIRE(::chmod(path().c_str(), 0600) == 0);
  }

 private:
  std::string directory_;
};

int64_t ResidentBytesMost() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} << 10;
}

TEST_CASE("A call is a POST of Connect, with its token and its time") {
  const ScratchToken token("sheaf_secret");
  Request seen;
  LittleHttpServer server([&seen](const Request& request, Peer& peer) {
    seen = request;
    AnswerEmpty(request, peer);
  });
  HttpTransport transport = To(server.address() + "/behind/here/", {.security = {.token_file = token.path()}});
  v1::GetRoundRequest request;
  request.set_round("r-1");
  REQUIRE(BlockingCall(transport, kGetRound, request, {.timeout = absl::Seconds(5)}).ok());
  CHECK(seen.head.starts_with("POST /behind/here/sheaf.v1.RoundService/GetRound HTTP/1.1\r\n"));
  CHECK(seen.Header("host") == fmt::format("127.0.0.1:{}", server.port()));
  CHECK(seen.Header("content-type") == "application/proto");
  CHECK(seen.Header("connect-protocol-version") == "1");
  CHECK(seen.Header("authorization") == "Bearer sheaf_secret");
  CHECK_THAT(seen.Header("user-agent"), Contains("sheaf-cpp/"));
  CHECK(seen.Header("expect").empty());
  CHECK(seen.Header("content-encoding").empty());
  // The server ends it only if we do not.
  const int timeout = std::stoi(seen.Header("connect-timeout-ms"));
  CHECK(timeout > 5'000);
  CHECK(timeout <= 6'000);
  v1::GetRoundRequest arrived;
  CHECK(arrived.ParseFromString(seen.body));
  CHECK(arrived.round() == "r-1");
}

TEST_CASE("A token that the server refuses, while its file has another, is worth another call at once") {
  const ScratchToken token("sheaf_one");
  LittleHttpServer server([&token](const Request& request, Peer& peer) {
    if (request.Header("authorization") == "Bearer sheaf_two") return AnswerEmpty(request, peer);
    token.Write("sheaf_two");
    peer.Answer("401 Unauthorized", "application/json", R"({"code":"unauthenticated","message":"revoked"})");
  });
  HttpTransport transport = To(server.address(), {.security = {.token_file = token.path()}});
  const absl::Status refused = Ask(transport);
  CHECK(absl::IsUnauthenticated(refused));
  CHECK(RetryAfter(refused) == absl::Milliseconds(1));
  CHECK(Ask(transport).ok());
}

TEST_CASE("Calls one after the other share a connection, and one that the server closed meanwhile costs no error") {
  std::atomic<int> num_calls = 0;
  LittleHttpServer server([&num_calls](const Request& request, Peer& peer) {
    AnswerEmpty(request, peer);
    // As a server or proxy does that keeps no idle connections for long, without a word.
    if (++num_calls % 10 == 0) peer.HangUp();
  });
  HttpTransport transport = To(server.address());
  for (int i = 0; i < 30; ++i) {
    const absl::Status status = Ask(transport);
    INFO(status.ToString());
    CHECK(status.ok());
  }
  CHECK(server.num_connections() == 3);
}

TEST_CASE("There are no more connections than may be; further calls wait for one, and no longer than they may") {
  std::atomic<bool> may_answer = false;
  LittleHttpServer server([&may_answer](const Request& request, Peer& peer) {
    WaitUntil("it may", absl::Seconds(20), [&] { return may_answer.load(); });
    AnswerEmpty(request, peer);
  });
  HttpTransport transport = To(server.address(), {.connections_max = 2});
  std::atomic<int> num_ok = 0;
  for (int i = 0; i < 5; ++i) {
    Call(transport, kGetServerInfo, {}, {}, [&](const auto& response) { num_ok += response.ok() ? 1 : 0; });
  }
  WaitUntil("two are under way", absl::Seconds(20), [&] { return server.num_connections() == 2; });
  const absl::Status late = Ask(transport, kSoon);
  CHECK(late.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(TextOf(late), Contains("all 2 connections"));
  may_answer = true;
  WaitUntil("all are done", absl::Seconds(20), [&] { return num_ok == 5; });
  CHECK(server.num_connections() == 2);
}

TEST_CASE("Who closes a transport hangs up on the server, so that its call is abandoned there") {
  std::atomic<bool> has_hung_up = false;
  LittleHttpServer server([&has_hung_up](const Request&, Peer& peer) {
    peer.WaitForEnd();
    has_hung_up = true;
  });
  {
    HttpTransport transport = To(server.address());
    v1::GetServerInfoResponse response;
    transport.CallMethod(kGetServerInfo.name, v1::GetServerInfoRequest(), &response, {}, [](const absl::Status&) {});
    WaitUntil("it arrived", absl::Seconds(20), [&] { return server.num_connections() == 1; });
  }
  WaitUntil("the server sees it", absl::Seconds(20), [&] { return has_hung_up.load(); });
}

TEST_CASE("A call that ran out of time hangs up, too") {
  std::atomic<int> num_hung_up = 0;
  LittleHttpServer server([&num_hung_up](const Request&, Peer& peer) {
    peer.WaitForEnd();
    ++num_hung_up;
  });
  HttpTransport transport = To(server.address());
  CHECK(Ask(transport, kSoon).code() == absl::StatusCode::kDeadlineExceeded);
  WaitUntil("the server sees it", absl::Seconds(20), [&] { return num_hung_up == 1; });
}

TEST_CASE("An answer to half of a large request is heard") {
  LittleHttpServer server(
      [](const Request&, Peer& peer) {
        peer.Answer("401 Unauthorized", "application/json", R"({"code":"unauthenticated","message":"who are you?"})",
                    "connection: close\r\n");
        // A server drops what comes for a while, so that its answer is not lost on the way.
        peer.WaitForEnd();
      },
      0, /*reads_body=*/false);
  HttpTransport transport = To(server.address());
  v1::ReadBlobRequest large;
  large.set_digest(std::string(8'000'000, 'x'));
  const absl::Status status = BlockingCall(transport, kReadBlob, large).status();
  CHECK(status == absl::UnauthenticatedError("who are you?"));
}

TEST_CASE("Whether a server is there again is asked of it, and told") {
  std::atomic<bool> is_ready = false;
  std::atomic<int> num_probes = 0;
  LittleHttpServer server([&](const Request& request, Peer& peer) {
    if (request.head.starts_with("GET /readyz ")) ++num_probes;
    if (is_ready) return AnswerEmpty(request, peer);
    peer.Answer("503 Service Unavailable", "application/json", R"({"code":"unavailable","message":"it stops"})");
  });
  HttpTransport transport = To(server.address(), {.reconnect_backoff_max = absl::Milliseconds(50)});
  CHECK(absl::IsUnavailable(Ask(transport)));
  CHECK_FALSE(transport.IsConnected());
  WaitUntil("it asks", absl::Seconds(20), [&] { return !transport.IsConnected() && num_probes >= 3; });
  is_ready = true;
  WaitUntil("it sees", absl::Seconds(20), [&] { return transport.IsConnected(); });
  const int before = num_probes;
  CHECK(Ask(transport).ok());
  CHECK(transport.IsConnected());
  CHECK(num_probes == before);
}

TEST_CASE("A server that answers too little, too slowly or not at all costs no more than the call's time") {
  const std::string half = "HTTP/1.1 200 OK\r\ncontent-type: application/proto\r\ncontent-length: 100\r\n\r\nab";
  for (const std::string& sent :
       {std::string(), std::string("HTT"), std::string("HTTP/1.1 200 OK\r\ncontent-"), half}) {
    INFO(sent);
    const absl::Status status = AskOne(
        [&sent](const Request&, Peer& peer) {
          peer.Send(sent);
          peer.WaitForEnd();
        },
        {}, kSoon);
    CHECK(status == absl::DeadlineExceededError("Deadline Exceeded"));
  }
  // A byte at a time.
  const absl::Status status = AskOne(
      [&half](const Request&, Peer& peer) {
        for (const char byte : half + std::string(10'000, 'x')) {
          if (!peer.Send({&byte, 1})) break;
          ::poll(nullptr, 0, 5);
        }
        peer.HangUp();
      },
      {}, kSoon);
  CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
}

TEST_CASE("An answer that breaks off, or is none, is UNAVAILABLE and says so") {
  struct Row {
    std::string sent;
    std::string says;
  };
  const std::string head = "HTTP/1.1 200 OK\r\ncontent-type: application/proto\r\n";
  for (const Row& row : {Row{"", "hung up without an answer"}, Row{head, "broke off"}, Row{head + "\r\n", "broke off"},
                         Row{head + "\r\nab", "broke off"},
                         Row{"HTTP/1.0 200 OK\r\ncontent-type: application/proto\r\n\r\n", "does not say how long"},
                         Row{head + "content-length: 100\r\n\r\nab", "broke off"},
                         Row{head + "transfer-encoding: chunked\r\n\r\n5\r\nab", "broke off"},
                         Row{head + "transfer-encoding: chunked\r\n\r\nnonsense\r\n", "cannot be reached"},
                         Row{head + "content-length: -7\r\n\r\n", "cannot be reached"},
                         Row{head + "content-length: 99999999999999999999\r\n\r\n", "cannot be reached"},
                         Row{"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP/1.1"},
                         Row{std::string("\0\0\0\4\0\0\0\0\0", 9), "does not speak HTTP/1.1"},
                         Row{"HTTP/7.1 200 OK\r\n\r\n", "cannot be reached"}}) {
    INFO(row.sent);
    const absl::Status status = AskOne([&row](const Request&, Peer& peer) {
      peer.Send(row.sent);
      peer.HangUp();
    });
    INFO(status.ToString());
    CHECK(absl::IsUnavailable(status));
    CHECK_THAT(TextOf(status), Contains(row.says) && Contains("the server at http://127.0.0.1:"));
  }
}

TEST_CASE("More than an answer may have is not taken") {
  const int64_t before = ResidentBytesMost();
  const std::string much(1 << 20, 'x');
  const auto endless = [&much](const std::string& head, const std::string& piece) {
    return [head, piece, &much](const Request&, Peer& peer) {
      peer.Send(head);
      while (peer.Send(piece.empty() ? much : piece)) {
      }
      peer.HangUp();
    };
  };
  const std::string ok = "HTTP/1.1 200 OK\r\ncontent-type: application/proto\r\n";
  const ChannelOptions options = {.message_bytes_max = 4 << 20};
  const std::string chunk = fmt::format("{:x}\r\n{}\r\n", much.size(), much);
  for (const auto& [head, piece] : {std::pair<std::string, std::string>{ok + "\r\n", ""},
                                    {ok + "content-length: 9999999999\r\n\r\n", ""},
                                    {ok + "transfer-encoding: chunked\r\n\r\n", chunk}}) {
    const absl::Status status = AskOne(endless(head, piece), options);
    INFO(status.ToString());
    CHECK(absl::IsResourceExhausted(status));
    CHECK_THAT(TextOf(status), Contains("too much for one call"));
  }
  for (const auto& [head, piece] : {std::pair<std::string, std::string>{ok, "x-a: b\r\n"},
                                    {ok + "x: ", ""},
                                    {"", "HTTP/1.1 103 Early Hints\r\n\r\n"},
                                    {ok + "transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n", "x-a: b\r\n"}}) {
    const absl::Status status = AskOne(endless(head, piece), options);
    INFO(status.ToString());
    CHECK(absl::IsUnavailable(status));
  }
  // Errors are short.
  const absl::Status error = AskOne(endless("HTTP/1.1 500 No\r\ncontent-type: application/json\r\n\r\n", ""), options);
  CHECK(absl::IsResourceExhausted(error));
  CHECK(ResidentBytesMost() - before < int64_t{64} << 20);
}

TEST_CASE("What stands in place of a server is named: a redirect, a page, a packer, another server") {
  struct Row {
    std::string status;
    std::string content_type;
    std::string fields;
    absl::StatusCode code;
    std::string says;
  };
  for (const Row& row :
       {Row{"302 Found", "text/html", "location: https://login.example.org/\r\n", absl::StatusCode::kUnknown,
            "https://login.example.org/"},
        Row{"502 Bad Gateway", "text/html", "retry-after: 2\r\n", absl::StatusCode::kUnavailable, "502 Bad Gateway"},
        Row{"200 OK", "text/html", "", absl::StatusCode::kUnknown, "login page"},
        Row{"200 OK", "application/proto", "content-encoding: gzip\r\n", absl::StatusCode::kInternal, "gzip"},
        Row{"200 OK", "application/proto", "", absl::StatusCode::kInternal, "no message"}}) {
    const absl::Status status = AskOne(
        [&row](const Request&, Peer& peer) { peer.Answer(row.status, row.content_type, "\xff<html>", row.fields); });
    INFO(status.ToString());
    CHECK(status.code() == row.code);
    CHECK_THAT(TextOf(status), Contains(row.says));
    if (row.status.starts_with("502")) CHECK(RetryAfter(status) == absl::Seconds(2));
  }
}

TEST_CASE("A call goes by the proxy of the environment, and shows it what is the proxy's") {
  Request seen;
  LittleHttpServer proxy([&seen](const Request& request, Peer& peer) {
    seen = request;
    AnswerEmpty(request, peer);
  });
  const ScratchToken token("sheaf_secret");
  const Variable variable("HTTP_PROXY", fmt::format("http://me:s%40crt@127.0.0.1:{}", proxy.port()));
  const ChannelOptions options = {.security = {.token_file = token.path(), .is_insecure = true}};
  {
    HttpTransport transport = To("http://sheaf.invalid:7434", options);
    REQUIRE(Ask(transport).ok());
    CHECK(
        seen.head.starts_with("POST http://sheaf.invalid:7434/sheaf.v1.InspectionService/GetServerInfo HTTP/1.1\r\n"));
    CHECK(seen.Header("proxy-authorization") == "Basic bWU6c0BjcnQ=");
    CHECK(seen.Header("authorization") == "Bearer sheaf_secret");
  }
  {
    const Variable exempt("NO_PROXY", ".invalid");
    HttpTransport transport = To("http://sheaf.invalid:7434", options);
    const absl::Status status = Ask(transport);
    CHECK_THAT(TextOf(status), Contains("no host of this name: sheaf.invalid"));
  }
  // Not to a server of this machine: it hears nothing of the proxy.
  LittleHttpServer server(AnswerEmpty);
  HttpTransport transport = To(server.address());
  CHECK(Ask(transport).ok());
  CHECK(proxy.num_connections() == 1);
}

TEST_CASE("A tunnel through a proxy shows it no token, and a proxy that digs none is named") {
  Request seen;
  std::string answer =
      "HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\n\r\n";
  LittleHttpServer proxy([&](const Request& request, Peer& peer) {
    seen = request;
    peer.Send(answer);
    peer.HangUp();
  });
  const ScratchToken token("sheaf_secret");
  const Variable variable("https_proxy", fmt::format("http://me:secret@127.0.0.1:{}", proxy.port()));
  HttpTransport transport = To("https://sheaf.invalid:7434", {.security = {.token_file = token.path()}});
  const std::string name = fmt::format("the proxy http://127.0.0.1:{}", proxy.port());
  absl::Status status = Ask(transport);
  INFO(status.ToString());
  CHECK(absl::IsUnavailable(status));
  CHECK_THAT(TextOf(status), Contains(name + " answered 407") && Contains("in https_proxy") && !Contains("me:secret"));
  CHECK(seen.head.starts_with("CONNECT sheaf.invalid:7434 HTTP/1.1\r\n"));
  CHECK(seen.Header("authorization").empty());
  answer = "HTTP/1.1 403 Forbidden\r\ncontent-length: 3\r\n\r\nno.";
  status = Ask(transport);
  CHECK_THAT(TextOf(status), Contains(name + " answered 403 Forbidden") && Contains("NO_PROXY"));
  answer = "HTTP/1.1 502 Bad Gateway\r\ntransfer-encoding: chunked\r\n\r\n";
  status = Ask(transport);
  CHECK(absl::IsUnavailable(status));
}

TEST_CASE("A proxy that is not there, or says no end of things, is named in time") {
  const std::string gone = fmt::format("http://127.0.0.1:{}", LittleHttpServer(AnswerEmpty).port());
  for (const std::string url : {"http://sheaf.invalid", "https://sheaf.invalid"}) {
    const Variable variable("ALL_PROXY", gone);
    HttpTransport transport = To(url);
    const absl::Status status = Ask(transport);
    CHECK(absl::IsUnavailable(status));
    CHECK_THAT(TextOf(status), Contains("the proxy " + gone + ": Connection refused; check ALL_PROXY"));
  }
  const Variable nowhere("ALL_PROXY", "http://proxy.invalid:3128");
  HttpTransport transport = To("https://sheaf.invalid");
  const absl::Status status = Ask(transport);
  CHECK_THAT(TextOf(status), Contains("no host of the name of the proxy http://proxy.invalid:3128"));
  LittleHttpServer endless([](const Request&, Peer& peer) {
    peer.Send("HTTP/1.1 200 OK\r\n");
    while (peer.Send("x-a: b\r\n")) {
    }
    peer.HangUp();
  });
  const Variable variable("https_proxy", endless.address());
  HttpTransport through = To("https://sheaf.invalid");
  CHECK(absl::IsUnavailable(Ask(through)));
}

}  // namespace
}  // namespace sheaf
