// TLS as users meet it: real processes, certificates made for the occasion.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/e2e/certificates.h"
#include "tests/e2e/processes.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

constexpr char kServerNames[] = "IP:127.0.0.1,DNS:localhost";

// What the openssl client says of a handshake with the server.
std::string Handshake(const std::string& address, const std::vector<std::string>& options) {
  std::vector<std::string> argv = {"/usr/bin/openssl", "s_client", "-connect", address};
  argv.insert(argv.end(), options.begin(), options.end());
  const CommandRun run = RunCommand(argv);
  return run.out + run.err;
}

// `sheaf server info` on a machine whose trusted authorities are those of `directory`, in the place of the real ones.
CommandRun InfoWhereTrusted(const std::string& directory, const std::string& address,
                            const std::vector<std::string>& options = {}) {
  std::vector<std::string> argv = {"/usr/bin/unshare",
                                   "--user",
                                   "--map-root-user",
                                   "--mount",
                                   "/bin/sh",
                                   "-c",
                                   "mount --bind \"$1\" /etc/ssl/certs && shift && exec \"$@\"",
                                   "sh",
                                   directory,
                                   BinaryPath("sheaf"),
                                   "--server",
                                   address};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), {"server", "info"});
  return RunCommand(argv);
}

TEST_CASE("Over HTTPS --tls-ca means the authorities of that file, and none that the machine trusts besides") {
  const TemporaryDirectory directory = ScratchDirectory();
  const Certificates certificates(directory.path());
  const Certificates others(directory.path(), "other");
  const CertificateFiles server = certificates.Issue("server", kServerNames);
  // As Debian has it: all in one file, and each by its hash.
  const std::string trusted = directory.path() + "/trusted";
  std::filesystem::create_directory(trusted);
  std::filesystem::copy_file(certificates.authority(), trusted + "/ca-certificates.crt");
  std::filesystem::copy_file(certificates.authority(), trusted + "/ours.pem");
  REQUIRE(RunCommand({"/usr/bin/openssl", "rehash", trusted}).exit_code == 0);
  Federation federation({.server_arguments = {"--tls-cert", server.certificate, "--tls-key", server.key},
                         .security = {.tls_ca = certificates.authority()},
                         .protocol = ServerAddress::Protocol::kHttps});
  if (RunCommand({"/usr/bin/unshare", "--user", "--map-root-user", "--mount", "/bin/mount", "--bind", trusted,
                  "/etc/ssl/certs"})
          .exit_code != 0) {
    WARN("this system gives nobody a mount namespace: not tried");
    return;
  }
  const CommandRun of_machine = InfoWhereTrusted(trusted, federation.address());
  INFO(of_machine.err);
  CHECK(of_machine.exit_code == 0);
  CHECK(InfoWhereTrusted(trusted, federation.address(), {"--tls-ca", "system"}).exit_code == 0);
  CHECK(InfoWhereTrusted(trusted, federation.address(), {"--tls-ca", certificates.authority()}).exit_code == 0);
  const CommandRun of_another = InfoWhereTrusted(trusted, federation.address(), {"--tls-ca", others.authority()});
  CHECK(of_another.exit_code == 5);
  CHECK_THAT(of_another.err, Contains("authorities"));
}

