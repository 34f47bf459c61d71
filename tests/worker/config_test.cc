#include "worker/config.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

#include "probe/computations/noop.h"
#include "probe/computations/one_hot.h"
#include "tests/storage/temporary_directory.h"

namespace sheaf {
namespace {

// Computations called tags, over the data debian-index, noop and one_hot.
ComputationTable Table() {
  const DataSource<std::string> index = {
      .name = "debian-index", .example = "apt", .locations = "anything", .load = [](const std::string& location) {
        return location;
      }};
  return {ComputationOver("tags", index,
                          [](const v1::Lease&, const std::string&, RunControl&) {
                            return absl::StatusOr<v1::Contribution>(absl::UnimplementedError("never run"));
                          }),
          NoopComputation(), OneHotComputation()};
}

struct Sources {
  std::vector<std::string> arguments;
  std::map<std::string, std::string> variables;

  absl::StatusOr<WorkerInvocation> Parse() const {
    return ParseWorkerInvocation({.computations = Table()}, arguments,
                                 [this](const std::string& name) -> std::optional<std::string> {
                                   auto found = variables.find(name);
                                   if (found == variables.end()) return std::nullopt;
                                   return found->second;
                                 });
  }
};

// To be looked at, not to be set.
std::vector<Setting> AllSettings() {
  WorkerInvocation invocation;
  const Settings settings = SettingsOf(invocation, ProcessEnvironment());
  return {settings.all().begin(), settings.all().end()};
}

// A file that goes with the test.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    std::string pattern = (std::filesystem::temp_directory_path() / "sheaf-worker-XXXXXX").string();
    close(mkstemp(pattern.data()));
    path = pattern;
    std::ofstream(path) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path); }
  std::string path;
};

TEST_CASE("A worker needs to be told nothing") {
  absl::StatusOr<WorkerInvocation> invocation = Sources().Parse();
  REQUIRE(invocation.ok());
  const WorkerConfig& config = invocation->config;
  CHECK(config.server == "127.0.0.1:7433");
  CHECK(config.options.worker.empty());
  CHECK(config.options.concurrency == 1);
  CHECK(config.options.grace == absl::Seconds(20));
  CHECK(config.data.empty());
  CHECK(config.allow.empty());
  CHECK(invocation->output.empty());
}

TEST_CASE("A flag beats the environment, which beats the file, which beats the default") {
  TemporaryFile file("server = \"file:1\"\nconcurrency = 3\ngrace = \"5s\"\nlabel = [\"zone=eu\", \"gpu=no\"]\n");
  Sources sources{{"--server", "flag:1", "--config", file.path},
                  {{"SHEAF_SERVER", "env:1"}, {"SHEAF_CONCURRENCY", "2"}}};
  absl::StatusOr<WorkerInvocation> invocation = sources.Parse();
  INFO(invocation.status().ToString());
  REQUIRE(invocation.ok());
  CHECK(invocation->config.server == "flag:1");
  CHECK(invocation->config.options.concurrency == 2);
  CHECK(invocation->config.options.grace == absl::Seconds(5));
  CHECK(invocation->config.options.labels == std::map<std::string, std::string>{{"zone", "eu"}, {"gpu", "no"}});
}

TEST_CASE("Lists are repeated as flags and separated by commas in the environment") {
  Sources flags{
      {"--data", "debian-index=apt", "--label", "a=1", "--label", "b=2", "--allow", "tags", "--allow", "noop"}, {}};
  Sources variables{{}, {{"SHEAF_DATA", "debian-index=apt"}, {"SHEAF_LABEL", "a=1,b=2"}, {"SHEAF_ALLOW", "tags,noop"}}};
  for (const Sources& sources : {flags, variables}) {
    absl::StatusOr<WorkerInvocation> invocation = sources.Parse();
    INFO(invocation.status().ToString());
    REQUIRE(invocation.ok());
    CHECK(invocation->config.data == std::vector<std::pair<std::string, std::string>>{{"debian-index", "apt"}});
    CHECK(invocation->config.options.labels == std::map<std::string, std::string>{{"a", "1"}, {"b", "2"}});
    CHECK(invocation->config.allow == std::vector<std::string>{"tags", "noop"});
  }
}

