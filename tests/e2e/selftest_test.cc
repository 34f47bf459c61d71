// `sheaf server selftest` as users run it: against a server with TLS and tokens, one that dies, one that others use,
// and one that lies.
#include <signal.h>

#include <atomic>

#include "proto/methods.h"
#include "tests/e2e/certificates.h"
#include "tests/e2e/rounds.h"
#include "tests/e2e/rpc_relay.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

// No round of the selftest is left running.
void CheckNoneRuns(Federation& federation) {
  for (const v1::RoundState state : {v1::COLLECTING, v1::SEALING}) {
    v1::ListRoundsRequest request;
    request.add_states(state);
    const auto rounds = BlockingCall(federation.transport(), kListRounds, request);
    REQUIRE(rounds.ok());
    CHECK(rounds->rounds().empty());
  }
}

TEST_CASE("A selftest passes over TLS with a token that may submit and work; another token is told which it needs") {
  const TemporaryDirectory directory = ScratchDirectory();
  const Certificates certificates(directory.path());
  // Not the address that the connection goes to, but the name that the certificate has.
  const CertificateFiles server = certificates.Issue("server", "DNS:localhost");
  Federation federation({.server_arguments = {"--tls-cert", server.certificate, "--tls-key", server.key},
                         .security = {.tls_ca = certificates.authority()}});
  const std::string port = federation.address().substr(federation.address().find(':'));
  auto sheaf = [&](std::vector<std::string> arguments) {
    std::vector<std::string> argv = {BinaryPath("sheaf"), "--server", "localhost" + port, "--tls-ca",
                                     certificates.authority()};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return RunCommand(argv);
  };
  const std::string operators = directory.path() + "/operator";
  const std::string both = directory.path() + "/both";
  const std::string viewers = directory.path() + "/viewer";
  REQUIRE(sheaf({"token", "create", "admin", "--role", "operator", "--to", operators}).exit_code == 0);
  REQUIRE(sheaf({"--token-file", operators, "token", "create", "try", "--role", "submitter", "--role", "worker",
                 "--for", "trial", "--to", both})
              .exit_code == 0);
  REQUIRE(
      sheaf({"--token-file", operators, "token", "create", "look", "--role", "viewer", "--to", viewers}).exit_code ==
      0);
  const std::vector<std::string> selftest = {"server", "selftest", "--loops", "1", "--workers", "8", "-o", "json"};
  auto with = [&](const std::string& token, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--token-file", token});
    return sheaf(std::move(arguments));
  };

  std::vector<std::string> in_trial = selftest;
  in_trial.insert(in_trial.begin(), {"--population", "trial"});
  const CommandRun run = with(both, in_trial);
  INFO(run.err);
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.out, Contains("\"lost\": 0") && Contains("\"duplicated\": 0") && Contains("\"roundsReleased\": 1"));

  for (const CommandRun& refused : {with(viewers, selftest), with(both, selftest)}) {
    CHECK(refused.exit_code != 0);
    CHECK(refused.out.empty());
    CHECK_THAT(refused.err, Contains("--role submitter --role worker --for default"));
  }
}

TEST_CASE("A selftest passes over HTTP/1.1, in the clear and with TLS") {
  const TemporaryDirectory directory = ScratchDirectory();
  const Certificates certificates(directory.path());
  // Not the address that the connection goes to, but the name that the certificate has.
  const CertificateFiles server = certificates.Issue("server", "DNS:localhost");
  for (const auto protocol : {ServerAddress::Protocol::kHttp, ServerAddress::Protocol::kHttps}) {
    FederationOptions options = {.protocol = protocol};
    const bool has_tls = protocol == ServerAddress::Protocol::kHttps;
    if (has_tls) options.server_arguments = {"--tls-cert", server.certificate, "--tls-key", server.key};
    if (has_tls) options.security = {.tls_ca = certificates.authority()};
    Federation federation(options);
    std::string address = federation.address();
    if (has_tls) address.replace(address.find("127.0.0.1"), 9, "localhost");
    std::vector<std::string> argv = {BinaryPath("sheaf"), "--server", address, "server", "selftest", "--loops", "2",
                                     "--workers",         "8",        "-o",    "json"};
    if (has_tls) argv.insert(argv.end(), {"--tls-ca", certificates.authority()});
    const CommandRun run = RunCommand(argv);
    INFO(run.err);
    CHECK(run.exit_code == 0);
    CHECK_THAT(run.out, Contains("\"lost\": 0") && Contains("\"duplicated\": 0") && Contains("\"roundsReleased\": 2"));
  }
}