TEST_CASE("Over TLS a round runs as it does without: server, worker and command line with one authority") {
  const TemporaryDirectory directory = ScratchDirectory();
  const Certificates certificates(directory.path());
  const CertificateFiles server = certificates.Issue("server", kServerNames);
  Federation federation({.server_arguments = {"--tls-cert", server.certificate, "--tls-key", server.key},
                         .security = {.tls_ca = certificates.authority()}});
  federation.StartWorker("w1");
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = 6}));
  CHECK(Await(federation, round).state() == v1::SUCCEEDED);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(6, 1));
  const CommandRun listed = federation.Sheaf({"round", "list"});
  CHECK(listed.exit_code == 0);
  CHECK_THAT(listed.out, Contains(round));
  CHECK_THAT(federation.server().LogTail(20), Contains("with TLS"));
  // Who speaks in the clear, or trusts another authority, is not let in and told where it failed.
  const Certificates others(directory.path(), "other");
  const CommandRun clear = RunCommand({BinaryPath("sheaf"), "--server", federation.address(), "server", "info"});
  CHECK(clear.exit_code == 5);
  CHECK_THAT(clear.err, Contains("hint: somebody listens there and hangs up") && Contains("--tls-ca"));
  const CommandRun wrong = RunCommand(
      {BinaryPath("sheaf"), "--server", federation.address(), "--tls-ca", others.authority(), "server", "info"});
  CHECK(wrong.exit_code == 5);
  CHECK_THAT(wrong.err, Contains(federation.address()));
  CHECK_THAT(wrong.err,
             Contains("hint: somebody answers there whose certificate none of --tls-ca's authorities signed"));
  // Two lines, and none of gRPC's own.
  CHECK(std::count(wrong.err.begin(), wrong.err.end(), '\n') == 2);
  const CertificateFiles elsewhere = certificates.Issue("elsewhere", "DNS:sheaf.example");
  Federation named({.server_arguments = {"--tls-cert", elsewhere.certificate, "--tls-key", elsewhere.key},
                    .security = {.tls_ca = certificates.authority()}});
  CHECK_THAT(named.Sheaf({"server", "info"}).err, Contains("hint: the certificate is for other names"));
  Federation plain;
  const CommandRun over_tls = RunCommand(
      {BinaryPath("sheaf"), "--server", plain.address(), "--tls-ca", certificates.authority(), "server", "info"});
  CHECK_THAT(over_tls.err, Contains("hint: the server does not speak TLS"));
}