TEST_CASE("A switch is on by its flag alone, and true or false in the file, as a truth or as text") {
  TemporaryFile truth("insecure = true\n");
  TemporaryFile text("insecure = \"true\"\n");
  TemporaryFile off("insecure = false\n");
  struct Case {
    Sources sources;
    bool is_insecure;
  };
  for (const Case& c :
       {Case{{{"--config", truth.path}, {}}, true}, Case{{{"--config", text.path}, {}}, true},
        Case{{{"--config", off.path}, {}}, false}, Case{{{"--insecure"}, {}}, true},
        Case{{{"--insecure", "true"}, {}}, true}, Case{{{"--insecure", "false", "--config", truth.path}, {}}, false},
        Case{{{"--insecure", "--concurrency", "2"}, {}}, true}, Case{{{}, {{"SHEAF_INSECURE", "true"}}}, true}}) {
    absl::StatusOr<WorkerInvocation> invocation = c.sources.Parse();
    INFO(invocation.status().ToString());
    REQUIRE(invocation.ok());
    CHECK(invocation->config.security.is_insecure == c.is_insecure);
  }
}

TEST_CASE("--print-config shows every value with where it came from") {
  TemporaryFile file("label = [\"zone=eu\", \"gpu=no\"]\n");
  absl::StatusOr<WorkerInvocation> invocation =
      Sources{{"--config", file.path, "--print-config", "--insecure"}, {{"SHEAF_GRACE", "5s"}}}.Parse();
  REQUIRE(invocation.ok());
  const std::string squeezed = std::regex_replace(invocation->output, std::regex(" +"), " ");
  for (const std::string& row : {"label zone=eu,gpu=no file " + file.path, std::string("insecure true flag --insecure"),
                                 std::string("grace 5s env SHEAF_GRACE"), std::string("server 127.0.0.1:7433 default"),
                                 std::string("token_file - default")}) {
    CHECK_THAT(squeezed, Catch::Contains("\n" + row + "\n"));
  }
  for (const Setting& setting : AllSettings()) CHECK_THAT(squeezed, Catch::Contains("\n" + setting.key + " "));
}

TEST_CASE("A variable that is empty is one that is not set") {
  Sources sources;
  sources.variables["SHEAF_CONFIG"] = "";
  for (const Setting& setting : AllSettings()) sources.variables[setting.variable()] = "";
  absl::StatusOr<WorkerInvocation> invocation = sources.Parse();
  INFO(invocation.status().ToString());
  REQUIRE(invocation.ok());
  CHECK(invocation->config.server == "127.0.0.1:7433");
  CHECK(invocation->config.log_level == LogLevel::kInfo);
}

TEST_CASE("What makes no sense is refused in one sentence that names the setting and its source") {
  TemporaryFile unknown("speed = 3\n");
  TemporaryFile broken("server = \n");
  TemporaryFile wrong("concurrency = 0\n");
  struct Case {
    Sources sources;
    std::string named;
  };
  for (const Case& c : {Case{{{"--concurrency", "many"}, {}}, "--concurrency"},
                        Case{{{}, {{"SHEAF_CONCURRENCY", "0"}}}, "SHEAF_CONCURRENCY"},
                        Case{{{"--server", "nowhere"}, {}}, "HOST:PORT"}, Case{{{"--name", "a b"}, {}}, "--name"},
                        Case{{{"--data", "moon=apt"}, {}}, "debian-index"}, Case{{{"--label", "x"}, {}}, "NAME=VALUE"},
                        Case{{{"--allow", "dreams"}, {}}, "one_hot"}, Case{{{"--grace", "soon"}, {}}, "20s"},
                        Case{{{"--log-level", "loud"}, {}}, "warning"}, Case{{{"--speed", "3"}, {}}, "--speed"},
                        Case{{{"--config", "/nowhere/worker.toml"}, {}}, "/nowhere/worker.toml"},
                        Case{{{"--config", unknown.path}, {}}, unknown.path + ":1"},
                        Case{{{"--config", broken.path}, {}}, broken.path + ":1"},
                        Case{{{"--config", wrong.path}, {}}, "concurrency"}}) {
    absl::Status status = c.sources.Parse().status();
    INFO(status.ToString());
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(status.message()), Catch::Contains(c.named));
    CHECK(status.message().find('\n') == std::string::npos);
  }
}

