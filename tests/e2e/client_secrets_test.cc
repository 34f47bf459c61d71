// What a worker and the command line write: logs, answers and errors. None of it is a token or part of a key, however
// these were named to them, however much is logged, and whatever goes wrong. Of the server: access_table_test.cc.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "sdk/cpp/client/token_file.h"
#include "tests/e2e/certificates.h"
#include "tests/e2e/processes.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

// Nothing listens there.
constexpr char kNowhere[] = "127.0.0.1:1";

// A server that asks for certificates and tokens, the files of those who may, and all that must not be written.
class SecretScene {
 public:
  SecretScene() {
    Make(admin_, {"admin", "--role", "operator"});
    // The test itself is its certificate.
    CHECK(Sheaf({"token", "create", "client", "--role", "operator", "--role", "submitter", "--certificate", "client",
                 "--token-file", admin_})
              .exit_code == 0);
    Make(worker_, {"edge", "--role", "worker", "--token-file", admin_});
    Make(revoked_, {"gone", "--role", "worker", "--token-file", admin_});
    const CommandRun listed = Sheaf({"token", "list", "--no-headers"});
    std::istringstream lines(listed.out);
    std::string id;
    for (std::string line; std::getline(lines, line);) {
      if (line.find("  gone  ") != std::string::npos) id = line.substr(0, line.find(' '));
    }
    CHECK(Sheaf({"token", "revoke", id}).exit_code == 0);
    for (const CertificateFiles& files : {client_, other_}) AddKey(files.key);
    REQUIRE(secrets_.size() > 3 + 2);
  }

  Federation& federation() { return federation_; }
  const std::string& admin() const { return admin_; }
  const std::string& worker() const { return worker_; }
  const std::string& revoked() const { return revoked_; }
  const CertificateFiles& client() const { return client_; }
  // Whose key is not that of client().
  const CertificateFiles& other() const { return other_; }
  std::string Path(const std::string& name) const { return directory_.path() + "/" + name; }

  // Nothing secret is in `text`, which has `expected`: it is what it seems to be.
  void CheckText(const std::string& text, const std::string& expected) const {
    INFO(text);
    CHECK_THAT(text, Contains(expected));
    for (const std::string& secret : secrets_) CHECK(text.find(secret) == std::string::npos);
  }
  CommandRun Sheaf(const std::vector<std::string>& words, const std::vector<std::string>& environment = {}) const {
    return federation_.Sheaf(words, {.environment = environment});
  }
  // `sheaf-worker`, which ends by itself.
  CommandRun Worker(const std::vector<std::string>& arguments) const {
    std::vector<std::string> argv = {BinaryPath("sheaf-worker"), "--log-level", "debug"};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return RunCommand(argv);
  }

 private:
  void Make(const std::string& file, std::vector<std::string> words) {
    words.insert(words.begin(), {"token", "create"});
    words.insert(words.end(), {"--to", file});
    const CommandRun run = Sheaf(words);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const absl::StatusOr<std::string> secret = ReadTokenFile(file);
    REQUIRE(secret.ok());
    secrets_.push_back(*secret);
  }
  // Any line of it would be too much.
  void AddKey(const std::string& path) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      if (line.size() > 20 && line.find("-----") == std::string::npos) secrets_.push_back(line);
    }
  }

  const TemporaryDirectory directory_ = ScratchDirectory();
  const std::string admin_ = Path("admin.token");
  const std::string worker_ = Path("worker.token");
  const std::string revoked_ = Path("revoked.token");
  const Certificates certificates_{directory_.path()};
  const CertificateFiles server_ = certificates_.Issue("server", "IP:127.0.0.1,DNS:localhost");
  const CertificateFiles client_ = certificates_.Issue("client");
  const CertificateFiles other_ = certificates_.Issue("other");
  Federation federation_{
      {.server_arguments = {"--tls-cert", server_.certificate, "--tls-key", server_.key, "--tls-client-ca",
                            certificates_.authority()},
       .security = {.tls_ca = certificates_.authority(), .tls_cert = client_.certificate, .tls_key = client_.key}}};
  std::vector<std::string> secrets_;
};

std::string LogOf(const ChildProcess& process) { return process.LogTail(1'000'000); }

