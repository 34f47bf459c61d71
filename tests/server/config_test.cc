// How sheafd is told what to do: flag, environment, file, default.
#include "server/config.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

Environment Of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

// A configuration file that is gone at the end of the test.
class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) {
    char name[] = "/tmp/sheaf-config-XXXXXX";
    close(mkstemp(name));
    path_ = name;
    std::ofstream(path_) << text;
  }
  ~ConfigFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string ErrorOf(const std::vector<std::string>& arguments, const Environment& environment = Of({})) {
  const auto invocation = ParseInvocation(arguments, environment);
  REQUIRE_FALSE(invocation.ok());
  CHECK(invocation.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(invocation.status().message());
}

// To be looked at, not to be set.
std::vector<Setting> AllSettings() {
  Invocation invocation;
  const Settings settings = SettingsOf(invocation);
  return {settings.all().begin(), settings.all().end()};
}

// The line of --print-config about one setting, blanks squeezed.
std::string PrintedRow(const Invocation& invocation, const std::string& key) {
  std::istringstream lines(invocation.output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string squeezed;
    for (std::string word; words >> word;) squeezed += squeezed.empty() ? word : " " + word;
    if (squeezed.starts_with(key + " ")) return squeezed;
  }
  return "no row";
}

TEST_CASE("Without any configuration the server listens on loopback and stores in SQLite") {
  const auto invocation = ParseInvocation({}, Of({}));
  REQUIRE(invocation.ok());
  CHECK(invocation->output.empty());
  CHECK(invocation->config.listen == "127.0.0.1:7433");
  CHECK(invocation->config.store == "sqlite");
  CHECK(invocation->config.data_dir == "sheaf-data");
}

TEST_CASE("The defaults of the settings are the defaults of the limits") {
  const auto invocation = ParseInvocation({}, Of({}));
  REQUIRE(invocation.ok());
  CHECK(invocation->config.limits.ByName() == Limits().ByName());
}

TEST_CASE("A flag beats the environment, which beats the file, which beats the default") {
  const ConfigFile file("lease_default = \"11s\"\npoll_wait_max = \"12s\"\nstop_grace = \"13s\"\n");
  const auto invocation = ParseInvocation({"--config", file.path(), "--lease-default", "31s"},
                                          Of({{"SHEAF_LEASE_DEFAULT", "21s"}, {"SHEAF_POLL_WAIT_MAX", "22s"}}));
  REQUIRE(invocation.ok());
  CHECK(invocation->config.limits.lease_default == absl::Seconds(31));
  CHECK(invocation->config.limits.poll_wait_max == absl::Seconds(22));
  CHECK(invocation->config.stop_grace == absl::Seconds(13));
  CHECK(invocation->config.limits.unreferenced_keep == absl::Hours(1));
}

TEST_CASE("--print-config shows every value with where it came from") {
  const ConfigFile file("checkpoint_spool_bytes = 1048576\n");
  const auto invocation = ParseInvocation({"--config=" + file.path(), "--print-config", "--data-dir", "/srv/sheaf"},
                                          Of({{"SHEAF_STORE", "memory"}}));
  REQUIRE(invocation.ok());
  CHECK(PrintedRow(*invocation, "data_dir") == "data_dir /srv/sheaf flag --data-dir");
  CHECK(PrintedRow(*invocation, "store") == "store memory env SHEAF_STORE");
  CHECK(PrintedRow(*invocation, "checkpoint_spool_bytes") == "checkpoint_spool_bytes 1048576 file " + file.path());
  CHECK(PrintedRow(*invocation, "lease_default") == "lease_default 30s default");
  for (const Setting& setting : AllSettings()) CHECK(PrintedRow(*invocation, setting.key) != "no row");
}

TEST_CASE("The file may be named in the environment") {
  const ConfigFile file("data_dir = \"/srv/elsewhere\"\n");
  const auto invocation = ParseInvocation({}, Of({{"SHEAF_CONFIG", file.path()}}));
  REQUIRE(invocation.ok());
  CHECK(invocation->config.data_dir == "/srv/elsewhere");
}

TEST_CASE("A variable that is empty is one that is not set") {
  const ConfigFile file("lease_default = \"11s\"\n");
  std::map<std::string, std::string> variables = {{"SHEAF_CONFIG", ""}};
  for (const Setting& setting : AllSettings()) variables[setting.variable()] = "";
  auto invocation = ParseInvocation({}, Of(variables));
  INFO(invocation.status().ToString());
  REQUIRE(invocation.ok());
  CHECK(invocation->config.listen == "127.0.0.1:7433");
  CHECK(invocation->config.log_level == LogLevel::kInfo);
  // Nor does it hide what the file says.
  invocation = ParseInvocation({"--config", file.path()}, Of(variables));
  REQUIRE(invocation.ok());
  CHECK(invocation->config.limits.lease_default == absl::Seconds(11));
}

TEST_CASE("An unknown key in the file is refused and the nearest known one named") {
  const ConfigFile file("listen = \"127.0.0.1:0\"\nleese_default = \"30s\"\n");
  const std::string error = ErrorOf({"--config", file.path()});
  CHECK_THAT(error, Contains(file.path() + ":2: unknown setting leese_default"));
  CHECK_THAT(error, Contains("nearest known one is lease_default"));
}

TEST_CASE("An unknown option is refused and the nearest known one named") {
  CHECK_THAT(ErrorOf({"--data-dri", "/srv"}), Contains("unknown option --data-dri") && Contains("--data-dir"));
  CHECK_THAT(ErrorOf({"serve"}), Contains("unexpected argument \"serve\""));
  CHECK_THAT(ErrorOf({"--listen"}), Contains("--listen"));
}

TEST_CASE("A value that makes no sense is refused with its setting and where it came from") {
  CHECK(ErrorOf({}, Of({{"SHEAF_LEASE_DEFAULT", "30 bananas"}})) ==
        "lease_default: \"30 bananas\" is not a duration such as \"30s\" or \"5m\" (from env SHEAF_LEASE_DEFAULT)");
  CHECK_THAT(ErrorOf({"--checkpoint-spool-bytes", "64MB"}), Contains("is not a size") && Contains("64MiB"));
  CHECK_THAT(ErrorOf({"--checkpoint-spool-bytes", "9999999TiB"}), Contains("is not a size"));
  CHECK_THAT(ErrorOf({"--lease-default=-3s"}), Contains("is not a duration"));
  CHECK_THAT(ErrorOf({"--store", "oracle"}), Contains("choose sqlite, memory, or a PostgreSQL database"));
  CHECK_THAT(ErrorOf({"--log-level", "loud"}), Contains("choose debug"));
}

TEST_CASE("A store may be a PostgreSQL database, named as libpq takes it, without a password") {
  for (const std::string store : {"postgresql://db1,db2:5433/sheaf?target_session_attrs=read-write",
                                  "postgres://sheaf@db/sheaf?sslmode=verify-full", "host=/run/postgresql dbname=sheaf",
                                  "service=sheaf", "postgresql:///sheaf?host=/run/a:b@c"}) {
    INFO(store);
    const auto invocation = ParseInvocation({"--store", store}, Of({}));
    REQUIRE(invocation.ok());
    CHECK(invocation->config.store == store);
    CHECK(invocation->config.is_in_postgres());
  }
  for (const std::string store :
       {"postgresql://sheaf:hunter2@db/sheaf", "postgres://sheaf:hunter2@/sheaf", "host=db password=hunter2",
        "postgresql://db/sheaf?password=hunter2", "host=db sslpassword = hunter2"}) {
    const std::string error = ErrorOf({}, Of({{"SHEAF_STORE", store}}));
    CHECK_THAT(error, Contains("has a password") && Contains("PGPASSFILE") && Contains("SHEAF_STORE"));
    CHECK_THAT(error, !Contains("hunter2"));
  }
  const std::string mistyped = ErrorOf({}, Of({{"SHEAF_STORE", "postgre://sheaf:hunter2@db/sheaf"}}));
  CHECK_THAT(mistyped, Contains("is no store") && Contains("SHEAF_STORE") && !Contains("hunter2"));
  CHECK_THAT(ErrorOf({}, Of({{"SHEAF_STORE", "sqlight"}})), Contains("\"sqlight\" is no store"));
}

TEST_CASE("A file that is malformed or cannot be read is refused with its name and line") {
  const ConfigFile malformed("listen = \n");
  CHECK_THAT(ErrorOf({"--config", malformed.path()}), Contains(malformed.path() + ":1"));
  const ConfigFile nested("[listen]\nport = 3\n");
  CHECK_THAT(ErrorOf({"--config", nested.path()}), Contains("listen is neither text"));
  CHECK_THAT(ErrorOf({"--config", "/no/such/file.toml"}),
             Contains("cannot read the configuration file /no/such/file.toml"));
}

TEST_CASE("Sizes are understood in bytes and in binary units") {
  const auto invocation =
      ParseInvocation({"--broadcast-bytes-max", "3GiB", "--contribution-bytes-max", "70000"}, Of({}));
  REQUIRE(invocation.ok());
  CHECK(invocation->config.limits.broadcast_bytes_max == int64_t{3} << 30);
  CHECK(invocation->config.limits.contribution_bytes_max == 70000);
}

TEST_CASE("An address that other machines can reach is refused unless --insecure is said") {
  CHECK_THAT(ErrorOf({"--listen", "0.0.0.0:7433"}),
             Contains("without TLS") && Contains("--tls-cert") && Contains("--insecure"));
  CHECK_THAT(ErrorOf({"--listen", "[::]:7433"}), Contains("--insecure"));
  CHECK_THAT(ErrorOf({"--listen", "7433"}), Contains("is not HOST:PORT"));
  for (const std::string address : {"127.0.0.1:0", "localhost:7433", "[::1]:7433"}) {
    CHECK(ParseInvocation({"--listen", address}, Of({})).ok());
  }
  CHECK(ParseInvocation({"--listen", "0.0.0.0:7433", "--insecure"}, Of({})).ok());
  CHECK(ParseInvocation({"--listen", "0.0.0.0:7433"}, Of({{"SHEAF_INSECURE", "true"}})).ok());
}

TEST_CASE("With a certificate and its key the server may listen anywhere; half of that is refused") {
  CHECK(ParseInvocation({"--listen", "0.0.0.0:7433", "--tls-cert", "s.pem", "--tls-key", "s.key"}, Of({})).ok());
  CHECK_THAT(ErrorOf({"--tls-cert", "s.pem"}), Contains("--tls-key"));
  CHECK_THAT(ErrorOf({"--tls-key", "s.key"}), Contains("--tls-cert"));
  CHECK_THAT(ErrorOf({"--tls-client-ca", "ca.pem"}), Contains("--tls-cert"));
}

TEST_CASE("A server without room for the largest that it lets in is refused, with both settings to change") {
  CHECK_THAT(ErrorOf({"--spool-bytes-max", "512MiB"}),
             Contains("spool_bytes_max = 536870912") && Contains("contribution_bytes_max = 1073741824") &&
                 Contains("raise --spool-bytes-max, or lower --contribution-bytes-max"));
  for (const std::string flag : {"--spool-bytes-max", "--upload-bytes-max", "--memory-upload-bytes-max"}) {
    CHECK_THAT(ErrorOf({flag, "7", "--broadcast-bytes-max", "7"}),
               Contains("raise " + flag + ", or lower --contribution-bytes-max"));
  }
  CHECK_THAT(ErrorOf({"--upload-bytes-max", "2GiB"}),
             Contains("raise --upload-bytes-max, or lower --broadcast-bytes-max"));
  CHECK(ParseInvocation({"--spool-bytes-max", "1GiB"}, Of({})).ok());
  CHECK(ParseInvocation({"--spool-bytes-max", "512MiB", "--contribution-bytes-max", "512MiB"}, Of({})).ok());
}

TEST_CASE("--help and --version print and do nothing else") {
  const auto help = ParseInvocation({"--help"}, Of({}));
  REQUIRE(help.ok());
  for (const Setting& setting : AllSettings()) CHECK_THAT(help->output, Contains(setting.flag()));
  const auto version = ParseInvocation({"--version"}, Of({}));
  REQUIRE(version.ok());
  CHECK_THAT(version->output, Catch::Matchers::StartsWith("sheafd ") && Contains(" (protocol 1 to 2)"));
}

TEST_CASE("A setting of a limit has the limit's default, and sets it") {
  int num_settings = 0;
  for (const LimitRow& row : LimitRows()) {
    INFO(row.name);
    Invocation invocation;
    const Settings settings = SettingsOf(invocation);
    const Setting* setting = FindSetting(settings.all(), row.name);
    REQUIRE((setting != nullptr) == row.is_setting);
    if (setting == nullptr) continue;
    ++num_settings;
    CHECK(setting->help == row.what);
    const Limits& limits = invocation.config.limits;
    REQUIRE(setting->set(setting->default_text).ok());
    CHECK(limits.ByName() == Limits().ByName());
    REQUIRE(setting->set(row.kind == LimitKind::kTime ? "7ms" : "7").ok());
    CHECK(limits.ByName().at(row.public_name()) == 7);
  }
  CHECK(num_settings == 31);
}

}  // namespace
}  // namespace sheaf