// A folder with what may be said to be an executable.
class Executables {
 public:
  Executables() {
    for (const auto& [name, mode] : {std::pair("count words.sh", 0755), {"plain.sh", 0644}}) {
      std::ofstream(path(name)) << "#!/bin/sh\n";
      std::filesystem::permissions(path(name), std::filesystem::perms(mode));
    }
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  const std::string& folder() const { return folder_.path(); }

 private:
  TemporaryDirectory folder_;
};

TEST_CASE("Programs of other people's are named with their computation, their limits and what they may see") {
  const Executables executables;
  const Sources sources{{"--data",
                         "people=" + executables.folder(),
                         "--run",
                         "count@7='" + executables.path("count words.sh") + "' --fast 'a b'",
                         "--serve",
                         "tags.v2=sh -c \"cat $HOME\"",
                         "--concurrency",
                         "3",
                         "--limit",
                         "tags.v2.memory=64MiB",
                         "--limit",
                         "memory=2GiB",
                         "--limit",
                         "cpu=10m",
                         "--limit",
                         "count.processes=1",
                         "--limit",
                         "count.time=1h",
                         "--env",
                         "MODE=fast,very",
                         "--env",
                         "LICENCE",
                         "--env",
                         "NOTHING=",
                         "--share-errors",
                         "--readable",
                         "/usr",
                         "--scratch",
                         executables.folder()},
                        {{"PATH", "/nowhere:/usr/bin:/bin"}, {"LICENCE", "four=4"}}};
  const absl::StatusOr<WorkerInvocation> invocation = sources.Parse();
  INFO(invocation.status().ToString());
  REQUIRE(invocation.ok());
  const ExecutableConfig& programs = invocation->config.programs;
  REQUIRE(programs.executables.size() == 2);
  const Executable& count = programs.executables[0];
  CHECK(count.name == "count");
  CHECK(count.version == 7);
  CHECK(count.arguments == std::vector<std::string>{executables.path("count words.sh"), "--fast", "a b"});
  CHECK_FALSE(count.stays);
  CHECK(count.processes_max == 1);
  CHECK(count.limits.time == absl::Hours(1));
  CHECK(count.limits.cpu == absl::Minutes(10));
  CHECK(count.limits.memory_bytes == int64_t{2} << 30);
  CHECK(count.limits.output_bytes == 1 << 30);
  const Executable& tags = programs.executables[1];
  CHECK(tags.name == "tags.v2");
  CHECK(tags.version == 1);
  // No shell has looked at it.
  CHECK(tags.arguments == std::vector<std::string>{"/usr/bin/sh", "-c", "cat $HOME"});
  CHECK(tags.stays);
  // Three run, and one is prepared.
  CHECK(tags.processes_max == 4);
  CHECK(tags.processes_ahead_max == 1);
  CHECK(count.processes_ahead_max == 0);
  CHECK(tags.limits.time == absl::InfiniteDuration());
  // The one for a computation goes before the one for all, in whatever order they were said.
  CHECK(tags.limits.memory_bytes == 64 << 20);
  CHECK(programs.surroundings.data == std::map<std::string, std::string>{{"people", executables.folder()}});
  CHECK(programs.surroundings.environment == std::vector<std::string>{"MODE=fast,very", "LICENCE=four=4", "NOTHING="});
  CHECK(programs.surroundings.readable == std::vector<std::string>{"/usr"});
  CHECK(programs.surroundings.bwrap.empty());
  CHECK(programs.surroundings.shares_errors);
  CHECK(programs.scratch == executables.folder());
  // Computations that are compiled in have none of it.
  CHECK(invocation->config.data.empty());
}

TEST_CASE(
    "A worker without programs has none of their settings, and one with them may name both kinds of computation") {
  absl::StatusOr<WorkerInvocation> invocation = Sources{{}, {}}.Parse();
  REQUIRE(invocation.ok());
  CHECK(invocation->config.programs.executables.empty());
  CHECK_FALSE(invocation->config.programs.surroundings.shares_errors);
  CHECK(invocation->config.programs.scratch == "/tmp");
  invocation = Sources{{"--run", "count=true", "--data", "debian-index=apt", "--data", "people=/usr", "--allow", "noop",
                        "--allow", "count"},
                       {{"PATH", "/usr/bin:/bin"}}}
                   .Parse();
  INFO(invocation.status().ToString());
  REQUIRE(invocation.ok());
  CHECK(invocation->config.allow == std::vector<std::string>{"noop", "count"});
  CHECK(invocation->config.data == std::vector<std::pair<std::string, std::string>>{{"debian-index", "apt"}});
  CHECK(invocation->config.programs.surroundings.data == std::map<std::string, std::string>{{"people", "/usr"}});
}

TEST_CASE("What is wrong with a program is said in one sentence that names the setting and the thing") {
  const Executables executables;
  const std::string plain = executables.path("plain.sh");
  struct Case {
    std::vector<std::string> arguments;
    // All that the sentence has in it.
    std::vector<std::string> named;
    std::string path = "/usr/bin:/bin";
  };
  for (const Case& c : std::initializer_list<Case>{
           {{"--run", "count=true", "--serve", "count=cat"}, {"\"count\"", "--run", "--serve"}},
           {{"--run", "count=true", "--run", "count@2=cat"}, {"\"count\"", "--run", "--serve"}},
           {{"--run", "count=no-such-program -x"}, {"\"count\"", "no-such-program", "PATH /usr/bin:/bin"}},
           {{"--run", "count=" + executables.folder() + "/gone.sh"}, {"\"count\"", "there is no file", "gone.sh"}},
           {{"--run", "count=" + executables.folder()}, {"\"count\"", "there is no file", executables.folder()}},
           {{"--serve", "count=" + plain}, {"\"count\"", plain + " may not be executed", "chmod +x " + plain}},
           {{"--run", "count=python3 'my model.py"}, {"--run", "the quote '", "is not closed"}},
           {{"--run", "count="}, {"--run", "there is no command"}},
           {{"--run", "count='' x"}, {"\"count\""}},
           {{"--run", "count"}, {"--run", "COMPUTATION=COMMAND"}},
           {{"--run", "=true"}, {"--run", "COMPUTATION=COMMAND"}},
           {{"--run", "count@0=true"}, {"--run", "0"}},
           {{"--run", "count@x=true"}, {"--run", "x"}},
           {{"--run", "count=true", "--limit", "fuel=3"},
            {"--limit", "there is no limit \"fuel\"", "cpu, memory, output, processes and time"}},
           {{"--run", "count=true", "--limit", "count.fuel=3"}, {"--limit", "there is no limit \"fuel\""}},
           {{"--run", "count=true", "--limit", "tags.cpu=3s"}, {"\"tags.cpu\"", "of no ", "--run or --serve"}},
           {{"--limit", "tags.cpu=3s"}, {"\"tags.cpu\"", "of no "}},
           {{"--run", "count=true", "--limit", "cpu"}, {"--limit", "LIMIT=VALUE"}},
           {{"--run", "count=true", "--limit", ".cpu=3s"}, {"--limit", "names no computation"}},
           {{"--run", "count=true", "--limit", "cpu=soon"}, {"--limit", "soon"}},
           {{"--run", "count=true", "--limit", "memory=much"}, {"--limit", "much"}},
           {{"--run", "count=true", "--limit", "processes=0"}, {"--limit", "0"}},
           {{"--run", "count=true", "--limit", "processes=1000"}, {"--limit", "1000"}},
           {{"--run", "count=true", "--data", "people=" + executables.path("gone")},
            {"--data", "\"people\"", executables.path("gone")}},
           {{"--data", "people=" + executables.path("gone"), "--run", "count=true"},
            {"--data", "\"people\"", executables.path("gone")}},
           {{"--run", "count=true", "--data", "people"}, {"--data", "NAME=VALUE"}},
           {{"--run", "count=true", "--env", "LICENCE"}, {"--env", "LICENCE is not set"}},
           {{"--run", "count=true", "--env", "=x"}, {"--env", "NAME or NAME=VALUE"}},
           {{"--run", "count=true", "--readable", executables.path("gone")}, {"--readable", executables.path("gone")}},
           {{"--run", "count=true", "--allow", "dreams"}, {"\"dreams\"", "\"noop\""}},
           {{"--run", "count=" + executables.path("count") + "\\ words.sh", "--sandbox"},
            {"--sandbox needs bubblewrap", "bwrap"},
            "/nowhere"},
           {{"--run", "count=true"}, {"\"count\"", "PATH"}, ""}}) {
    const absl::Status status = Sources{c.arguments, {{"PATH", c.path}}}.Parse().status();
    INFO(fmt::format("{}: {}", fmt::join(c.arguments, " "), status.ToString()));
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    for (const std::string& word : c.named) CHECK_THAT(std::string(status.message()), Catch::Contains(word));
    CHECK(status.message().find('\n') == std::string::npos);
  }
}

TEST_CASE("A relay is told of the server below, and computes nothing itself") {
  const auto relay = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--relay", "edge:7433"});
    return Sources{.arguments = std::move(more), .variables = {}}.Parse();
  };
  const absl::StatusOr<WorkerInvocation> parsed =
      relay({"--relay-slots", "4", "--relay-min-clients", "10", "--relay-min-share", "0.75", "--relay-tls-ca", "ca.pem",
             "--relay-token-file", "relay.token", "--allow", "what-others-offer", "--insecure"});
  INFO(parsed.status().ToString());
  REQUIRE(parsed.ok());
  const RelayConfig& config = parsed->config.relay;
  CHECK(config.server == "edge:7433");
  CHECK(config.options.population == "default");
  CHECK(config.options.slots == 4);
  CHECK(config.options.min_clients == 10);
  CHECK(config.options.min_share == 0.75);
  CHECK(config.security.tls_ca == "ca.pem");
  CHECK(config.security.token_file == "relay.token");
  CHECK(config.security.is_insecure);
  CHECK(parsed->config.security.tls_ca.empty());