TEST_CASE("A worker writes no token and nothing of a key, at the debug level, also when it is refused or alone") {
  SecretScene scene;
  Federation& federation = scene.federation();
  std::ofstream(scene.Path("worker.toml")) << "token_file = \"" << scene.worker() << "\"\n";
  const std::vector<std::string> debug = {"--log-level", "debug"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), debug.begin(), debug.end());
    return arguments;
  };
  const auto check = [&](const ChildProcess& worker, const std::string& words) {
    WaitUntil("the log says \"" + words + "\"", absl::Seconds(60),
              [&] { return LogOf(worker).find(words) != std::string::npos; });
    scene.CheckText(LogOf(worker), words);
  };
  ChildProcess& refused = federation.StartWorker("refused", with({"--token-file", scene.revoked()}));
  ChildProcess& alone = federation.StartWorker("alone", with({"--token-file", scene.worker()}), kNowhere);
  // Each has a round to itself.
  const auto work = [&](const std::string& name, const std::vector<std::string>& arguments,
                        const std::vector<std::string>& wrapper = {}) {
    const ChildProcess& worker = federation.StartWorker(name, with(arguments), "", wrapper);
    Await(federation, StartRound(federation, OneHotRound({.num_tasks = 4})));
    check(worker, "attempt 1 of");
    federation.KillWorker(name);
  };
  work("by-flag", {"--token-file", scene.worker()});
  work("by-file", {"--config", scene.Path("worker.toml")});
  work("by-environment", {}, {"/usr/bin/env", "SHEAF_TOKEN_FILE=" + scene.worker()});
  check(refused, "the server refused this worker");
  check(alone, "no answer");
}

TEST_CASE("A worker that was given the wrong files names them, and shows nothing of what is in them") {
  SecretScene scene;
  const std::string two = scene.Path("two.token");
  std::ofstream(two) << std::ifstream(scene.worker()).rdbuf() << std::ifstream(scene.admin()).rdbuf();
  std::filesystem::permissions(two, std::filesystem::perms(0600));
  const std::vector<std::string> tls = {"--server", scene.federation().address(), "--tls-ca",
                                        scene.client().authorities};
  for (const std::string& token_file : {two, scene.client().key}) {
    std::vector<std::string> arguments = tls;
    arguments.insert(arguments.end(), {"--token-file", token_file});
    const CommandRun run = scene.Worker(arguments);
    CHECK(run.exit_code == 2);
    scene.CheckText(run.out + run.err, token_file);
    const CommandRun sheaf = scene.Sheaf({"server", "info", "--token-file", token_file});
    CHECK(sheaf.exit_code == 2);
    scene.CheckText(sheaf.out + sheaf.err, token_file);
  }
  for (const std::string& key : {scene.other().key, scene.worker()}) {
    std::vector<std::string> arguments = tls;
    arguments.insert(arguments.end(), {"--tls-cert", scene.client().certificate, "--tls-key", key});
    const CommandRun run = scene.Worker(arguments);
    CHECK(run.exit_code == 2);
    scene.CheckText(run.out + run.err, key);
    const CommandRun sheaf = scene.Sheaf({"server", "info", "--tls-key", key});
    CHECK(sheaf.exit_code != 0);
    scene.CheckText(sheaf.out + sheaf.err, key);
  }
}

TEST_CASE("The command line writes no token but one that it made, and nothing of a key") {
  SecretScene scene;
  const auto check = [&](const CommandRun& run, int exit_code, const std::string& expected) {
    CHECK(run.exit_code == exit_code);
    scene.CheckText(run.out + run.err, expected);
  };
  const std::string file = "SHEAF_TOKEN_FILE=" + scene.admin();
  check(scene.Sheaf({"token", "list"}, {file}), 0, "edge");
  check(scene.Sheaf({"token", "list", "-o", "json", "--token-file", scene.admin()}), 0, "\"name\": \"edge\"");
  check(scene.Sheaf({"server", "info", "-o", "json"}, {file}), 0, "dataDirectory");
  check(scene.Sheaf({"server", "info", "--help"}, {file}), 0, "--token-file");
  check(scene.Sheaf({"token", "list", "--token-file", scene.worker()}), 4, "hint: ");
  check(scene.Sheaf({"server", "info", "--token-file", scene.revoked()}), 4, "hint: ");
  check(scene.Sheaf({"server", "info", "-s", kNowhere, "--token-file", scene.admin()}), 5, kNowhere);
  check(scene.Sheaf({"server", "info", "-s", kNowhere}, {file}), 5, kNowhere);
}

}  // namespace
}  // namespace sheaf
