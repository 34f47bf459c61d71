// HTTPS: the certificate, those of clients, and what TLS changes of reading and writing.
#include <poll.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/certificates.h"
#include "tests/server/http/http_client.h"
#include "tests/server/running_server.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

class Directory {
 public:
  Directory() : path_(Catch::getResultCapture().getCurrentTestName() + ".tls") {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

struct Secured {
  Directory directory;
  Certificates certificates{directory.path()};
  CertificateFiles server = certificates.Issue("server", "IP:127.0.0.1");
  CertificateFiles anybody = {.authorities = certificates.authority()};

  Runtime::Options Options(bool is_mutual) const {
    CertificateFiles tls = server;
    if (!is_mutual) tls.authorities.clear();
    return {.http = "127.0.0.1:0", .tls = tls};
  }
};

const std::string kInfo = "/sheaf.v1.InspectionService/GetServerInfo";

TEST_CASE("Calls of any size go over TLS, one after the other on one connection") {
  const Secured secured;
  RunningServer server(secured.Options(false));
  HttpClient client(server.http_address(), secured.anybody);
  REQUIRE(client.is_connected());
  // Larger than a record, than what is read at a time, and than what the socket takes.
  for (const size_t size : {0, 1, 16'384, 65'536, 1'000'000, 8'000'000}) {
    INFO(size);
    const HttpAnswer answer = client.Ask(Post(kInfo, "application/proto", std::string(size, '\x01')));
    CHECK(answer.status == (size == 0 ? 200 : 400));
  }
  // Several at once, in records of their own sizes.
  std::string requests;
  for (int i = 0; i < 200; ++i) requests += Post(kInfo, "application/proto", "");
  client.Send(requests);
  for (int i = 0; i < 200; ++i) REQUIRE(client.Receive().status == 200);
}

TEST_CASE("A poll waits over TLS, and is abandoned when its client has gone") {
  const Secured secured;
  RunningServer server(secured.Options(false));
  v1::SyncRequest poll = AParkedPoll("worker");
  const auto parked = [&](int count) {
    for (int tries = 0; tries < 10'000; ++tries) {
      HttpClient client(server.http_address(), secured.anybody);
      v1::DescribeQueueResponse queue;
      REQUIRE(queue.ParseFromString(
          client.Ask(Post("/sheaf.v1.InspectionService/DescribeQueue", "application/proto", "")).body));
      if (queue.num_parked_polls() == count) return;
    }
    FAIL("the polls are never " << count);
  };
  {
    HttpClient client(server.http_address(), secured.anybody);
    client.Send(Post("/sheaf.v1.WorkService/Sync", "application/proto", poll.SerializeAsString()));
    parked(1);
  }
  parked(0);
  HttpClient client(server.http_address(), secured.anybody);
  client.Send(Post("/sheaf.v1.WorkService/Sync", "application/proto", poll.SerializeAsString()));
  parked(1);
  HttpClient maker(server.http_address(), secured.anybody);
  CHECK(maker.Ask(Post("/sheaf.v1.RoundService/CreateRound", "application/proto", ARound("r").SerializeAsString()))
            .status == 200);
  v1::SyncResponse leased;
  REQUIRE(leased.ParseFromString(client.Receive().body));
  CHECK(leased.leases_size() == 1);
}

// The first message of a handshake, as OpenSSL has it.
std::string ClientHello() {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> session(SSL_new(context.get()), SSL_free);
  BIO* const sent = BIO_new(BIO_s_mem());
  SSL_set_bio(session.get(), BIO_new(BIO_s_mem()), sent);
  REQUIRE(SSL_connect(session.get()) < 0);
  char bytes[4096];
  const int count = BIO_read(sent, bytes, sizeof bytes);
  REQUIRE(count > 100);
  return {bytes, static_cast<size_t>(count)};
}

// Ways to stop in the middle of TLS; each returns the connection that stopped.
std::vector<std::function<HttpClient()>> HalfSpoken(const RunningServer& server, const CertificateFiles& tls) {
  std::vector<std::function<HttpClient()>> ways;
  const std::string hello = ClientHello();
  for (const size_t size : {size_t{1}, size_t{5}, hello.size() / 2, hello.size() - 1, hello.size()}) {
    ways.emplace_back([&server, begin = hello.substr(0, size)] {
      HttpClient client(server.http_address());
      client.Send(begin);
      return client;
    });
  }
  // Of a record of 16 KiB: part of its head, its head, half of it.
  const std::string record = std::string("\x17\x03\x03\x40\x00", 5) + std::string(8 << 10, 'x');
  for (const size_t size : {size_t{3}, size_t{5}, record.size()}) {
    for (const bool has_asked : {false, true}) {
      ways.emplace_back([&server, &tls, has_asked, begin = record.substr(0, size)] {
        HttpClient client(server.http_address(), tls);
        REQUIRE(client.is_connected());
        // Of the second request a half that TLS knows of, too.
        if (has_asked) REQUIRE(client.Ask(Request("GET", "/healthz")).status == 200);
        if (has_asked) client.Send("POST ");
        REQUIRE(::send(client.fd(), begin.data(), begin.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(begin.size()));
        return client;
      });
    }
  }
  return ways;
}

absl::Duration ProcessCpuTime() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
}

TEST_CASE("Who stops in the middle of a handshake or of a record is hung up on, and nobody spins meanwhile") {
  constexpr absl::Duration kPatience = absl::Seconds(2);
  constexpr int kOfEach = 8;
  const Secured secured;
  Runtime::Options options = secured.Options(false);
  options.limits.handshake_timeout = kPatience;
  options.limits.request_time_max = kPatience;
  RunningServer server(std::move(options));
  const SystemClock clock;
  std::list<HttpClient> silent;
  for (const auto& stop : HalfSpoken(server, secured.anybody)) {
    for (int i = 0; i < kOfEach; ++i) silent.push_back(stop());
  }
  // While all are silent a thread that looks at them again and again would take all the time that there is.
  const absl::Time begin = clock.Now();
  const absl::Duration cpu_before = ProcessCpuTime();
  ::poll(nullptr, 0, 700);
  CHECK(ProcessCpuTime() - cpu_before < (clock.Now() - begin) / 4);
  HttpClient other(server.http_address(), secured.anybody);
  CHECK(other.Ask(Request("GET", "/healthz")).status == 200);
  // Whatever it says in TLS or in its place, it hangs up.
  for (HttpClient& client : silent) {
    char bytes[4096];
    ssize_t count = 0;
    while ((count = ::recv(client.fd(), bytes, sizeof bytes, 0)) > 0) {
    }
    // A connection of which bytes were never read is reset.
    CHECK((count == 0 || errno == ECONNRESET));
  }
  // Long before the patience of this client.
  CHECK(clock.Now() - begin < 10 * kPatience);
}

TEST_CASE("Who goes away in the middle of a handshake or of a record leaves nothing") {
  const Secured secured;
  Runtime::Options options = secured.Options(false);
  options.limits.http_connections_max = 10;
  RunningServer server(std::move(options));
  // Nobody is waited for: the deadlines are far away, and each round of them would take all connections.
  for (const auto& stop : HalfSpoken(server, secured.anybody)) {
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 5; ++i) stop();
      for (int tries = 0;; ++tries) {
        HttpClient client(server.http_address(), secured.anybody);
        if (client.is_connected() && client.Ask(Request("GET", "/healthz")).status == 200) break;
        REQUIRE(tries < 10'000);
      }
    }
  }
}

TEST_CASE("Who speaks in the clear where TLS is spoken is told so") {
  const Secured secured;
  RunningServer server(secured.Options(false));
  HttpClient client(server.http_address());
  const HttpAnswer answer = client.Ask(Request("GET", "/healthz"));
  CHECK(answer.status == 400);
  CHECK_THAT(answer.body, Contains("https://"));
}

TEST_CASE("With authorities a client must show a certificate that one of them signed") {
  const Secured secured;
  RunningServer server(secured.Options(true));
  // The client of TLS 1.3 learns of it when it reads.
  HttpClient nobody(server.http_address(), secured.anybody);
  CHECK(nobody.Ask(Request("GET", "/healthz")).status == 0);
  const Certificates others(secured.directory.path(), "other");
  CertificateFiles foreign = others.Issue("foreign");
  foreign.authorities = secured.certificates.authority();
  HttpClient stranger(server.http_address(), foreign);
  CHECK(stranger.Ask(Request("GET", "/healthz")).status == 0);
  HttpClient known(server.http_address(), secured.certificates.Issue("known"));
  CHECK(known.Ask(Request("GET", "/healthz")).status == 200);
}

TEST_CASE("The certificate of a client is its identity: its alternative names, or else its common name") {
  const Secured secured;
  RunningServer server(secured.Options(true));
  const CertificateFiles plain = secured.certificates.Issue("edge-7");
  const CertificateFiles named = secured.certificates.Issue("edge-8", "DNS:edge-8.example.org");
  const auto create = [&](HttpClient& client, const std::string& name, const std::string& certificate, v1::Role role,
                          const std::string& fields) {
    v1::CreateTokenRequest request;
    request.set_request_id(name);
    request.set_name(name);
    request.add_roles(role);
    request.set_certificate(certificate);
    return client.Ask(
        Post("/sheaf.v1.AccessService/CreateToken", "application/proto", request.SerializeAsString(), fields));
  };
  HttpClient first(server.http_address(), plain);
  v1::CreateTokenResponse admin;
  REQUIRE(admin.ParseFromString(create(first, "admin", "", v1::OPERATOR, "").body));
  const std::string shown = fmt::format("authorization: Bearer {}\r\n", admin.secret());
  CHECK(first.Ask(Post(kInfo, "application/proto", "")).status == 401);
  CHECK(create(first, "edge-7", "edge-7", v1::VIEWER, shown).status == 200);
  CHECK(create(first, "edge-8", "edge-8.example.org", v1::VIEWER, shown).status == 200);
  CHECK(first.Ask(Post(kInfo, "application/proto", "")).status == 200);
  HttpClient second(server.http_address(), named);
  CHECK(second.Ask(Post(kInfo, "application/proto", "")).status == 200);
  CHECK(create(second, "more", "", v1::OPERATOR, "").status == 403);
}

TEST_CASE("A renewed certificate is served to the next connection, and the one there is goes on") {
  const Secured secured;
  RunningServer server(secured.Options(false));
  HttpClient before(server.http_address(), secured.anybody);
  REQUIRE(before.Ask(Request("GET", "/healthz")).status == 200);
  // By another authority: who trusts the old one only is not served any more.
  const Certificates others(secured.directory.path(), "other");
  const CertificateFiles renewed = others.Issue("renewed", "IP:127.0.0.1");
  std::filesystem::rename(renewed.key, secured.server.key);
  std::filesystem::rename(renewed.certificate, secured.server.certificate);
  const CertificateFiles trusts = {.authorities = others.authority()};
  bool is_served = false;
  for (int tries = 0; tries < 100'000 && !is_served; ++tries) {
    is_served = HttpClient(server.http_address(), trusts).is_connected();
  }
  CHECK(is_served);
  CHECK_FALSE(HttpClient(server.http_address(), secured.anybody).is_connected());
  CHECK(before.Ask(Request("GET", "/healthz")).status == 200);
}

}  // namespace
}  // namespace sheaf