  const auto refusal = [&](std::vector<std::string> more) {
    return std::string(relay(std::move(more)).status().message());
  };
  CHECK(refusal({"--run", "x=/bin/true"}) ==
        "--relay passes tasks on and computes nothing: leave out --run, --serve and --data");
  for (const char* share : {"0", "1.5", "nan", "much"}) {
    CHECK(refusal({"--relay-min-share", share}) ==
          fmt::format("relay_min_share: \"{}\" is no share: a number above 0 and up to 1 (from flag --relay-min-share)",
                      share));
  }
}

TEST_CASE("--help names every setting, and --version the protocol") {
  absl::StatusOr<WorkerInvocation> help = Sources{{"--help"}, {}}.Parse();
  REQUIRE(help.ok());
  for (const Setting& setting : AllSettings()) CHECK_THAT(help->output, Catch::Contains(setting.flag()));
  CHECK_THAT(help->output, Catch::Contains("for example debian-index=apt."));
  absl::StatusOr<WorkerInvocation> version = Sources{{"--version"}, {}}.Parse();
  REQUIRE(version.ok());
  CHECK_THAT(version->output, Catch::Matchers::StartsWith("sheaf-worker ") && Catch::Contains(" (protocol 1 to 2)"));
}

}  // namespace
}  // namespace sheaf