TEST_CASE("A selftest goes on when its server is killed, and touches nothing of others") {
  Federation federation;
  federation.StartWorker("w1");
  const std::string round = StartRound(
      federation, OneHotRound({.num_tasks = 40, .work = absl::Milliseconds(200), .lease = absl::Minutes(5)}));
  auto selftest = ChildProcess::Start(
      {.argv = {BinaryPath("sheaf"), "--server", federation.address(), "server", "selftest", "--loops", "3"},
       .log_path = federation.directory() + "/selftest.log"});
  REQUIRE(selftest.ok());
  for (int i = 0; i < 3; ++i) {
    ::poll(nullptr, 0, 1000);
    federation.KillServer();
    federation.StartServer();
  }
  const std::string end = EndOf(*selftest, absl::Seconds(60));
  INFO(selftest->LogTail(40));
  CHECK(end == "exit code 0");
  CHECK_THAT(selftest->LogTail(40), Contains("Rounds released:                3"));
  const v1::Round others = Await(federation, round);
  CHECK(others.num_lost_attempts() == 0);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(40, 1));
  CheckNoneRuns(federation);
}

TEST_CASE("A selftest that is interrupted cancels its round") {
  Federation federation;
  auto selftest = ChildProcess::Start({.argv = {BinaryPath("sheaf"), "--server", federation.address(), "server",
                                                "selftest", "--loops", "100", "--lease", "500ms"},
                                       .log_path = federation.directory() + "/selftest.log"});
  REQUIRE(selftest.ok());
  WaitUntil("its first round runs", absl::Seconds(10), [&] {
    v1::ListRoundsRequest request;
    request.add_states(v1::COLLECTING);
    const auto rounds = BlockingCall(federation.transport(), kListRounds, request);
    return rounds.ok() && !rounds->rounds().empty();
  });
  REQUIRE(::kill(selftest->pid(), SIGINT) == 0);
  CHECK(EndOf(*selftest, absl::Seconds(20)) != "exit code 0");
  CHECK_THAT(selftest->LogTail(40), Contains("interrupted"));
  CheckNoneRuns(federation);
}

// Passes everything on but one result, of which it says itself that it is accepted.
class Liar final : public Transport {
 public:
  explicit Liar(Transport& inner) : inner_(inner) {}
  void CallMethod(std::string_view method, const google::protobuf::Message& request,
                  google::protobuf::Message* response, const CallOptions& options, Done done) override {
    auto* sync = method == kSync.name ? static_cast<const v1::SyncRequest*>(&request) : nullptr;
    if (sync == nullptr || sync->results().empty() || has_lied_.exchange(true)) {
      return inner_.CallMethod(method, request, response, options, std::move(done));
    }
    auto& answer = static_cast<v1::SyncResponse&>(*response);
    for (const v1::TaskResult& result : sync->results()) {
      v1::ResultVerdict& verdict = *answer.add_verdicts();
      verdict.set_task(result.task());
      verdict.set_lease_token(result.lease_token());
      verdict.set_verdict(v1::ResultVerdict::ACCEPTED);
    }
    done(absl::OkStatus());
  }

 private:
  Transport& inner_;
  std::atomic<bool> has_lied_ = false;
};

TEST_CASE("A server that acknowledges what it does not count fails the selftest, which names the task") {
  Federation federation;
  Liar liar(federation.impatient_transport());
  const RpcRelay relay(liar);
  const CommandRun run = RunCommand({BinaryPath("sheaf"), "--server", relay.target(), "server", "selftest", "--loops",
                                     "1", "--faults", "none", "--workers", "4", "--seed", "1"});
  INFO(run.out << run.err);
  CHECK(run.exit_code == 1);
  CHECK_THAT(run.err, Contains("was acknowledged") && Contains("seed 1"));
}

}  // namespace
}  // namespace sheaf
