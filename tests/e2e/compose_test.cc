// What deploy/compose.yaml starts, without the containers: its servers with the settings that it gives them, its load
// balancer with that one's file, and a PostgreSQL of the test in place of the database's container.
#include <yaml-cpp/yaml.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <list>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/files.h"
#include "tests/e2e/certificates.h"
#include "tests/e2e/processes.h"
#include "tests/postgres/postgres_cluster.h"

namespace sheaf {
namespace {

const std::string kDeploy = SHEAF_SOURCE "/deploy/";
const std::string kSecrets = "/run/secrets/";
constexpr int kServers = 3;

std::string Content(const std::string& path) {
  const absl::StatusOr<std::string> content = ReadFile(path);
  INFO(content.status().ToString());
  REQUIRE(content.ok());
  return *content;
}

// Fails the test if `from` is not there: then the file says something else than the test believes.
std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  INFO(text);
  INFO(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// Members of "<<" are those that the map does not have itself.
std::map<std::string, YAML::Node> Members(const YAML::Node& map) {
  std::map<std::string, YAML::Node> members;
  for (const auto& member : map) members[member.first.Scalar()] = member.second;
  const auto merged = members.find("<<");
  if (merged == members.end()) return members;
  std::map<std::string, YAML::Node> all = Members(merged->second);
  members.erase(merged);
  for (const auto& [name, value] : members) all[name] = value;
  return all;
}

std::vector<std::string> Words(const YAML::Node& list) { return list.as<std::vector<std::string>>(); }

using Service = std::map<std::string, YAML::Node>;

struct Composition {
  Composition() : file(Members(YAML::LoadFile(kDeploy + "compose.yaml"))) {
    for (const auto& [name, service] : Members(file.at("services"))) services[name] = Members(service);
    for (const auto& [name, service] : services) {
      if (service.contains("entrypoint") && Words(service.at("entrypoint")).front() == "sheafd")
        servers.push_back(name);
    }
    REQUIRE(servers.size() == kServers);
  }

  // "NAME=VALUE", as it is written.
  static std::vector<std::string> EnvironmentOf(const Service& service) {
    std::vector<std::string> environment;
    for (const auto& [name, value] : Members(service.at("environment"))) {
      environment.push_back(fmt::format("{}={}", name, value.Scalar()));
    }
    return environment;
  }

  const std::map<std::string, YAML::Node> file;
  std::map<std::string, Service> services;
  std::vector<std::string> servers;
};

TEST_CASE("The server takes each setting that compose.yaml gives it, and each secret that is asked for is given") {
  const Composition composition;
  const auto secrets = Members(composition.file.at("secrets"));
  const auto volumes = Members(composition.file.at("volumes"));
  for (const auto& [name, service] : composition.services) {
    INFO(name);
    std::set<std::string> given;
    if (service.contains("secrets")) {
      for (const std::string& secret : Words(service.at("secrets"))) {
        given.insert(secret);
        REQUIRE(secrets.contains(secret));
        CHECK(Members(secrets.at(secret)).at("file").Scalar() == "secrets/" + secret);
      }
    }
    std::set<std::string> asked;
    if (service.contains("environment")) {
      for (const auto& [variable, value] : Members(service.at("environment"))) {
        if (value.Scalar().starts_with(kSecrets)) asked.insert(value.Scalar().substr(kSecrets.size()));
      }
    }
    CHECK(asked == given);
    for (const std::string& volume : Words(service.at("volumes"))) {
      const std::string from = volume.substr(0, volume.find(':'));
      if (from.starts_with("./")) {
        CHECK(std::filesystem::exists(kDeploy + from));
      } else {
        CHECK(volumes.contains(from));
      }
    }
  }
  std::set<std::string> directories;
  for (const std::string& name : composition.servers) {
    const Service& service = composition.services.at(name);
    const CommandRun config =
        RunCommand({BinaryPath("sheafd"), "--print-config"}, {.environment = Composition::EnvironmentOf(service)});
    INFO(config.out << config.err);
    REQUIRE(config.exit_code == 0);
    std::map<std::string, std::string> values;
    std::istringstream lines(config.out);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string setting, value, from, variable;
      words >> setting >> value >> from >> variable;
      if (from == "env") values[variable] = value;
    }
    for (const auto& [variable, value] : Members(service.at("environment"))) {
      if (variable.starts_with("SHEAF_")) CHECK(values[variable] == value.Scalar());
    }
    // Each has a directory of its own, where its settings say.
    REQUIRE(service.at("volumes").size() == 1);
    const std::string volume = Words(service.at("volumes")).front();
    CHECK(volume.substr(volume.find(':') + 1) == values["SHEAF_DATA_DIR"]);
    directories.insert(volume);
  }
  CHECK(directories.size() == kServers);
}

// Its image makes the volume a directory of the image's user, in which everybody may make theirs, and which only that
// user may close to others, as PostgreSQL wants of its data.
TEST_CASE("The database of compose.yaml, which runs as whoever starts it, has a directory of its own in its volume") {
  const Composition composition;
  const Service& database = composition.services.at("database");
  REQUIRE(database.contains("user"));
  const std::string volume = Words(database.at("volumes")).front();
  const std::string mount = volume.substr(volume.find(':') + 1);
  const std::string data = Members(database.at("environment")).at("PGDATA").Scalar();
  INFO(mount << " " << data);
  CHECK(data.starts_with(mount + "/"));
}

TEST_CASE("The images of compose.yaml are in the Dockerfile, and are made from what is there") {
  const Composition composition;
  std::set<std::string> stages;
  std::istringstream lines(Content(kDeploy + "Dockerfile"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    std::vector<std::string> rest;
    for (std::string each; words >> each;) rest.push_back(each);
    if (word == "FROM") {
      REQUIRE(rest.size() == 3);
      stages.insert(rest[2]);
    }
    if (word != "COPY") continue;
    INFO(line);
    if (rest.front().starts_with("--from=")) {
      CHECK(stages.contains(rest.front().substr(7)));
      for (size_t i = 1; i + 1 < rest.size(); ++i) {
        CHECK(std::filesystem::exists(BinaryPath(std::filesystem::path(rest[i]).filename())));
      }
    } else {
      for (size_t i = 0; i + 1 < rest.size(); ++i) CHECK(std::filesystem::exists(SHEAF_SOURCE "/" + rest[i]));
    }
  }
  int num_built = 0;
  for (const auto& [name, service] : composition.services) {
    INFO(name);
    if (!service.contains("build")) continue;
    ++num_built;
    const auto build = Members(service.at("build"));
    CHECK(std::filesystem::equivalent(kDeploy + build.at("context").Scalar(), SHEAF_SOURCE));
    CHECK(std::filesystem::equivalent(SHEAF_SOURCE "/" + build.at("dockerfile").Scalar(), kDeploy + "Dockerfile"));
    CHECK(stages.contains(build.at("target").Scalar()));
  }
  CHECK(num_built == kServers + 1);
}

TEST_CASE(
    "What compose.yaml starts is three servers of one store, which are called at one address with TLS and a token") {
  const Composition composition;
  PostgresDatabase database;
  const TemporaryDirectory scratch = ScratchDirectory();
  const std::string& directory = scratch.path();
  const Certificates authority(directory);
  authority.Issue("server", "DNS:localhost");
  std::ofstream(directory + "/pgpass") << "database:5432:sheaf:sheaf:password\n";
  std::filesystem::permissions(directory + "/pgpass", std::filesystem::perms(0600));
  const std::string store = database.cluster().TcpConninfo(database.name());

  // Here names of containers are ports, and their files are the test's.
  std::string balancing = Content(kDeploy + "haproxy.cfg");
  std::map<std::string, std::vector<std::string>> environments;
  std::map<std::string, std::string> addresses;
  for (const std::string& name : composition.servers) {
    addresses[name] = fmt::format("127.0.0.1:{}", FreePort());
    for (std::string variable : Composition::EnvironmentOf(composition.services.at(name))) {
      if (variable.find(kSecrets) != std::string::npos) variable = Replaced(variable, kSecrets, directory + "/");
      if (variable.starts_with("SHEAF_LISTEN=")) variable = Replaced(variable, "0.0.0.0:7433", addresses[name]);
      if (variable.starts_with("SHEAF_DATA_DIR=")) variable = fmt::format("SHEAF_DATA_DIR={}/{}", directory, name);
      if (variable.starts_with("SHEAF_STORE=")) {
        variable = Replaced(variable, "postgresql://sheaf@database/sheaf", store);
      }
      environments[name].push_back(variable);
    }
    balancing = Replaced(balancing, fmt::format("server {0} {0}:7433", name),
                         fmt::format("server {} {}", name, addresses[name]));
  }
  const std::string port = fmt::format("{}", FreePort());
  balancing = Replaced(balancing, "bind :7433", "bind 127.0.0.1:" + port);
  CHECK(Words(composition.services.at("balancer").at("ports")) == std::vector<std::string>{"7433:7433"});
  std::ofstream(directory + "/haproxy.cfg") << balancing;

  const std::string token = directory + "/admin.token";
  const CommandRun made = RunCommand({BinaryPath("sheafd"), "--create-operator-token"},
                                     {.environment = environments[composition.servers.front()]});
  INFO(made.err);
  REQUIRE(made.exit_code == 0);
  std::ofstream(token) << made.out;
  std::filesystem::permissions(token, std::filesystem::perms(0600));

  std::list<ChildProcess> processes;
  const auto start = [&](const std::string& name, std::vector<std::string> argv) {
    auto process =
        ChildProcess::Start({.argv = std::move(argv), .log_path = fmt::format("{}/{}.log", directory, name)});
    INFO(process.status().ToString());
    REQUIRE(process.ok());
    processes.push_back(*std::move(process));
  };
  for (const std::string& name : composition.servers) {
    std::vector<std::string> argv = environments[name];
    argv.insert(argv.begin(), "/usr/bin/env");
    argv.push_back(BinaryPath("sheafd"));
    start(name, argv);
  }
  std::vector<std::string> argv = Words(composition.services.at("balancer").at("entrypoint"));
  const std::string mounted = Words(composition.services.at("balancer").at("volumes")).front();
  CHECK(mounted == fmt::format("./haproxy.cfg:{}:ro", argv.back()));
  argv.front() = "/usr/sbin/" + argv.front();
  argv.back() = directory + "/haproxy.cfg";
  start("balancer", argv);

  CommandRun listed;
  const auto count = [&](const std::string& word) {
    size_t number = 0;
    for (size_t at = 0; (at = listed.out.find(word, at)) != std::string::npos; ++at) ++number;
    return number;
  };
  WaitUntil("three servers are listed", absl::Seconds(20), [&] {
    for (ChildProcess& process : processes) {
      if (!process.IsRunning()) FAIL(process.log_path() << ": " << process.LogTail(20));
    }
    listed = RunCommand({BinaryPath("sheaf"), "--server", "localhost:" + port, "--tls-ca", authority.authority(),
                         "--token-file", token, "server", "list"});
    return count(" WAITING ") == kServers - 1;
  });
  INFO(listed.out << listed.err);
  CHECK(count(" OWNER ") == 1);
  for (const auto& [name, address] : addresses) CHECK(count(" " + address + " ") == 1);
  // Whoever has no token is not served.
  const CommandRun refused = RunCommand(
      {BinaryPath("sheaf"), "--server", "localhost:" + port, "--tls-ca", authority.authority(), "server", "list"});
  INFO(refused.out << refused.err);
  CHECK(refused.exit_code != 0);
  // The check of a container's health, at the port that is its here.
  for (const auto& [name, address] : addresses) {
    std::vector<std::string> check = Words(Members(composition.services.at(name).at("healthcheck")).at("test"));
    REQUIRE(check.front() == "CMD");
    check.erase(check.begin());
    const std::string here = "/dev/tcp/127.0.0.1/";
    check.back() = Replaced(check.back(), here + "7433", here + address.substr(address.find(':') + 1));
    CHECK(RunCommand(check).exit_code == 0);
    check.back() = Replaced(check.back(), here, "/dev/tcp/127.0.0.2/");
    CHECK(RunCommand(check).exit_code != 0);
  }
  for (ChildProcess& process : processes) process.Terminate();
}

}  // namespace
}  // namespace sheaf
