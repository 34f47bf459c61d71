// HTTPS: the certificate, those of clients, and what TLS changes of reading and writing.
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

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