TEST_CASE(
    "Over HTTPS a worker with a certificate of its own works, a server's restart included, and strangers are told "
    "why") {
  const TemporaryDirectory directory = ScratchDirectory();
  const Certificates certificates(directory.path());
  const Certificates others(directory.path(), "other");
  const CertificateFiles server = certificates.Issue("server", kServerNames);
  const CertificateFiles client = certificates.Issue("edge");
  const CertificateFiles stranger = others.Issue("stranger");
  Federation federation(
      {.server_arguments = {"--tls-cert", server.certificate, "--tls-key", server.key, "--tls-client-ca",
                            certificates.authority()},
       .security = {.tls_ca = certificates.authority(), .tls_cert = client.certificate, .tls_key = client.key},
       .protocol = ServerAddress::Protocol::kHttps});
  federation.StartWorker("w1", {"--concurrency", "2"});
  // Larger than what goes with a Sync.
  const std::string round =
      StartRound(federation, OneHotRound({.num_tasks = 12, .work = absl::Milliseconds(100), .size = 400'000}));
  WaitUntil("some are in", absl::Seconds(20),
            [&] { return RoundOf(federation.transport(), round).num_contributions() >= 3; });
  federation.KillServer();
  federation.StartServer();
  CHECK(Await(federation, round).state() == v1::SUCCEEDED);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(12, 1));
  // The worker's next call shows the new one, on a connection of its own.
  certificates.Issue("edge");
  const std::string next = StartRound(federation, OneHotRound({.num_tasks = 4}));
  CHECK(Await(federation, next).state() == v1::SUCCEEDED);
  const std::vector<std::string> without = {
      BinaryPath("sheaf"), "--server", federation.address(), "--tls-ca", certificates.authority(), "server", "info"};
  const CommandRun unknown = RunCommand(without);
  CHECK(unknown.exit_code == 5);
  CHECK_THAT(unknown.err, Contains("it may want a certificate of yours (--tls-cert, --tls-key)"));
  std::vector<std::string> strange = without;
  strange.insert(strange.end(), {"--tls-cert", stranger.certificate, "--tls-key", stranger.key});
  CHECK(RunCommand(strange).exit_code == 5);
  // The server's own certificate is of no authority that this machine, or this command, trusts.
  const CommandRun unbelieved = RunCommand({BinaryPath("sheaf"), "--server", federation.address(), "server", "info"});
  CHECK(unbelieved.exit_code == 5);
  CHECK_THAT(unbelieved.err, Contains("name the authorities that signed it with --tls-ca"));
  const CommandRun wrong = RunCommand(
      {BinaryPath("sheaf"), "--server", federation.address(), "--tls-ca", others.authority(), "server", "info"});
  CHECK_THAT(wrong.err, Contains("its certificate is not to be believed"));
  // Two lines.
  CHECK(std::count(wrong.err.begin(), wrong.err.end(), '\n') == 2);
}

TEST_CASE("A port that speaks something else is named: gRPC, HTTP, with TLS or without") {
  const TemporaryDirectory directory = ScratchDirectory();
  const Certificates certificates(directory.path());
  const CertificateFiles server = certificates.Issue("server", kServerNames);
  for (const bool has_tls : {false, true}) {
    const std::string http_port_file = directory.path() + (has_tls ? "/port-tls" : "/port");
    FederationOptions options = {.server_arguments = {"--http", "127.0.0.1:0", "--http-port-file", http_port_file}};
    if (has_tls) {
      options.server_arguments.insert(options.server_arguments.end(),
                                      {"--tls-cert", server.certificate, "--tls-key", server.key});
      options.security = {.tls_ca = certificates.authority()};
    }
    Federation federation(options);
    WaitUntil("HTTP is served", absl::Seconds(10), [&] { return std::filesystem::exists(http_port_file); });
    std::string http;
    std::getline(std::ifstream(http_port_file) >> std::ws, http);
    struct Row {
      std::string address;
      std::string says;
    };
    const std::vector<Row> rows =
        has_tls ? std::vector<Row>{{"http://" + http, "speaks TLS"},
                                   {"http://" + federation.address(), "hung up without an answer"},
                                   {"https://" + federation.address(), "if it speaks gRPC, give HOST:PORT"},
                                   {http, "that is a port of HTTP/1.1: write https://"}}
                : std::vector<Row>{{"https://" + http, "give http:// and not https://"},
                                   {"https://" + federation.address(), "if it speaks gRPC, HOST:PORT"},
                                   {"http://" + federation.address(), "if this is the port of gRPC, HOST:PORT"},
                                   {http, "that is a port of HTTP/1.1: write http://"}};
    for (const Row& row : rows) {
      INFO(row.address);
      std::vector<std::string> argv = {BinaryPath("sheaf"), "--server", row.address, "server", "info"};
      if (has_tls && !row.address.starts_with("http://")) {
        argv.insert(argv.end(), {"--tls-ca", certificates.authority()});
      }
      const CommandRun run = RunCommand(argv);
      CHECK(run.exit_code != 0);
      CHECK_THAT(run.err, Contains(row.says));
    }
  }
}

TEST_CASE("TLS 1.2 and 1.3 are spoken, older versions are not") {
  const TemporaryDirectory directory = ScratchDirectory();
  const Certificates certificates(directory.path());
  const CertificateFiles server = certificates.Issue("server", kServerNames);
  Federation federation({.server_arguments = {"--tls-cert", server.certificate, "--tls-key", server.key},
                         .security = {.tls_ca = certificates.authority()}});
  const std::string& address = federation.address();
  const std::vector<std::string> trust = {"-CAfile", certificates.authority(), "-alpn", "h2"};
  for (const std::string version : {"-tls1_2", "-tls1_3"}) {
    std::vector<std::string> options = trust;
    options.push_back(version);
    CHECK_THAT(Handshake(address, options), Contains("Verification: OK") && !Contains("Cipher is (NONE)"));
  }
  for (const std::string version : {"-tls1", "-tls1_1"}) {
    std::vector<std::string> options = trust;
    // Or the client would not even offer them.
    options.insert(options.end(), {version, "-cipher", "DEFAULT@SECLEVEL=0"});
    CHECK_THAT(Handshake(address, options), Contains("Cipher is (NONE)"));
  }
}

TEST_CASE("With --tls-client-ca only who shows a certificate of that authority gets in") {
  const TemporaryDirectory directory = ScratchDirectory();
  const Certificates certificates(directory.path());
  const Certificates others(directory.path(), "other");
  const CertificateFiles server = certificates.Issue("server", kServerNames);
  const CertificateFiles client = certificates.Issue("client");
  const CertificateFiles stranger = others.Issue("stranger");
  Federation federation(
      {.server_arguments = {"--tls-cert", server.certificate, "--tls-key", server.key, "--tls-client-ca",
                            certificates.authority()},
       .security = {.tls_ca = certificates.authority(), .tls_cert = client.certificate, .tls_key = client.key}});
  CHECK(federation.Sheaf({"server", "info"}).exit_code == 0);
  const std::vector<std::string> plain = {
      BinaryPath("sheaf"), "--server", federation.address(), "--tls-ca", certificates.authority(), "server", "info"};
  CHECK(RunCommand(plain).exit_code == 5);
  std::vector<std::string> strange = plain;
  strange.insert(strange.end(), {"--tls-cert", stranger.certificate, "--tls-key", stranger.key});
  CHECK(RunCommand(strange).exit_code == 5);
}

TEST_CASE("A renewed certificate is served without a restart") {
  const TemporaryDirectory directory = ScratchDirectory();
  const Certificates certificates(directory.path());
  const CertificateFiles server = certificates.Issue("server", kServerNames);
  Federation federation({.server_arguments = {"--tls-cert", server.certificate, "--tls-key", server.key},
                         .security = {.tls_ca = certificates.authority()}});
  const auto serial = [&] {
    const std::string shown = Handshake(federation.address(), {"-CAfile", certificates.authority(), "-alpn", "h2"});
    const size_t begin = shown.find("-----BEGIN CERTIFICATE-----");
    REQUIRE(begin != std::string::npos);
    return shown.substr(begin, shown.find("-----END", begin) - begin);
  };
  const std::string first = serial();
  CHECK(serial() == first);
  certificates.Issue("server", kServerNames);
  const absl::Time start = federation.clock().Now();
  WaitUntil("the new certificate is served", absl::Seconds(20), [&] { return serial() != first; });
  Measured("served after {}", absl::FormatDuration(federation.clock().Now() - start));
  CHECK(federation.Sheaf({"server", "info"}).exit_code == 0);
}

TEST_CASE("A renewed certificate that cannot work cuts nobody off: the one before is served, and people are told") {
  const TemporaryDirectory directory = ScratchDirectory();
  const Certificates certificates(directory.path());
  const CertificateFiles server = certificates.Issue("server", kServerNames);
  const CertificateFiles other = certificates.Issue("other", kServerNames);
  const std::string own_key = directory.path() + "/own.key";
  std::filesystem::copy_file(server.key, own_key);
  Federation federation({.server_arguments = {"--tls-cert", server.certificate, "--tls-key", server.key},
                         .security = {.tls_ca = certificates.authority()}});
  // These are valid for two days.
  CHECK_THAT(federation.server().LogTail(20), Contains("expires on"));
  CHECK_THAT(federation.Sheaf({"server", "info"}).out, Contains("Certificate:") && Contains("valid until"));

  std::filesystem::rename(other.key, server.key);
  WaitUntil("somebody is told", absl::Seconds(20), [&] {
    return federation.server().LogTail(20).find("the renewed certificate is not served") != std::string::npos;
  });
  // Longer than gRPC takes to look again.
  const absl::Time looked = federation.clock().Now() + absl::Seconds(3);
  while (federation.clock().Now() < looked) {
    const CommandRun info = federation.Sheaf({"server", "info"});
    INFO(info.err);
    REQUIRE(info.exit_code == 0);
    CHECK_THAT(info.out, Contains("Renewed one:") && Contains("is not the key of"));
  }
  // With its key in place again all is well; and so it is with the next renewal.
  std::filesystem::rename(own_key, server.key);
  WaitUntil("all is well", absl::Seconds(20), [&] {
    return federation.Sheaf({"server", "info"}).out.find("Renewed one:") == std::string::npos;
  });
  certificates.Issue("server", kServerNames);
  WaitUntil("the new one is served", absl::Seconds(20), [&] {
    return federation.server().LogTail(20).find("serving with the renewed certificate") != std::string::npos;
  });
  CHECK(federation.Sheaf({"server", "info"}).exit_code == 0);
}

TEST_CASE(
    "A renewed pair of a worker that cannot work does not cut it off: the one before is shown, and the worker says "
    "so") {
  const TemporaryDirectory directory = ScratchDirectory();
  const Certificates certificates(directory.path());
  const CertificateFiles server = certificates.Issue("server", kServerNames);
  const CertificateFiles client = certificates.Issue("client");
  const CertificateFiles other = certificates.Issue("other");
  const std::string own_key = directory.path() + "/own.key";
  std::filesystem::copy_file(client.key, own_key);
  Federation federation(
      {.server_arguments = {"--tls-cert", server.certificate, "--tls-key", server.key, "--tls-client-ca",
                            certificates.authority()},
       .security = {.tls_ca = certificates.authority(), .tls_cert = client.certificate, .tls_key = client.key}});
  ChildProcess& worker = federation.StartWorker("w1");
  const auto run_round = [&] {
    const std::string round = StartRound(federation, OneHotRound({.num_tasks = 2}));
    CHECK(Await(federation, round).state() == v1::SUCCEEDED);
  };
  run_round();

  std::filesystem::rename(other.key, client.key);
  WaitUntil("the worker says so", absl::Seconds(20), [&] {
    run_round();
    return worker.LogTail(20).find("the renewed files of TLS are not used") != std::string::npos;
  });
  CHECK_THAT(worker.LogTail(20), Contains("is not the key of"));
  // Everybody connects anew.
  federation.StopServer();
  federation.StartServer();
  run_round();

  // Renewed well, it is used at once.
  std::filesystem::rename(own_key, client.key);
  certificates.Issue("client");
  WaitUntil("the worker uses it", absl::Seconds(20), [&] {
    run_round();
    return worker.LogTail(40).find("connecting with the renewed files of TLS") != std::string::npos;
  });
  run_round();
}

TEST_CASE("Files that cannot work are refused at start, each with its name and what is wrong") {
  const TemporaryDirectory directory = ScratchDirectory();
  const Certificates certificates(directory.path());
  const CertificateFiles server = certificates.Issue("server", kServerNames);
  const CertificateFiles other = certificates.Issue("other", kServerNames);
  const std::string open = directory.path() + "/open.key";
  std::filesystem::copy_file(server.key, open);
  std::filesystem::permissions(open, std::filesystem::perms(0644));
  const std::string text = directory.path() + "/text.pem";
  std::ofstream(text) << "not a certificate\n";
  struct Case {
    std::string certificate;
    std::string key;
    std::string client_ca;
    std::vector<std::string> says;
  };
  const std::vector<Case> cases = {
      {"/no/such.pem", server.key, "", {"/no/such.pem", "No such file"}},
      {server.certificate, "/no/such.key", "", {"/no/such.key", "No such file"}},
      {text, server.key, "", {text, "BEGIN CERTIFICATE"}},
      {server.certificate, other.key, "", {other.key, "is not the key of", server.certificate}},
      {server.certificate, server.certificate, "", {"no private key", server.certificate}},
      {server.certificate, open, "", {open, "chmod 600"}},
      {server.certificate, server.key, text, {text, "authority"}},
  };
  for (const Case& wrong : cases) {
    std::vector<std::string> argv = {BinaryPath("sheafd"), "--listen",        "127.0.0.1:0", "--store", "memory",
                                     "--tls-cert",         wrong.certificate, "--tls-key",   wrong.key};
    if (!wrong.client_ca.empty()) argv.insert(argv.end(), {"--tls-client-ca", wrong.client_ca});
    const CommandRun run = RunCommand(argv);
    INFO(run.err);
    CHECK(run.exit_code == 1);
    for (const std::string& word : wrong.says) CHECK_THAT(run.err, Contains(word));
  }
}

TEST_CASE("Clients refuse files that cannot work, and to show a token where everybody can read it") {
  const TemporaryDirectory directory = ScratchDirectory();
  const std::string token = directory.path() + "/token";
  std::ofstream(token) << "sheaf_secretsecretsecret\n";
  std::filesystem::permissions(token, std::filesystem::perms(0600));
  const auto sheaf = [&](std::vector<std::string> options) {
    options.insert(options.begin(), BinaryPath("sheaf"));
    options.insert(options.end(), {"server", "info"});
    return RunCommand(options);
  };
  CHECK_THAT(sheaf({"--tls-ca", "/no/ca.pem"}).err, Contains("/no/ca.pem") && Contains("No such file"));
  const CommandRun listing = RunCommand({BinaryPath("sheaf"), "--tls-ca", "/no/ca.pem", "round", "list"});
  CHECK_THAT(listing.err, Contains("hint: --tls-ca") && !Contains("round list"));
  CHECK_THAT(sheaf({"--tls-cert", "/no/c.pem", "--tls-key", "/no/k.pem"}).err, Contains("--tls-ca"));
  CHECK_THAT(sheaf({"--token-file", "/no/token"}).err, Contains("/no/token"));
  const CommandRun clear = sheaf({"--token-file", token, "--server", "192.0.2.1:7433"});
  CHECK(clear.exit_code == 7);
  CHECK_THAT(clear.err, Contains("in the clear") && Contains("--tls-ca") && !Contains("secretsecret"));
  const CommandRun worker =
      RunCommand({BinaryPath("sheaf-worker"), "--server", "192.0.2.1:7433", "--token-file", token});
  CHECK(worker.exit_code == 2);
  CHECK_THAT(worker.err, Contains("in the clear") && !Contains("secretsecret"));
  std::filesystem::permissions(token, std::filesystem::perms(0644));
  CHECK_THAT(sheaf({"--token-file", token}).err, Contains("chmod 600") && Contains(token));
}

}  // namespace
}  // namespace sheaf
