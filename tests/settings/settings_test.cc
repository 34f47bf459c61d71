// One row makes a flag, a variable, a key of the file, and its lines in what is printed.
#include "settings/settings.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) {
    std::string name = (std::filesystem::temp_directory_path() / "sheaf-settings-XXXXXX").string();
    close(mkstemp(name.data()));
    path_ = name;
    std::ofstream(path_) << text;
  }
  ~ConfigFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Storekeeper {
  std::string data_dir;
  std::string port_file = "none";
  int64_t cache_bytes = 0;
  int shelves = 0;
  std::string order;
  absl::Duration patience;
  LogLevel log_level = LogLevel::kOff;
  bool is_quiet = false;
  std::vector<std::string> labels;
  bool counts_stock = false;

  std::vector<std::string> arguments;
  std::map<std::string, std::string> variables;
  std::function<absl::Status()> check = [] { return absl::OkStatus(); };

  absl::StatusOr<std::string> Read() {
    Settings settings("storekeeper", "keeps a store.");
    settings.Text("data_dir", "data", "Directory of the store.", &data_dir);
    settings.Text("port_file", "", "File for the port.", &port_file);
    settings.Bytes("cache_bytes", "64MiB", "Memory for what was read last.", &cache_bytes);
    settings.Number("shelves", "4", "Number of shelves.", {.max = 9}, &shelves);
    settings.Choice("order", "size", "size or age.", {"size", "age"}, &order);
    settings.Duration("patience", "20s", "How long to wait.", {}, &patience);
    settings.Level("log_level", "info", "What to log.", &log_level);
    settings.Switch("quiet", "Say nothing.", &is_quiet);
    settings.List("label", "A label.", [this](const std::string& text) {
      if (text.find('=') == std::string::npos) return absl::InvalidArgumentError("a label has a =");
      labels.push_back(text);
      return absl::OkStatus();
    });
    settings.Action("--count-stock", "Count what is there, and end.", &counts_stock);
    const auto environment = [this](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      if (found == variables.end()) return std::nullopt;
      return found->second;
    };
    return settings.Read(arguments, environment, check);
  }

  // What it complains of, told so.
  std::string Complaint(std::vector<std::string> told) {
    arguments = std::move(told);
    const absl::StatusOr<std::string> text = Read();
    CHECK(text.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(text.status().message());
  }
};

TEST_CASE("Each variable gets its default, and without one keeps its value") {
  Storekeeper keeper;
  const absl::StatusOr<std::string> text = keeper.Read();
  REQUIRE(text.ok());
  CHECK(text->empty());
  CHECK(keeper.data_dir == "data");
  CHECK(keeper.port_file == "none");
  CHECK(keeper.cache_bytes == 64 << 20);
  CHECK(keeper.shelves == 4);
  CHECK(keeper.order == "size");
  CHECK(keeper.patience == absl::Seconds(20));
  CHECK(keeper.log_level == LogLevel::kInfo);
  CHECK_FALSE(keeper.is_quiet);
  CHECK(keeper.labels.empty());
}

TEST_CASE("The flag beats the variable, the variable the file, the file the default") {
  const ConfigFile file("data_dir = \"from-file\"\nshelves = 3\ncache_bytes = 1024\norder = \"age\"\n");
  Storekeeper keeper;
  keeper.arguments = {"--config", file.path(), "--data-dir", "from-flag"};
  keeper.variables = {{"SHEAF_DATA_DIR", "from-variable"}, {"SHEAF_SHELVES", "2"}, {"SHEAF_ORDER", ""}};
  REQUIRE(keeper.Read().ok());
  CHECK(keeper.data_dir == "from-flag");
  CHECK(keeper.shelves == 2);
  CHECK(keeper.cache_bytes == 1024);
  // An empty variable is one that is not set.
  CHECK(keeper.order == "age");
}

TEST_CASE("--config beats SHEAF_CONFIG, and an empty one names no file") {
  const ConfigFile file("shelves = 3\n");
  Storekeeper by_variable;
  by_variable.variables = {{"SHEAF_CONFIG", file.path()}};
  REQUIRE(by_variable.Read().ok());
  CHECK(by_variable.shelves == 3);
  Storekeeper by_flag;
  by_flag.arguments = {"--config", ""};
  by_flag.variables = {{"SHEAF_CONFIG", file.path()}};
  REQUIRE(by_flag.Read().ok());
  CHECK(by_flag.shelves == 4);
}

TEST_CASE("A switch is on by its flag alone, and takes true or false everywhere") {
  const ConfigFile truth("quiet = true\n");
  const ConfigFile text("quiet = \"true\"\n");
  struct Case {
    std::vector<std::string> arguments;
    bool is_quiet;
  };
  for (const Case& c : {Case{{"--quiet"}, true}, Case{{"--quiet=true"}, true}, Case{{"--quiet", "true"}, true},
                        Case{{"--quiet", "--shelves", "2"}, true}, Case{{"--quiet=false"}, false},
                        Case{{"--config", truth.path()}, true}, Case{{"--config", text.path()}, true},
                        Case{{"--config", truth.path(), "--quiet", "false"}, false}}) {
    Storekeeper keeper;
    keeper.arguments = c.arguments;
    REQUIRE(keeper.Read().ok());
    CHECK(keeper.is_quiet == c.is_quiet);
  }
  Storekeeper keeper;
  keeper.variables = {{"SHEAF_QUIET", "true"}};
  REQUIRE(keeper.Read().ok());
  CHECK(keeper.is_quiet);
  CHECK(Storekeeper().Complaint({"--quiet=maybe"}) == "quiet: \"maybe\" is neither true nor false (from flag --quiet)");
}

TEST_CASE("A list is a repeated flag, a variable with commas, or an array in the file") {
  const std::vector<std::string> both = {"a=1", "b=2"};
  Storekeeper flags;
  flags.arguments = {"--label", "a=1", "--label=b=2"};
  REQUIRE(flags.Read().ok());
  CHECK(flags.labels == both);
  Storekeeper variable;
  variable.variables = {{"SHEAF_LABEL", "a=1,,b=2,"}};
  REQUIRE(variable.Read().ok());
  CHECK(variable.labels == both);
  for (const char* key : {"label = [\"a=1\", \"b=2\"]\n", "label = \"a=1\"\n"}) {
    const ConfigFile file(key);
    Storekeeper keeper;
    keeper.arguments = {"--config", file.path()};
    REQUIRE(keeper.Read().ok());
    CHECK(keeper.labels.front() == "a=1");
  }
  CHECK(Storekeeper().Complaint({"--label", "a"}) == "label: a label has a = (from flag --label)");
  CHECK_THAT(Storekeeper().Complaint({"--label", ""}), Contains("label: it is empty"));
}

TEST_CASE("Of a flag that is repeated, the last counts") {
  Storekeeper keeper;
  keeper.arguments = {"--shelves", "2", "--shelves", "3"};
  REQUIRE(keeper.Read().ok());
  CHECK(keeper.shelves == 3);
}

TEST_CASE("What may be nothing may be said to be nothing; what has a default may not") {
  Storekeeper keeper;
  keeper.arguments = {"--port-file", ""};
  keeper.variables = {{"SHEAF_PORT_FILE", "elsewhere"}};
  REQUIRE(keeper.Read().ok());
  CHECK(keeper.port_file == "none");
  CHECK(Storekeeper().Complaint({"--data-dir", ""}) == "data_dir: it is empty (from flag --data-dir)");
}

TEST_CASE("What makes no sense is refused with its setting and where it came from") {
  CHECK(Storekeeper().Complaint({"--shelves", "10"}) ==
        "shelves: \"10\" is not a whole number from 1 to 9 (from flag --shelves)");
  CHECK_THAT(Storekeeper().Complaint({"--order", "colour"}), Contains("choose size or age"));
  CHECK_THAT(Storekeeper().Complaint({"--log-level", "loud"}), Contains("choose debug, info, warning, error or off"));
  // The example is the setting's own default.
  CHECK_THAT(Storekeeper().Complaint({"--patience", "long"}), Contains("such as \"20s\""));
  Storekeeper keeper;
  keeper.variables = {{"SHEAF_CACHE_BYTES", "lots"}};
  CHECK(keeper.Complaint({}) ==
        "cache_bytes: \"lots\" is not a size such as \"65536\" or \"64MiB\" (from env SHEAF_CACHE_BYTES)");
  const ConfigFile file("shelves = 0\n");
  CHECK(Storekeeper().Complaint({"--config", file.path()}) ==
        "shelves: \"0\" is not a whole number from 1 to 9 (from file " + file.path() + ")");
}

TEST_CASE("What nobody knows is refused with what is near, or where to look") {
  CHECK(Storekeeper().Complaint({"--data-dri", "x"}) ==
        "unknown option --data-dri; the nearest known one is --data-dir");
  CHECK(Storekeeper().Complaint({"--zzzzzzzz"}) == "unknown option --zzzzzzzz; see storekeeper --help");
  CHECK_THAT(Storekeeper().Complaint({"serve"}), Contains("unexpected argument \"serve\"; see storekeeper --help"));
  CHECK_THAT(Storekeeper().Complaint({"--shelves"}), Contains("--shelves") && Contains("see storekeeper --help"));
  const ConfigFile file("shelves = 2\nshelfs = 3\n");
  CHECK(Storekeeper().Complaint({"--config", file.path()}) ==
        file.path() + ":2: unknown setting shelfs; the nearest known one is shelves");
}

TEST_CASE("A file that is malformed or cannot be read is refused with its name and line") {
  const ConfigFile malformed("shelves = 2\norder = \n");
  CHECK_THAT(Storekeeper().Complaint({"--config", malformed.path()}), Contains(malformed.path() + ":2: "));
  const ConfigFile nested("[order]\nby = 3\n");
  CHECK_THAT(Storekeeper().Complaint({"--config", nested.path()}), Contains("order is neither text"));
  const ConfigFile not_a_list("label = [3.5]\n");
  CHECK_THAT(Storekeeper().Complaint({"--config", not_a_list.path()}), Contains("label is not an array of texts"));
  CHECK_THAT(Storekeeper().Complaint({"--config", "/no/such/file.toml"}),
             Contains("cannot read the configuration file /no/such/file.toml"));
}

TEST_CASE("--print-config prints each value with where it came from") {
  const ConfigFile file("label = [\"a=1\", \"b=2\"]\n");
  Storekeeper keeper;
  keeper.arguments = {"--config", file.path(), "--print-config", "--quiet"};
  keeper.variables = {{"SHEAF_SHELVES", "2"}};
  const absl::StatusOr<std::string> text = keeper.Read();
  REQUIRE(text.ok());
  CHECK(*text ==
        "SETTING      VALUE    FROM\n"
        "data_dir     data     default\n"
        "port_file    -        default\n"
        "cache_bytes  64MiB    default\n"
        "shelves      2        env SHEAF_SHELVES\n"
        "order        size     default\n"
        "patience     20s      default\n"
        "log_level    info     default\n"
        "quiet        true     flag --quiet\n"
        "label        a=1,b=2  file " +
            file.path() + "\n");
}

TEST_CASE("What the values are together is judged once all are known, and not where nothing is run") {
  Storekeeper keeper;
  keeper.check = [&keeper] {
    return keeper.shelves > 4 ? absl::FailedPreconditionError("too many shelves") : absl::OkStatus();
  };
  keeper.variables = {{"SHEAF_SHELVES", "5"}};
  CHECK(keeper.Read().status().code() == absl::StatusCode::kFailedPrecondition);
  keeper.arguments = {"--print-config"};
  CHECK_FALSE(keeper.Read().ok());
  keeper.arguments = {"--help"};
  CHECK(keeper.Read().ok());
}

TEST_CASE("--help has each setting with its default, and --version the protocol") {
  Storekeeper keeper;
  keeper.arguments = {"--help"};
  const std::string help = keeper.Read().value();
  CHECK_THAT(help, Catch::Matchers::StartsWith("storekeeper: keeps a store.\nUsage: storekeeper [OPTIONS]\n") &&
                       Contains("--config TEXT") && Contains("--print-config") && Contains("--count-stock") &&
                       Contains("--shelves TEXT") && Contains("Number of shelves. [4]") &&
                       Contains("--port-file TEXT") && Contains("File for the port.\n"));
  // A switch has no value to name.
  CHECK_THAT(help, Contains("--quiet ") && !Contains("--quiet TEXT"));
  keeper.arguments = {"--version"};
  CHECK_THAT(keeper.Read().value(), Catch::Matchers::StartsWith("storekeeper ") && Contains("(protocol "));
}

TEST_CASE("An action is a flag and nothing else") {
  Storekeeper keeper;
  keeper.arguments = {"--count-stock"};
  REQUIRE(keeper.Read().ok());
  CHECK(keeper.counts_stock);
  Storekeeper other;
  other.variables = {{"SHEAF_COUNT_STOCK", "true"}};
  REQUIRE(other.Read().ok());
  CHECK_FALSE(other.counts_stock);
  const ConfigFile file("count_stock = true\n");
  CHECK_THAT(Storekeeper().Complaint({"--config", file.path()}), Contains("unknown setting count_stock"));
}

}  // namespace
}  // namespace sheaf
