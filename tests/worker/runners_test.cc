// The contract of docs/reference/runner.md, row by row, with programs of a few lines of shell.
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "aggregation/wire/safetensors.h"
#include "base/checksum.h"
#include "base/log.h"
#include "tests/aggregation/values.h"
#include "tests/storage/temporary_directory.h"
#include "tests/wait_until.h"
#include "tests/worker/living_processes.h"
#include "worker/processes/command_words.h"
#include "worker/runners/executable_computation.h"
#include "worker/runners/executable_task.h"
#include "worker/thread_pool.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Outcome = absl::StatusOr<TaskOutcome>;

constexpr absl::Duration kSoon = absl::Seconds(20);

// --- Tensors ---

template <typename T>
NamedTensor Named(const std::string& name, v1::DType dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
  return {.name = name, .dtype = dtype, .shape = std::move(shape), .data = BytesOf(values)};
}
NamedTensor Floats(const std::string& name, const std::vector<float>& values) {
  return Named(name, v1::FLOAT32, {static_cast<int64_t>(values.size())}, values);
}
NamedTensor Integers(const std::string& name, const std::vector<int64_t>& values) {
  return Named(name, v1::INT64, {static_cast<int64_t>(values.size())}, values);
}
NamedTensor Letters(const std::string& name, const std::string& letters) {
  return {.name = name, .dtype = v1::UINT8, .shape = {static_cast<int64_t>(letters.size())}, .data = letters};
}

// "w" of 4 rows of 2, and "b" of 3 rows of 1.
const std::vector<NamedTensor>& Broadcast() {
  static const std::vector<NamedTensor> tensors = {
      Named<float>("w", v1::FLOAT32, {4, 2}, {0, 1, 10, 11, 20, 21, 30, 31}), Integers("b", {100, 200, 300})};
  return tensors;
}

NamedTensor RowsOf(const v1::RowSelection& selection) {
  for (const NamedTensor& tensor : Broadcast()) {
    if (tensor.name != selection.tensor()) continue;
    NamedTensor rows = tensor;
    rows.data.clear();
    rows.shape[0] = selection.rows_size();
    const size_t bytes = static_cast<size_t>(RowBytes(tensor.dtype, tensor.shape));
    for (const int64_t row : selection.rows()) rows.data += tensor.data.substr(static_cast<size_t>(row) * bytes, bytes);
    return rows;
  }
  FAIL("rows of " << selection.tensor() << " were asked for");
  return {};
}

std::string TextOf(const InputRequest& request) {
  std::string text = request.whole_broadcast ? "all" : "";
  for (const v1::RowSelection& selection : request.selections) {
    text += fmt::format("{}[{}]", selection.tensor(), fmt::join(selection.rows(), ","));
  }
  return text;
}

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<NamedTensor> ReadTensors(const std::string& path) {
  const std::string file = ReadWhole(path);
  const absl::StatusOr<SafetensorsView> view = SafetensorsView::Parse(file);
  INFO(path << ": " << view.status().ToString());
  REQUIRE(view.ok());
  std::vector<NamedTensor> tensors;
  for (const TensorView& tensor : view->tensors()) {
    tensors.push_back(
        {.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .data = std::string(tensor.data)});
  }
  return tensors;
}

// --- Programs ---

struct ShopOptions {
  ProcessLimits limits = {.output_bytes = 16 << 20};
  int processes_max = 1;
  int processes_ahead_max = 0;
  bool shares_errors = true;
  // Below the shop's folder.
  std::string scratch = "/";
};

// The real time, and as far ahead as a test says.
class ShopClock final : public Clock {
 public:
  absl::Time Now() const override { return clock_.Now() + ahead_; }
  void Advance(absl::Duration by) { ahead_ += by; }

 private:
  SystemClock clock_;
  absl::Duration ahead_;
};

// A worker's programs. Scripts find in $SHOP a folder that stays, and in $STAY a command that stays until it is killed.
class Shop {
 public:
  explicit Shop(const ShopOptions& options = {}) : options_(options) {
    ConfigureLog("worker_processes_test", LogLevel::kOff);
    std::ofstream(folder() + "/empty").flush();
    std::filesystem::create_directories(folder() + options.scratch);
    absl::StatusOr<std::unique_ptr<ProcessHost>> host = ProcessHost::Start(folder() + options.scratch, system_clock_);
    REQUIRE(host.ok());
    host_ = *std::move(host);
    broadcasts_.emplace(host_->scratch() + "/broadcasts", 1 << 20);
    surroundings.environment = {"SHOP=" + folder(), "STAY=tail -f " + folder() + "/empty"};
    surroundings.shares_errors = options.shares_errors;
  }

  const std::string& folder() const { return folder_.path(); }
  std::string Path(const std::string& name) const { return folder() + "/" + name; }
  ProcessHost& host() { return *host_; }
  BroadcastFiles& broadcasts() { return *broadcasts_; }
  bool Has(const std::string& name) const { return std::filesystem::exists(Path(name)); }
  std::string Read(const std::string& name) const { return ReadWhole(Path(name)); }
  // Words of a file.
  std::vector<std::string> Words(const std::string& name) const {
    std::istringstream words(Read(name));
    return {std::istream_iterator<std::string>(words), {}};
  }
  void Write(const std::string& name, const std::string& bytes) const { std::ofstream(Path(name)) << bytes; }
  void Write(const std::string& name, const std::vector<NamedTensor>& tensors) const {
    Write(name, EncodeSafetensors(tensors, {}));
  }

  // A program that is started for each task, in its directory.
  void Run(const std::string& script) { Make({"/bin/sh", "-c", "cd \"$1\"\n" + script, folder()}, false); }
  // One that stays; `body` is what it does with each task, in its directory.
  void Serve(const std::string& body) {
    Make({"/bin/sh", "-c",
          "say() { echo \"$1\" >&4; }\nhear() { read -r heard <&3; }\n"
          "while hear; do\ncd \"$(expr \"$heard\" : '.*\"directory\": \"\\(.*\\)\"}')\"\n" +
              body + "\ndone",
          folder()},
         true);
  }
  void Make(std::vector<std::string> arguments, bool stays) {
    computation_.emplace(Executable{.name = "count",
                                    .version = 1,
                                    .arguments = std::move(arguments),
                                    .stays = stays,
                                    .limits = options_.limits,
                                    .processes_max = options_.processes_max,
                                    .processes_ahead_max = options_.processes_ahead_max},
                         ExecutableComputation::Parts{
                             .host = *host_, .broadcasts = *broadcasts_, .surroundings = surroundings, .clock = clock});
  }
  const ExecutableComputation& computation() const { return *computation_; }

  v1::Lease ALease() const {
    v1::Lease lease;
    lease.set_task("r1/3");
    lease.set_round("r1");
    lease.set_attempt(1);
    lease.mutable_computation()->set_name("count");
    *lease.mutable_aggregate() = aggregate;
    if (has_broadcast) lease.set_broadcast_digest(Sha256Hex(EncodeSafetensors(Broadcast(), {})));
    return lease;
  }

  // As the worker's loop does it. Notes what was asked for.
  Outcome Attempt(const v1::Lease& lease, RunControl& control) {
    absl::StatusOr<std::unique_ptr<PreparedTask>> task = computation_->Prepare(lease, control);
    if (!task.ok()) return task.status();
    InputRequest request = (*task)->input_request();
    for (;;) {
      TaskInputs inputs;
      if (has_broadcast) inputs.broadcast_digest = Sha256Hex(EncodeSafetensors(Broadcast(), {}));
      if (request.is_optional && !has_broadcast) request.whole_broadcast = false;
      requests.push_back(TextOf(request));
      if (request.whole_broadcast) {
        inputs.broadcast = std::make_shared<const std::string>(EncodeSafetensors(Broadcast(), {}));
      }
      for (const v1::RowSelection& selection : request.selections) inputs.selected.push_back(RowsOf(selection));
      Outcome outcome = (*task)->Run(inputs, control);
      if (!outcome.ok() || !std::holds_alternative<InputRequest>(*outcome)) return outcome;
      request = std::get<InputRequest>(*std::move(outcome));
    }
  }
  Outcome Attempt() {
    RunControl control;
    return Attempt(ALease(), control);
  }

  std::vector<pid_t> living() const { return LivingProcesses(folder()); }
  void WaitUntilNobodyLives() const {
    WaitUntil("all that it started is gone", kSoon, [this] { return living().empty(); });
  }
  // Directories of tasks and of processes that stay.
  std::vector<std::string> Directories() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(host_->scratch())) {
      if (entry.path().filename() != "broadcasts") names.push_back(entry.path().filename());
    }
    return names;
  }

  v1::AggregateSpec aggregate = ASpec("sum", v1::FLOAT32, {2});
  bool has_broadcast = false;
  ExecutableSurroundings surroundings;
  ShopClock clock;
  std::vector<std::string> requests;

 private:
  const ShopOptions options_;
  SystemClock system_clock_;
  TemporaryDirectory folder_;
  std::unique_ptr<ProcessHost> host_;
  std::optional<BroadcastFiles> broadcasts_;
  // Its processes go before their host.
  std::optional<ExecutableComputation> computation_;
};

// Fails the test if there is none.
v1::Contribution ContributionOf(const Outcome& outcome) {
  INFO(outcome.status().ToString());
  REQUIRE(outcome.ok());
  REQUIRE(std::holds_alternative<v1::Contribution>(*outcome));
  return std::get<v1::Contribution>(*outcome);
}
std::string DeclinedFor(const Outcome& outcome) {
  INFO(outcome.status().ToString());
  REQUIRE(outcome.ok());
  REQUIRE(std::holds_alternative<Declined>(*outcome));
  return std::get<Declined>(*outcome).reason;
}
// Of an attempt that failed, and that another worker may try.
std::string FailureOf(const Outcome& outcome) {
  REQUIRE_FALSE(outcome.ok());
  CHECK(absl::IsUnknown(outcome.status()));
  return std::string(outcome.status().message());
}

// What the result file and the metrics say, both ways that a program can end.
constexpr char kReturnsGood[] = "cp \"$SHOP/good\" result.safetensors; ";

// --- What it is told ---

TEST_CASE(
    "task.json says what is to be done, in the page's order, and the line of a program that stays says the same") {
  Shop shop;
  shop.aggregate.Clear();
  *shop.aggregate.add_outputs() = AnOutput("weighted_mean", v1::FLOAT64, {2, 3}, "age");
  *shop.aggregate.add_outputs() = AnOutput("slices_sum", v1::FLOAT32, {10, 4}, "table");
  *shop.aggregate.add_outputs() = AnOutput("sparse_sum", v1::INT64, {10, 4}, "cells");
  *shop.aggregate.add_outputs() = AnOutput("keyed_sum", v1::UINT64, {}, "words");
  shop.aggregate.mutable_outputs(3)->set_key_type(v1::STRING_KEYS);
  shop.aggregate.set_numerics(v1::F64);
  shop.surroundings.data = {{"people", "/srv"}, {"places", "/opt"}};
  v1::Lease lease = shop.ALease();
  lease.mutable_computation()->set_config(R"({"rate": 0.5})");
  lease.set_payload(std::string("\xff\x00\x01", 3));
  lease.set_attempt(2);
  lease.set_data_selector("year \xff 2024");
  lease.set_min_clients(12);
  lease.set_broadcast_digest("");

  shop.Run("cp task.json $SHOP/seen; exit 11");
  RunControl control;
  CHECK(FailureOf(shop.Attempt(lease, control)) == "count failed: exit code 11");
  const std::string text = shop.Read("seen");
  const nlohmann::json json = nlohmann::json::parse(text);
  size_t at = 0;
  for (const char* const field :
       {"version", "computation", "config", "payload", "round", "task", "attempt", "seed", "seconds", "data_selector",
        "data", "min_clients", "broadcast", "numerics", "outputs"}) {
    INFO(field);
    REQUIRE(json.contains(field));
    const size_t found = text.find(fmt::format("\"{}\":", field));
    CHECK(found > at);
    at = found;
  }
  CHECK(json.size() == 15);
  CHECK(json["version"] == 1);
  CHECK(json["computation"] == "count");
  CHECK(json["config"]["rate"] == 0.5);
  CHECK(json["payload"]["base64"] == "/wAB");
  CHECK(json["round"] == "r1");
  CHECK(json["task"] == "r1/3");
  CHECK(json["attempt"] == 2);
  CHECK(json["seed"] >= 0);
  CHECK(json["seed"] < int64_t{1} << 53);
  CHECK(json["seconds"].is_null());
  CHECK(json["data_selector"] == "year \xef\xbf\xbd 2024");
  CHECK(json["data"] == nlohmann::json{{"people", "/srv"}, {"places", "/opt"}});
  CHECK(json["min_clients"] == 12);
  CHECK(json["broadcast"].is_null());
  CHECK(json["numerics"] == "F64");
  CHECK(json["outputs"] == nlohmann::json::parse(R"([
          {"name": "age", "operator": "weighted_mean", "operand": "dense", "dtype": "F64", "shape": [2, 3]},
          {"name": "table", "operator": "slices_sum", "operand": "sparse", "dtype": "F32", "shape": [10, 4], "index_dims": 1},
          {"name": "cells", "operator": "sparse_sum", "operand": "sparse", "dtype": "I64", "shape": [10, 4], "index_dims": 2},
          {"name": "words", "operator": "keyed_sum", "operand": "keyed", "dtype": "U64", "shape": [], "key_type": "STRING_KEYS"}
        ])"));

  shop.Serve("printf '%s' \"$heard\" >$SHOP/line; cmp task.json $SHOP/seen && say '{\"declined\": \"\"}' || exit 1");
  DeclinedFor(shop.Attempt(lease, control));
  CHECK(nlohmann::json::parse(shop.Read("line"))["task"] == json);

  // JSON that looks like what stands for bytes: {"base64":1}.
  lease.set_payload(R"({"base64":1})");
  lease.mutable_computation()->set_config(R"({"base64": 1, "rate": 2})");
  shop.Run("cp task.json $SHOP/looks; exit 11");
  CHECK_FALSE(FailureOf(shop.Attempt(lease, control)).empty());
  const nlohmann::json looks = nlohmann::json::parse(shop.Read("looks"));
  CHECK(looks["payload"] == nlohmann::json{{"base64", "eyJiYXNlNjQiOjF9"}});
  CHECK(looks["config"] == nlohmann::json{{"base64", 1}, {"rate", 2}});
}

TEST_CASE(
    "A task has the same seed in each attempt and another than its neighbours, and what nobody said is null or empty") {
  Shop shop({.limits = {.time = absl::Seconds(90)}});
  shop.has_broadcast = true;
  shop.Run("cp task.json $SHOP/$SHEAF_ROUND-$(expr $SHEAF_TASK : '.*/\\(.*\\)'); exit 11");
  const auto seen = [&](const std::string& task, int attempt) {
    v1::Lease lease = shop.ALease();
    lease.set_task("r1/" + task);
    lease.set_attempt(attempt);
    RunControl control;
    FailureOf(shop.Attempt(lease, control));
    return nlohmann::json::parse(shop.Read("r1-" + task));
  };
  const nlohmann::json first = seen("1", 1);
  CHECK(first["seed"] == seen("1", 2)["seed"]);
  CHECK(first["seed"] != seen("2", 1)["seed"]);
  CHECK(first["config"].is_null());
  CHECK(first["payload"].is_null());
  CHECK(first["data_selector"] == "");
  CHECK(first["data"] == nlohmann::json::object());
  CHECK(first["seconds"] == 90);
  CHECK(first["numerics"] == "EXACT");
  CHECK(first["broadcast"] == shop.ALease().broadcast_digest());
}

TEST_CASE("A program has the variables of the page and no others, and the operator's go before ours") {
  struct Case {
    bool stays;
    std::map<std::string, std::string> data;
    std::vector<std::string> environment;
    // With # for its directory.
    std::set<std::string> variables;
  };
  const std::string path = fmt::format("PATH={}", std::getenv("PATH"));
  const std::string language = fmt::format("LANG={}", std::getenv("LANG") != nullptr ? std::getenv("LANG") : "C.UTF-8");
  for (const Case& c : std::initializer_list<Case>{
           {false,
            {},
            {},
            {path, language, "HOME=#", "TMPDIR=#", "SHEAF_TASK_DIR=#", "SHEAF_TASK=r1/3", "SHEAF_ROUND=r1"}},
           {true, {{"people", "/srv"}}, {}, {path, language, "HOME=#", "TMPDIR=#", "SHEAF_DATA=/srv", "SHEAF_SERVE=1"}},
           {true, {{"a", "/srv"}, {"b", "/opt"}}, {}, {path, language, "HOME=#", "TMPDIR=#", "SHEAF_SERVE=1"}},
           {true,
            {},
            {"LANG=de_DE.UTF-8", "HOME=/nowhere", "PATH=/usr/bin:/bin", "EMPTY="},
            {"PATH=/usr/bin:/bin", "LANG=de_DE.UTF-8", "HOME=/nowhere", "EMPTY=", "TMPDIR=#", "SHEAF_SERVE=1"}}}) {
    Shop shop;
    shop.surroundings.data = c.data;
    shop.surroundings.environment = c.environment;
    // What it was given, not what a shell makes of it; and what a shell makes of it.
    const std::string script =
        fmt::format("cat /proc/$$/environ >{0}/given; echo $HOME >{0}/home; exit 11", shop.folder());
    if (c.stays) {
      shop.Make({"/bin/sh", "-c", script}, true);
    } else {
      shop.Run(script);
    }
    FailureOf(shop.Attempt());
    std::set<std::string> variables;
    std::istringstream given(shop.Read("given"));
    for (std::string variable; std::getline(given, variable, '\0');) {
      // Its own directory is the only one there.
      const size_t at = variable.find(shop.host().scratch());
      if (at != std::string::npos) variable.replace(at, std::string::npos, "#");
      INFO(variable);
      CHECK(variables.insert(variable).second);
    }
    CHECK(variables == c.variables);
    if (!c.environment.empty()) CHECK(shop.Read("home") == "/nowhere\n");
  }
}

// --- What it returns ---

struct GoodResult {
  const char* what;
  v1::OutputSpec output;
  std::vector<NamedTensor> tensors;
  std::string metrics;
  // As the operator's own tests would make it.
  v1::Contribution contribution;
};

std::vector<GoodResult> GoodResults() {
  v1::OutputSpec strings = AnOutput("keyed_sum", v1::INT64, {});
  strings.set_key_type(v1::STRING_KEYS);
  v1::OutputSpec integers = AnOutput("keyed_sum", v1::FLOAT32, {2});
  integers.set_key_type(v1::INT64_KEYS);
  v1::OutputSpec loose = AnOutput("sum", v1::FLOAT32, {2});
  loose.set_non_finite(v1::PROPAGATE_NON_FINITE);
  const auto keyed = [](auto fill) {
    v1::Contribution contribution;
    contribution.add_outputs()->set_name("w");
    fill(*contribution.mutable_outputs(0)->mutable_keyed());
    return contribution;
  };
  const v1::Contribution words = keyed([](v1::KeyedTable& table) {
    for (const char* const key : {"and", "", "so"}) table.add_string_keys(key);
    *table.mutable_values() = ATensor(v1::INT64, {3}, BytesOf<int64_t>({5, 6, 7}));
  });
  const v1::Contribution ids = keyed([](v1::KeyedTable& table) {
    *table.mutable_int_keys() = ATensor(v1::INT64, {2}, BytesOf<int64_t>({-3, 9}));
    *table.mutable_values() = ATensor(v1::FLOAT32, {2, 2}, BytesOf<float>({1, 2, 3, 4}));
  });
  const v1::SparseTensor rows = Sparse({10, 2}, ATensor(v1::INT64, {2, 1}, BytesOf<int64_t>({7, 0})),
                                       ATensor(v1::FLOAT32, {2, 2}, BytesOf<float>({1, 2, 3, 4})));
  const v1::SparseTensor cells = Sparse({10, 2}, ATensor(v1::INT32, {1, 2}, BytesOf<int32_t>({7, 1})),
                                        ATensor(v1::FLOAT64, {1}, BytesOf<double>({0.5})));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  return {
      {"dense",
       AnOutput("sum", v1::FLOAT32, {2}),
       {Floats("w", {1, 2})},
       "",
       Contribute(ATensor(v1::FLOAT32, {2}, BytesOf<float>({1, 2})))},
      {"a number",
       AnOutput("sum", v1::INT64, {}),
       {Named<int64_t>("w", v1::INT64, {}, {42})},
       "{}",
       Contribute(ATensor(v1::INT64, {}, BytesOf<int64_t>({42})))},
      {"weighted",
       AnOutput("weighted_mean", v1::FLOAT32, {2}),
       {Floats("w", {1, 2})},
       R"({"weight": 2.5, "loss": 0.25})",
       Contribute(ATensor(v1::FLOAT32, {2}, BytesOf<float>({1, 2})), 2.5)},
      {"rows",
       AnOutput("slices_sum", v1::FLOAT32, {10, 2}),
       {Named<int64_t>("w.indices", v1::INT64, {2, 1}, {7, 0}),
        Named<float>("w.values", v1::FLOAT32, {2, 2}, {1, 2, 3, 4}), Integers("w.dense_shape", {10, 2})},
       "",
       Contribute(rows)},
      {"rows with indices of one dimension",
       AnOutput("slices_sum", v1::FLOAT32, {10, 2}),
       {Integers("w.indices", {7, 0}), Named<float>("w.values", v1::FLOAT32, {2, 2}, {1, 2, 3, 4}),
        Integers("w.dense_shape", {10, 2})},
       "",
       Contribute(rows)},
      {"single values",
       AnOutput("sparse_sum", v1::FLOAT64, {10, 2}),
       {Named<int32_t>("w.indices", v1::INT32, {1, 2}, {7, 1}), Named<double>("w.values", v1::FLOAT64, {1}, {0.5}),
        Integers("w.dense_shape", {10, 2})},
       "",
       Contribute(cells)},
      {"text keys",
       strings,
       {Letters("w.keys", "andso"), Integers("w.key_offsets", {0, 3, 3, 5}), Integers("w.values", {5, 6, 7})},
       "",
       words},
      {"numbered keys",
       integers,
       {Integers("w.keys", {-3, 9}), Named<float>("w.values", v1::FLOAT32, {2, 2}, {1, 2, 3, 4})},
       "",
       ids},
      {"what is not finite, where that is taken",
       loose,
       {Floats("w", {1, nan})},
       "",
       Contribute(ATensor(v1::FLOAT32, {2}, BytesOf<float>({1, nan})))},
  };
}

TEST_CASE("What a program returns in a file is its contribution, whichever way it runs") {
  for (const GoodResult& good : GoodResults()) {
    for (const bool stays : {false, true}) {
      INFO(good.what << (stays ? ", served" : ", run"));
      Shop shop;
      shop.aggregate = ASpec(good.output);
      shop.Write("good", good.tensors);
      shop.Write("metrics", good.metrics);
      const std::string returns = std::string("cp $SHOP/good result.tmp; mv result.tmp result.safetensors; ") +
                                  (good.metrics.empty() ? "" : "cp $SHOP/metrics metrics.json; ");
      stays ? shop.Serve(returns + "say '{\"done\": true}'") : shop.Run(returns);
      const v1::Contribution contribution = ContributionOf(shop.Attempt());
      const auto reported = [&](const v1::Contribution& each) {
        RoundAccumulator sum = Accumulator(shop.aggregate);
        const absl::Status folded = Fold(sum, each);
        INFO(folded.ToString());
        REQUIRE(folded.ok());
        return sum.Serialize();
      };
      CHECK(reported(contribution) == reported(good.contribution));
      if (good.metrics.size() > 2) CHECK(contribution.metrics().at("loss") == 0.25);
    }
  }
}

struct BadResult {
  const char* what;
  // Before it ends well. $SHOP/good is a result that could be used.
  std::string script;
  // Of the sentence for its own operator.
  std::string sentence;
};

TEST_CASE(
    "A result that cannot be used fails the attempt with a sentence, and the server hears no word of its content") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const v1::AggregateSpec dense = ASpec("sum", v1::FLOAT32, {2});
  const v1::AggregateSpec weighted = ASpec("weighted_mean", v1::FLOAT32, {2});
  const v1::AggregateSpec rows = ASpec("slices_sum", v1::FLOAT32, {10, 2});
  v1::OutputSpec keyed_output = AnOutput("keyed_sum", v1::INT64, {});
  keyed_output.set_key_type(v1::STRING_KEYS);
  const v1::AggregateSpec keyed = ASpec(keyed_output);
  const auto header = [](const std::string& json) {
    const uint64_t size = json.size();
    return std::string(reinterpret_cast<const char*>(&size), 8) + json;
  };
  const NamedTensor values = Named<float>("w.values", v1::FLOAT32, {2, 2}, {1, 2, 3, 4});
  const NamedTensor shape = Integers("w.dense_shape", {10, 2});
  const NamedTensor counts = Integers("w.values", {5, 6});

  struct Case {
    const char* what;
    v1::AggregateSpec aggregate;
    std::variant<std::string, std::vector<NamedTensor>> file;
    std::string sentence;
  };
  std::vector<Case> files = {
      {"an empty file", dense, "", "the file ends before its header does"},
      {"a file cut off", dense, header(R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})") + "1234",
       "'w'"},
      {"a header that is no JSON", dense, header("{w: 1}"), "JSON"},
      {"a header that never ends", dense, std::string(8, '\x7f') + "{}", "header"},
      {"a dtype that nobody takes", dense,
       header(R"({"w": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}})") + "1234",
       "tensor 'w' has a dtype that is not taken"},
      {"nothing in it", dense, std::vector<NamedTensor>{}, "output 'w': the result has no tensor 'w'"},
      {"another name", dense, std::vector{Floats("v", {1, 2})}, "output 'w': the result has no tensor 'w'"},
      {"a tensor too many", dense, std::vector{Floats("w", {1, 2}), Floats("extra", {1})},
       "'extra', which belongs to no output"},
      {"another shape", dense, std::vector{Floats("w", {1, 2, 3})}, "[3]"},
      {"another dtype", dense, std::vector{Integers("w", {1, 2})}, "'w'"},
      {"NaN", dense, std::vector{Floats("w", {1, nan})}, "w"},
      {"an infinity", dense, std::vector{Floats("w", {inf, 1})}, "w"},
      {"a sparse tensor for a dense sum", dense, std::vector{Integers("w.indices", {7, 0}), values, shape},
       "use a sparse operator"},
      {"a dense tensor for a sparse sum", rows, std::vector{Floats("w", {1, 2})},
       "the result has no tensor 'w.indices'"},
      {"no values", rows, std::vector{Integers("w.indices", {7, 0}), shape}, "the result has no tensor 'w.values'"},
      {"an index out of range", rows, std::vector{Integers("w.indices", {7, 10}), values, shape}, "10"},
      {"a negative index", rows, std::vector{Integers("w.indices", {-1, 0}), values, shape}, "-1"},
      {"more indices than values", rows, std::vector{Integers("w.indices", {1, 2, 3}), values, shape}, "w"},
      {"indices that are floats", rows, std::vector{Floats("w.indices", {1, 2}), values, shape}, "w"},
      {"rows of another width", rows,
       std::vector{Integers("w.indices", {7, 0}), Named<float>("w.values", v1::FLOAT32, {2, 3}, {1, 2, 3, 4, 5, 6}),
                   shape},
       "w"},
      {"another dense shape", rows,
       std::vector{Integers("w.indices", {7, 0}), values, Integers("w.dense_shape", {9, 2})}, "w"},
      {"a dense shape that is no I64", rows,
       std::vector{Integers("w.indices", {7, 0}), values, Floats("w.dense_shape", {10, 2})},
       "'w.dense_shape' is not I64"},
      {"NaN in a row", rows,
       std::vector{Integers("w.indices", {7, 0}), Named<float>("w.values", v1::FLOAT32, {2, 2}, {1, 2, nan, 4}), shape},
       "w"},
      {"no offsets", keyed, std::vector{Letters("w.keys", "andso"), counts},
       "the result has no tensor 'w.key_offsets'"},
      {"offsets that do not begin at 0", keyed,
       std::vector{Letters("w.keys", "andso"), Integers("w.key_offsets", {1, 3, 5}), counts},
       "'w.key_offsets' does not ascend from 0 to the 5 bytes of 'w.keys'"},
      {"offsets that descend", keyed,
       std::vector{Letters("w.keys", "andso"), Integers("w.key_offsets", {0, 6, 5}), counts}, "does not ascend"},
      {"offsets beyond the end", keyed,
       std::vector{Letters("w.keys", "andso"), Integers("w.key_offsets", {0, 3, 6}), counts}, "does not ascend"},
      {"negative offsets", keyed,
       std::vector{Letters("w.keys", "andso"), Integers("w.key_offsets", {0, -3, 5}), counts}, "does not ascend"},
      {"no offset at all", keyed, std::vector{Letters("w.keys", ""), Integers("w.key_offsets", {}), counts},
       "does not ascend"},
      {"more keys than values", keyed,
       std::vector{Letters("w.keys", "andso"), Integers("w.key_offsets", {0, 1, 3, 5}), counts}, "w"},
      {"keys that are numbers", keyed,
       std::vector{Integers("w.keys", {1, 2}), Integers("w.key_offsets", {0, 8, 16}), counts},
       "string keys are a U8 tensor"},
  };
  std::vector<std::pair<BadResult, v1::AggregateSpec>> cases;
  std::vector<std::variant<std::string, std::vector<NamedTensor>>> bytes;
  for (Case& c : files) {
    cases.push_back(
        {{c.what, fmt::format("cp $SHOP/bad{} result.safetensors", bytes.size()), c.sentence}, c.aggregate});
    bytes.push_back(std::move(c.file));
  }
  for (const BadResult& bad : std::initializer_list<BadResult>{
           {"none", ":", "there is no result.safetensors"},
           {"one that was not renamed", "cp $SHOP/good result.tmp", "there is no result.safetensors"},
           {"a symbolic link", "ln -s $SHOP/good result.safetensors", "result.safetensors is a symbolic link"},
           {"a FIFO", "mkfifo result.safetensors", "result.safetensors is not a regular file"},
           {"a folder", "mkdir result.safetensors", "result.safetensors is not a regular file"},
           {"a device", "rm -f x; ln -s /dev/zero result.safetensors", "result.safetensors is a symbolic link"},
           {"metrics that are no JSON", "cp $SHOP/good result.safetensors; echo 'weight=3' >metrics.json",
            "the metrics are not a JSON object"},
           {"metrics in a list", "cp $SHOP/good result.safetensors; echo '[1]' >metrics.json",
            "the metrics are not a JSON object"},
           {"a metric of text", "cp $SHOP/good result.safetensors; echo '{\"loss\": \"low\"}' >metrics.json",
            "a metric is not a finite number"},
           {"a metric of nothing", "cp $SHOP/good result.safetensors; echo '{\"loss\": null}' >metrics.json",
            "a metric is not a finite number"},
           {"a metric without an end", "cp $SHOP/good result.safetensors; echo '{\"loss\": 1e999}' >metrics.json",
            "metric"},
           {"a weight of nothing", "cp $SHOP/good result.safetensors; echo '{\"weight\": 0}' >metrics.json",
            "the weight is not above 0"},
           {"a weight beyond all floats", "cp $SHOP/good result.safetensors; echo '{\"weight\": 1e300}' >metrics.json",
            "weight"},
           {"metrics that are a FIFO", "cp $SHOP/good result.safetensors; mkfifo metrics.json",
            "metrics.json is not a regular file"},
           {"metrics that lead elsewhere", "cp $SHOP/good result.safetensors; ln -s /etc/hostname metrics.json",
            "metrics.json is a symbolic link"},
           {"metrics without an end", "cp $SHOP/good result.safetensors; head -c 2000000 /dev/zero >metrics.json",
            "at most 1048576 are taken"},
       }) {
    cases.push_back({bad, bad.what == std::string("a weight beyond all floats") ? weighted : dense});
  }

  for (const auto& [bad, aggregate] : cases) {
    for (const bool shares_errors : {true, false}) {
      for (const bool stays : {false, true}) {
        // The other two say nothing new.
        if (stays && !shares_errors) continue;
        INFO(bad.what << (stays ? ", served" : ", run"));
        Shop shop({.shares_errors = shares_errors});
        shop.aggregate = aggregate;
        shop.Write("good", std::vector{Floats("w", {1, 2})});
        for (size_t i = 0; i < bytes.size(); ++i) {
          std::visit([&](const auto& file) { shop.Write(fmt::format("bad{}", i), file); }, bytes[i]);
        }
        stays ? shop.Serve(bad.script + "\nsay '{\"done\": true}'") : shop.Run(bad.script);
        const std::string failure = FailureOf(shop.Attempt());
        CHECK_THAT(failure, Catch::Matchers::StartsWith("count failed: what it returned cannot be used"));
        CHECK(failure.find('\n') == std::string::npos);
        if (shares_errors) {
          CHECK_THAT(failure, Contains(bad.sentence));
        } else {
          CHECK_THAT(failure, !Contains("extra") && !Contains("bytes of") && !Contains("/etc"));
        }
        if (!stays) shop.WaitUntilNobodyLives();
      }
    }
  }
}

TEST_CASE("A result that is larger than its limit fails the attempt, which says so, and is not read") {
  for (const bool stays : {false, true}) {
    Shop shop({.limits = {.output_bytes = 10'000}});
    shop.Write("good", std::vector{Floats("w", std::vector<float>(5'000))});
    const std::string script = "cat $SHOP/good >result.safetensors; ";
    stays ? shop.Serve(script + "say '{\"done\": true}'") : shop.Run(script);
    CHECK_THAT(FailureOf(shop.Attempt()), Contains("limit of output") || Contains("at most 10000 are taken"));
  }
}

// --- How it ends ---

TEST_CASE("An exit code says whether the task is tried again, given back, or wrong for everybody") {
  struct Case {
    const char* script;
    absl::StatusCode code;
    const char* sentence;
  };
  for (const Case& c :
       std::initializer_list<Case>{{"exit 11", absl::StatusCode::kUnknown, "count failed: exit code 11"},
                                   {"exit 1", absl::StatusCode::kUnknown, "count failed: exit code 1"},
                                   {"exit 137", absl::StatusCode::kUnknown, "count failed: exit code 137"},
                                   {"kill -9 $$", absl::StatusCode::kUnknown, "count failed: signal 9 (Killed)"},
                                   {"exit 12", absl::StatusCode::kInvalidArgument, "count failed: exit code 12"}}) {
    for (const bool stays : {false, true}) {
      INFO(c.script << (stays ? ", served" : ", run"));
      Shop shop;
      stays ? shop.Serve(c.script) : shop.Run(c.script);
      const absl::Status status = shop.Attempt().status();
      CHECK(status.code() == c.code);
      CHECK(status.message() == c.sentence);
      CHECK(shop.computation().is_offered());
    }
  }
  // Of one that stays, an end is no answer.
  Shop shop;
  shop.Write("good", std::vector{Floats("w", {1, 2})});
  shop.Serve(std::string(kReturnsGood) + "exit 0");
  CHECK(FailureOf(shop.Attempt()) == "count failed: exit code 0");
}

TEST_CASE("A program that is gone, was never one, or exceeds a limit fails its attempts with a sentence") {
  struct Case {
    const char* what;
    std::vector<std::string> arguments;
    const char* sentence;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"gone", {"#/gone"}, "count failed: it could not be started: No such file or directory"},
           {"no program", {"#/text"}, "count failed: it could not be started: Exec format error"},
           {"not executable", {"#/plain"}, "count failed: it could not be started: Permission denied"},
           {"too slow", {"/bin/sh", "-c", "tail -f #/empty", "#"}, "count failed: killed over its limit of time"},
           {"prints for ever", {"/bin/sh", "-c", "yes", "#"}, "count failed: killed over its limit of time"}}) {
    for (const bool stays : {false, true}) {
      INFO(c.what << (stays ? ", served" : ", run"));
      Shop shop({.limits = {.time = absl::Milliseconds(300)}});
      shop.Write("text", "words\n");
      shop.Write("plain", "#!/bin/sh\n");
      REQUIRE(chmod(shop.Path("text").c_str(), 0755) == 0);
      std::vector<std::string> arguments = c.arguments;
      for (std::string& word : arguments) {
        if (const size_t at = word.find('#'); at != std::string::npos) word.replace(at, 1, shop.folder());
      }
      shop.Make(std::move(arguments), stays);
      CHECK(FailureOf(shop.Attempt()) == c.sentence);
      shop.WaitUntilNobodyLives();
    }
  }
}

TEST_CASE("A program that talks all the time is held to its limits as one that is silent") {
  Shop shop({.limits = {.time = absl::Milliseconds(300)}});
  shop.Serve("i=0; while :; do i=$((i+1)); say '{\"progress\": '$i'}'; done");
  CHECK(FailureOf(shop.Attempt()) == "count failed: killed over its limit of time");
  shop.has_broadcast = true;
  shop.Serve("while :; do say '{\"rows\": {\"w\": [1]}}'; hear; done");
  CHECK(FailureOf(shop.Attempt()) == "count failed: killed over its limit of time");
  CHECK(shop.requests.size() > 2);
}

TEST_CASE("What a program says of its failure is told, its message only where the operator shares errors") {
  struct Case {
    const char* line;
    bool shares_errors;
    absl::StatusCode code;
    const char* told;
  };
  for (const Case& c :
       std::initializer_list<Case>{{R"({"failed": "ValueError in tags.py:31", "message": "patient 4711"})", false,
                                    absl::StatusCode::kUnknown, "count failed: ValueError in tags.py:31"},
                                   {R"({"failed": "ValueError in tags.py:31", "message": "patient 4711"})", true,
                                    absl::StatusCode::kUnknown, "count failed: ValueError in tags.py:31: patient 4711"},
                                   {R"({"failed": "KeyError", "message": "patient 4711", "is_permanent": true})", false,
                                    absl::StatusCode::kInvalidArgument, "count failed: KeyError"},
                                   {R"({"failed": "KeyError", "is_permanent": false})", true,
                                    absl::StatusCode::kUnknown, "count failed: KeyError"}}) {
    INFO(c.line);
    Shop shop({.shares_errors = c.shares_errors});
    shop.Serve(fmt::format("echo 'patient 4711' >&2; say '{}'", c.line));
    const absl::Status status = shop.Attempt().status();
    CHECK(status.code() == c.code);
    CHECK(status.message() == c.told);
    // It said so by itself, and goes on.
    CHECK(shop.living().size() == 1);
  }
  Shop shop({.shares_errors = true});
  shop.Serve(
      R"(say "{\"failed\": \"$(head -c 5000 /dev/zero | tr '\0' x)\", \"message\": \"$(head -c 5000 /dev/zero | tr '\0' y)\"}")");
  CHECK(FailureOf(shop.Attempt()).size() < 1500);
}

TEST_CASE("A program that declines has its task given back, and is not asked again for a while, each time longer") {
  for (const char* const script : {"exit 10", "say '{\"declined\": \"no record of patient 4711\"}'"}) {
    INFO(script);
    const bool stays = script[0] == 's';
    Shop shop;
    shop.Write("good", std::vector{Floats("w", {1, 2})});
    const std::string body = fmt::format("if [ -e $SHOP/data ]; then {} {}; else {}; fi", kReturnsGood,
                                         stays ? "say '{\"done\": true}'" : "exit 0", script);
    stays ? shop.Serve(body) : shop.Run(body);
    // Seconds, so that the real time does not matter.
    for (const absl::Duration pause : {absl::Milliseconds(100), absl::Milliseconds(200), absl::Milliseconds(400),
                                       absl::Milliseconds(800), absl::Milliseconds(1600), absl::Milliseconds(3200)}) {
      REQUIRE(shop.computation().is_offered());
      // Its reason may quote data.
      CHECK(DeclinedFor(shop.Attempt()) == "there is no data for it here");
      if (pause > absl::Seconds(1)) CHECK_FALSE(shop.computation().is_offered());
      // One that comes nevertheless is given back, and starts nothing.
      if (pause > absl::Seconds(1)) {
        CHECK_FALSE(DeclinedFor(shop.Attempt()).empty());
        shop.clock.Advance(pause - absl::Seconds(1));
        CHECK_FALSE(shop.computation().is_offered());
      }
      shop.clock.Advance(pause);
    }
    CHECK(shop.computation().is_offered());
    shop.Write("data", "");
    ContributionOf(shop.Attempt());
    CHECK(shop.computation().is_offered());
    shop.clock.Advance(absl::Seconds(1));
    std::filesystem::remove(shop.Path("data"));
    DeclinedFor(shop.Attempt());
    shop.clock.Advance(absl::Milliseconds(100));
    CHECK(shop.computation().is_offered());
  }
}

// --- Lines ---

TEST_CASE("A line that is none fails the attempt with a sentence, and the process is not used again") {
  Shop shop;
  shop.has_broadcast = true;
  struct Case {
    const char* line;
    const char* sentence;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"hello", "it said a line that is not a JSON object"},
           {"", "it said a line that is not a JSON object"},
           {"[1]", "it said a line that is not a JSON object"},
           {"{\"progress\": 1", "it said a line that is not a JSON object"},
           {"{}", "it said a line that has none of rows, broadcast, progress, update, done, declined and failed"},
           {"{\"tasks\": 1}", "has none of rows"},
           {"{\"progress\": \"much\"}", "\"progress\" is not a number"},
           {"{\"rows\": 3}", "\"rows\" is neither an object nor the name of a file"},
           {"{\"rows\": {\"w\": 3}}", "something that is not a list of integers"},
           {"{\"rows\": {\"w\": [1, 2.5]}}", "something that is not a list of integers"},
           {"{\"rows\": {\"w\": [\"1\"]}}", "something that is not a list of integers"},
           {"{\"rows\": \"wanted\"}", "there is no wanted"},
           {"{\"rows\": \"../task.json\"}", "'../task.json' is not the name of a file in the task's directory"},
           {"{\"rows\": \"task.json\"}", "cannot be used"},
           {"{\"update\": 3}", "\"update\" is not a string"},
           {"{\"update\": \"gone\"}", "there is no gone"},
           {"{\"update\": \"\"}", "'' is not the name of a file in the task's directory"},
           {"{\"update\": \"folder/file\"}", "'folder/file' is not the name of a file in the task's directory"},
           {"{\"update\": \"/etc/passwd\"}", "'/etc/passwd' is not the name of a file in the task's directory"},
           {"{\"update\": \"..\"}", "'..' is not the name of a file in the task's directory"},
           {"{\"update\": \"link\"}", "link is a symbolic link"},
           {"{\"update\": \"fifo\"}", "fifo is not a regular file"},
           {"{\"update\": \"good\", \"metrics\": 3}", "the metrics are not a JSON object"},
           {"{\"done\": true, \"metrics\": {\"loss\": \"low\"}}", "a metric is not a finite number"},
           {"{\"declined\": 3}", "\"declined\" is not a string"},
           {"{\"failed\": 3}", "\"failed\" is not a string"},
           {"{\"failed\": \"x\", \"message\": []}", "\"message\" is not a string"},
           {"{\"failed\": \"x\", \"is_permanent\": 1}", "\"is_permanent\" is neither true nor false"}}) {
    INFO(c.line);
    shop.Write("line", c.line);
    shop.Write("good", std::vector{Floats("w", {1, 2})});
    // The second task of each process would be done well.
    shop.Serve("echo $$ >>$SHOP/pids; ln -s $SHOP/good link; mkfifo fifo; cp $SHOP/good good; " +
               std::string(kReturnsGood) + "say \"$(cat $SHOP/line)\"; hear; say '{\"done\": true}'");
    CHECK_THAT(FailureOf(shop.Attempt()), Contains(c.sentence));
    shop.WaitUntilNobodyLives();
  }
  CHECK(shop.Words("pids").size() == 28);
}

TEST_CASE(
    "A program that asks for rows gets them in its order, before it computes and while it does, by list and by file") {
  Shop shop;
  shop.has_broadcast = true;
  shop.Write("good", std::vector{Floats("w", {1, 2})});
  shop.Write("wanted", std::vector{Integers("w", {3, 0, 3}), Integers("b", {1})});
  shop.Write("floats", std::vector{Floats("w", {1})});
  const std::string take =
      "hear; expr \"$heard\" : '.*\"rows\": \"\\(.*\\)\"}' >>$SHOP/names; cp rows-$n.safetensors $SHOP/rows-$n; ";
  shop.Serve("n=1; say '{\"rows\": {\"w\": [2, 1], \"b\": []}}'; " + take + "say '{\"progress\": 1}'; " +
             "cp $SHOP/wanted wanted.safetensors; n=2; say '{\"rows\": \"wanted.safetensors\"}'; " + take +
             "[ ! -e wanted.safetensors ] || exit 1; " + "n=3; say '{\"rows\": {}}'; " + take + kReturnsGood +
             "say '{\"done\": true}'");
  ContributionOf(shop.Attempt());
  // What is asked for first is asked for before there is anything to run.
  CHECK(shop.requests == std::vector<std::string>{"b[]w[2,1]", "b[1]w[3,0,3]", ""});
  CHECK(shop.Words("names") ==
        std::vector<std::string>{"rows-1.safetensors", "rows-2.safetensors", "rows-3.safetensors"});
  const auto rows = [&](int number) {
    std::map<std::string, std::pair<std::vector<int64_t>, std::string>> found;
    for (const NamedTensor& tensor : ReadTensors(shop.Path(fmt::format("rows-{}", number)))) {
      found[tensor.name] = {tensor.shape, tensor.data};
    }
    return found;
  };
  using Rows = std::map<std::string, std::pair<std::vector<int64_t>, std::string>>;
  CHECK(rows(1) == Rows{{"w", {{2, 2}, BytesOf<float>({20, 21, 10, 11})}}, {"b", {{0}, ""}}});
  CHECK(rows(2) ==
        Rows{{"w", {{3, 2}, BytesOf<float>({30, 31, 0, 1, 30, 31})}}, {"b", {{1}, BytesOf<int64_t>({200})}}});
  CHECK(rows(3) == Rows{});

  shop.Serve("cp $SHOP/floats floats; say '{\"rows\": \"floats\"}'");
  CHECK_THAT(FailureOf(shop.Attempt()), Contains("the rows wanted of 'w' are not I64"));
}

TEST_CASE(
    "The whole broadcast is there before a program starts, or when it asks, as one file for all tasks of a round") {
  const std::string bytes = EncodeSafetensors(Broadcast(), {});
  for (const bool stays : {false, true}) {
    INFO((stays ? "served" : "run"));
    Shop shop({.processes_max = 2});
    shop.has_broadcast = true;
    const std::string look = "cp params.safetensors $SHOP/params; stat -L -c %i params.safetensors >>$SHOP/inodes; ";
    if (stays) {
      shop.Serve("ls >$SHOP/files; say '{\"broadcast\": true}'; hear; echo \"$heard\" >$SHOP/answer; " + look +
                 "say '{\"failed\": \"x\"}'");
    } else {
      shop.Run("ls >$SHOP/files; " + look + "exit 11");
    }
    for (int task = 0; task < 3; ++task) FailureOf(shop.Attempt());
    CHECK(shop.Read("params") == bytes);
    CHECK(shop.requests == std::vector<std::string>(3, "all"));
    const std::vector<std::string> inodes = shop.Words("inodes");
    CHECK(inodes == std::vector<std::string>(3, inodes.at(0)));
    if (stays) {
      CHECK(shop.Read("files") == "task.json\n");
      CHECK(shop.Read("answer") == "{\"broadcast\": \"params.safetensors\"}\n");
    } else {
      CHECK(shop.Read("files") == "params.safetensors\ntask.json\n");
      shop.has_broadcast = false;
      FailureOf(shop.Attempt());
      CHECK(shop.Read("files") == "task.json\n");
    }
  }
  // Who asks again has it.
  Shop shop;
  shop.has_broadcast = true;
  shop.Write("good", std::vector{Floats("w", {1, 2})});
  shop.Serve(
      "for turn in 1 2; do say '{\"broadcast\": true}'; hear; cmp params.safetensors \"$(readlink "
      "params.safetensors)\"; done; " +
      std::string(kReturnsGood) + "say '{\"done\": true}'");
  ContributionOf(shop.Attempt());
  CHECK(shop.requests == std::vector<std::string>(2, "all"));
}

TEST_CASE("A program that stays prepares a task of an announced round at once, and has the broadcast when it runs") {
  Shop shop({.processes_max = 2, .processes_ahead_max = 1});
  shop.Write("good", std::vector{Floats("w", {1, 2})});
  shop.Serve("echo prepared >>$SHOP/seen; say '{\"broadcast\": true}'; hear; cp params.safetensors $SHOP/params; " +
             std::string(kReturnsGood) + "say '{\"done\": true}'");
  v1::Lease lease = shop.ALease();
  lease.set_announced(true);
  RunControl control;
  const absl::StatusOr<std::unique_ptr<PreparedTask>> ahead = shop.computation().Prepare(lease, control);
  REQUIRE(ahead.ok());
  CHECK(shop.Words("seen") == std::vector<std::string>{"prepared"});
  CHECK(TextOf((*ahead)->input_request()) == "all");
  // There is one process more, which is kept for a task that runs: the next one waits until it does.
  const absl::StatusOr<std::unique_ptr<PreparedTask>> late = shop.computation().Prepare(lease, control);
  REQUIRE(late.ok());
  CHECK(shop.Words("seen").size() == 1);
  CHECK(TextOf((*late)->input_request()).empty());
  shop.has_broadcast = true;
  ContributionOf(shop.Attempt());
  // Now the rounds have opened.
  const std::string bytes = EncodeSafetensors(Broadcast(), {});
  const TaskInputs inputs = {
      .broadcast = std::make_shared<const std::string>(bytes), .broadcast_digest = Sha256Hex(bytes), .selected = {}};
  const Outcome asked = (*late)->Run({}, control);
  REQUIRE(asked.ok());
  REQUIRE(std::holds_alternative<InputRequest>(*asked));
  CHECK(TextOf(std::get<InputRequest>(*asked)) == "all");
  ContributionOf((*late)->Run(inputs, control));
  CHECK(shop.Words("seen").size() == 3);
  ContributionOf((*ahead)->Run(inputs, control));
  CHECK(shop.Words("seen").size() == 3);
  CHECK(shop.Read("params") == bytes);
}

TEST_CASE("A program that is started for its task starts when its round has opened, with or without a broadcast") {
  for (const bool has_broadcast : {true, false}) {
    Shop shop({.processes_max = 2, .processes_ahead_max = 1});
    shop.Run("cp task.json $SHOP/seen; ls >$SHOP/files; exit 11");
    v1::Lease lease = shop.ALease();
    lease.set_announced(true);
    shop.has_broadcast = has_broadcast;
    RunControl control;
    CHECK(FailureOf(shop.Attempt(lease, control)) == "count failed: exit code 11");
    CHECK(shop.requests == std::vector<std::string>{"", has_broadcast ? "all" : ""});
    CHECK(nlohmann::json::parse(shop.Read("seen"))["broadcast"] == true);
    CHECK(shop.Read("files") == (has_broadcast ? "params.safetensors\ntask.json\n" : "task.json\n"));
  }
}

TEST_CASE("Who prepared and asks for the broadcast of a round that was opened without one gets a file without tensors") {
  Shop shop;
  shop.Write("good", std::vector{Floats("w", {1, 2})});
  shop.Serve("for turn in 1 2; do say '{\"broadcast\": true}'; hear; cp params.safetensors $SHOP/params; done; " +
             std::string(kReturnsGood) + "say '{\"done\": true}'");
  v1::Lease lease = shop.ALease();
  lease.set_announced(true);
  RunControl control;
  ContributionOf(shop.Attempt(lease, control));
  CHECK(shop.Read("params") == EncodeSafetensors(std::vector<NamedTensor>{}, {}));
}

TEST_CASE("A broadcast's file is kept while somebody holds it, and the newest beyond that, as far as there is room") {
  const TemporaryDirectory folder;
  BroadcastFiles files(folder.path() + "/broadcasts", 250);
  const std::string bytes(100, 'x');
  const auto exists = [](const std::string& path) { return std::filesystem::exists(path); };
  auto first = files.Hold("a", bytes);
  REQUIRE(first.ok());
  const std::string first_path = (*first)->path();
  CHECK(ReadWhole(first_path) == bytes);
  CHECK((*files.Hold("a", "never looked at"))->path() == first_path);
  const std::string second_path = (*files.Hold("b", bytes))->path();
  CHECK(exists(second_path));
  const std::string third_path = (*files.Hold("c", bytes))->path();
  // No room for it, and somebody has it.
  CHECK(exists(first_path));
  first = absl::UnavailableError("given back");
  CHECK_FALSE(exists(first_path));
  CHECK(exists(second_path));
  const std::string again = (*files.Hold("a", bytes))->path();
  CHECK(again != first_path);
  CHECK_FALSE(exists(second_path));
  CHECK(exists(third_path));
  const auto large = files.Hold("large", std::string(1000, 'x'));
  CHECK(exists((*large)->path()));
  CHECK_FALSE(exists(again));
}

TEST_CASE(
    "Progress is what a program says; of one that has said nothing it is its time on a CPU; one that hangs makes "
    "none") {
  struct Case {
    const char* what;
    std::string script;
    ProcessLimits limits;
    // At the end, at least and at most.
    int64_t at_least;
    int64_t at_most;
  };
  const ProcessLimits time = {.time = absl::Milliseconds(500)};
  const std::string computes = "while :; do :; done";
  // Where the machine is busy a program still starts when it is looked at, twice of ten times.
  constexpr int64_t seen_starting = 2;
  for (const Case& c : std::initializer_list<Case>{
           {"numbers that grow",
            "for n in 1 2 3 3 2 0.5 -1 4 4; do say '{\"progress\": '$n'}'; done; exit 11",
            {},
            4,
            4},
           {"a number below zero, then more",
            "for n in -5 -4 -4; do say '{\"progress\": '$n'}'; done; exit 11",
            {},
            2,
            2},
           {"it computes", computes, time, 1, 100},
           {"its children compute", "(setsid sh -c '" + computes + "' $0 &) ; $STAY", time, 1, 100},
           {"it hangs", "$STAY", time, 0, seen_starting},
           {"it hangs and prints", "while echo x; do [ -e $SHOP/never ] && exit; $STAY; done", time, 0, seen_starting},
           {"it said something, and computes for ever", "say '{\"progress\": 1}'; " + computes, time, 1, 1}}) {
    for (const bool stays : {false, true}) {
      INFO(c.what << (stays ? ", served" : ", run"));
      Shop shop({.limits = c.limits});
      stays ? shop.Serve(c.script) : shop.Run("say() { echo \"$1\" >&4; }\n" + c.script);
      RunControl control;
      FailureOf(shop.Attempt(shop.ALease(), control));
      CHECK(control.progress() >= c.at_least);
      CHECK(control.progress() <= c.at_most);
      shop.WaitUntilNobodyLives();
    }
  }
}

TEST_CASE("Updates of several clients give the bits of folding them one by one, and the mean of their metrics") {
  for (const bool stays : {false, true}) {
    Shop shop;
    shop.aggregate.Clear();
    *shop.aggregate.add_outputs() = AnOutput("weighted_mean", v1::FLOAT32, {3}, "w");
    *shop.aggregate.add_outputs() = AnOutput("slices_sum", v1::FLOAT32, {10, 2}, "rows");
    RoundAccumulator one_by_one = Accumulator(shop.aggregate);
    std::string script;
    for (int client = 1; client <= 3; ++client) {
      const std::vector<float> dense = {0.1f * static_cast<float>(client), 1e20f, -1.0f / static_cast<float>(client)};
      const std::vector<float> values = {1e-20f, 0.3f, static_cast<float>(client), 1e10f};
      shop.Write(
          fmt::format("client-{}", client),
          std::vector{Floats("w", dense), Integers("rows.indices", {client, 9}),
                      Named<float>("rows.values", v1::FLOAT32, {2, 2}, values), Integers("rows.dense_shape", {10, 2})});
      v1::Contribution contribution = Contribute(ATensor(v1::FLOAT32, {3}, BytesOf(dense)), static_cast<float>(client));
      v1::OutputValue& rows = *contribution.add_outputs();
      rows.set_name("rows");
      *rows.mutable_sparse() = Sparse({10, 2}, ATensor(v1::INT64, {2, 1}, BytesOf<int64_t>({client, 9})),
                                      ATensor(v1::FLOAT32, {2, 2}, BytesOf(values)));
      REQUIRE(Fold(one_by_one, contribution).ok());
      script += fmt::format(
          "cp $SHOP/client-{0} c; say '{{\"update\": \"c\", \"metrics\": {{\"weight\": {0}, \"loss\": {0}}}}}'; "
          "while [ -e c ]; do :; done; ",
          client);
    }
    script += "say '{\"done\": true}'; ";
    stays ? shop.Serve(script) : shop.Run("say() { echo \"$1\" >&4; }\n" + script + "$STAY");
    RunControl control;
    const v1::Contribution partial = ContributionOf(shop.Attempt(shop.ALease(), control));
    CHECK(partial.num_clients() == 3);
    CHECK(partial.metrics().at("loss") == 2.0);
    // Each is progress; so is what it computed before the first.
    CHECK(control.progress() >= 3);
    RoundAccumulator sum = Accumulator(shop.aggregate);
    REQUIRE(Fold(sum, partial).ok());
    const absl::StatusOr<AggregateReport> report = sum.Report();
    const absl::StatusOr<AggregateReport> expected = one_by_one.Report();
    REQUIRE(report.ok());
    REQUIRE(report->tensors.size() == expected->tensors.size());
    for (size_t i = 0; i < report->tensors.size(); ++i) CHECK(report->tensors[i].data == expected->tensors[i].data);
    CHECK(sum.num_clients() == 3);
  }
}

TEST_CASE("An update that cannot be used fails the attempt: nobody's result is left out in silence") {
  Shop shop;
  shop.Write("good", std::vector{Floats("w", {1, 2})});
  shop.Write("bad", std::vector{Floats("w", {1, std::numeric_limits<float>::quiet_NaN()})});
  shop.Serve(
      "for each in good bad; do cp $SHOP/$each $each; say '{\"update\": \"'$each'\"}'; done; say '{\"done\": true}'");
  CHECK_THAT(FailureOf(shop.Attempt()), Contains("what it returned cannot be used") && Contains("not finite"));
}

// --- Processes that stay ---

TEST_CASE("A process that stays does the next task, but not after it broke the protocol, exceeded a limit or ended") {
  struct Case {
    // What it does with the first task.
    const char* script;
    bool is_used_again;
  };
  for (const Case& c : std::initializer_list<Case>{{"say '{\"done\": true}'", true},
                                                   {"say '{\"failed\": \"x\"}'", true},
                                                   {"say '{\"declined\": \"x\"}'", true},
                                                   {"say nonsense", false},
                                                   {"echo x >result.safetensors; say '{\"done\": true}'", true},
                                                   {"rm result.safetensors; say '{\"done\": true}'", false},
                                                   {"exit 11", false},
                                                   {"$STAY", false},
                                                   {"say '{\"done\": true}'; exit 0", false},
                                                   {"say '{\"done\": true}'; kill -9 $$", false}}) {
    INFO(c.script);
    Shop shop({.limits = {.time = absl::Milliseconds(300)}});
    shop.Write("good", std::vector{Floats("w", {1, 2})});
    shop.Serve(
        fmt::format("echo $$ >>$SHOP/pids; ls >>$SHOP/files; {} if [ -e $SHOP/begun ]; then say '{{\"done\": true}}'; "
                    "else touch $SHOP/begun; {}; fi",
                    kReturnsGood, c.script));
    shop.Attempt().IgnoreError();
    if (!c.is_used_again) shop.WaitUntilNobodyLives();
    shop.clock.Advance(absl::Seconds(1));
    Outcome next = shop.Attempt();
    // That it ended after its answer may be heard a moment later.
    const bool may_be_late = std::string(c.script).find("true}'; ") != std::string::npos;
    if (!next.ok() && may_be_late) next = shop.Attempt();
    ContributionOf(next);
    const std::vector<std::string> pids = shop.Words("pids");
    REQUIRE(pids.size() == 2);
    CHECK((pids[0] == pids[1]) == c.is_used_again);
    // An empty directory each time.
    CHECK(shop.Words("files") == std::vector<std::string>(2, "task.json"));
  }
}

TEST_CASE("As many tasks run at a time as there may be processes, and one more is given back") {
  Shop shop({.processes_max = 2});
  shop.has_broadcast = true;
  shop.Serve("echo $$ >>$SHOP/pids; say '{\"broadcast\": true}'; hear; say '{\"failed\": \"x\"}'");
  RunControl control;
  for (int turn = 0; turn < 2; ++turn) {
    CHECK(shop.computation().is_offered());
    auto first = shop.computation().Prepare(shop.ALease(), control);
    CHECK(shop.computation().is_offered());
    auto second = shop.computation().Prepare(shop.ALease(), control);
    CHECK_FALSE(shop.computation().is_offered());
    CHECK_THAT(DeclinedFor(shop.Attempt()), Contains("busy"));
    const TaskInputs inputs = {
        .broadcast = std::make_shared<const std::string>("x"), .broadcast_digest = "x", .selected = {}};
    FailureOf((*first)->Run(inputs, control));
    FailureOf((*second)->Run(inputs, control));
  }
  const std::vector<std::string> pids = shop.Words("pids");
  REQUIRE(pids.size() == 4);
  CHECK(std::set<std::string>(pids.begin(), pids.end()).size() == 2);
}

TEST_CASE("The path of a task's directory may have any characters") {
  Shop shop({.scratch = "/a \"quoted\" folder\\"});
  shop.Write("good", std::vector{Floats("w", {1, 2})});
  shop.Make({"/bin/sh", "-c",
             "read -r line <&3; printf '%s' \"$line\" >$SHOP/line; cd \"$HOME\"/task*; " + std::string(kReturnsGood) +
                 "echo '{\"done\": true}' >&4; $STAY",
             shop.folder()},
            true);
  ContributionOf(shop.Attempt());
  const nlohmann::json line = nlohmann::json::parse(shop.Read("line"), nullptr, false);
  REQUIRE(line.is_object());
  CHECK_THAT(line["directory"].get<std::string>(), Catch::Matchers::StartsWith(shop.host().scratch()));
}

// --- What is left of it ---

TEST_CASE("A task leaves no process and no directory, whether it was done, failed or never began") {
  struct Case {
    const char* what;
    std::string script;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"done", kReturnsGood},
           {"failed", "exit 1"},
           {"left children behind", std::string(kReturnsGood) + "(setsid $STAY &) ; ($STAY &) "},
           {"left much behind", "mkdir -p a/b/c; touch a/b/c/d; chmod 400 a/b/c/d; exit 1"}}) {
    INFO(c.what);
    Shop shop;
    shop.Write("good", std::vector{Floats("w", {1, 2})});
    shop.Run(c.script);
    shop.Attempt().IgnoreError();
    shop.WaitUntilNobodyLives();
    WaitUntil("its directory is gone", kSoon, [&] { return shop.Directories().empty(); });
  }
  for (const bool stays : {false, true}) {
    INFO("cancelled before it ran, " << (stays ? "served" : "run"));
    Shop shop;
    shop.has_broadcast = true;
    const std::string script = "say '{\"broadcast\": true}'; $STAY";
    stays ? shop.Serve(script) : shop.Run(script);
    RunControl control;
    REQUIRE(shop.computation().Prepare(shop.ALease(), control).ok());
    shop.WaitUntilNobodyLives();
    WaitUntil("its directory is gone", kSoon, [&] { return shop.Directories().empty(); });
    CHECK(shop.computation().is_offered());
  }
}

TEST_CASE("A task that is cancelled is killed within a second with all it started, and what it wrote is nobody's") {
  struct Case {
    const char* what;
    std::string script;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"it waits", "$STAY"},
           {"it ignores signals", "trap '' TERM INT HUP; (setsid $STAY &) ; while :; do $STAY; done"},
           {"it computes and prints", "while :; do echo x; done"},
           {"it talks", "while :; do say '{\"progress\": 1}'; done"}}) {
    for (const bool stays : {false, true}) {
      INFO(c.what << (stays ? ", served" : ", run"));
      Shop shop;
      shop.Write("good", std::vector{Floats("w", {1, 2})});
      // The second does not write a result of its own.
      const std::string script =
          "if [ -e $SHOP/begun ]; then if [ $SHEAF_SERVE ]; then say '{\"done\": true}'; $STAY; fi; exit 0; fi; " +
          std::string(kReturnsGood) + "touch $SHOP/begun; " + c.script;
      stays ? shop.Serve(script) : shop.Run("say() { echo \"$1\" >&4; }\n" + script);
      RunControl control;
      Outcome outcome = absl::UnknownError("it still runs");
      absl::Time told;
      const SystemClock clock;
      {
        ThreadPool thread(1);
        thread.Post([&] { outcome = shop.Attempt(shop.ALease(), control); });
        WaitUntil("it has begun", kSoon, [&] { return shop.Has("begun"); });
        told = clock.Now();
        control.Cancel();
      }
      CHECK(absl::IsCancelled(outcome.status()));
      shop.WaitUntilNobodyLives();
      CHECK(clock.Now() - told < absl::Seconds(1));
      CHECK_THAT(FailureOf(shop.Attempt()), Contains("there is no result.safetensors"));
    }
  }
}

TEST_CASE("A program that answers too early or twice loses attempts, and no task is answered with another's result") {
  struct Case {
    const char* what;
    // What it does with its first task but one; it has read the task's line.
    std::string script;
  };
  // It goes on until the third attempt has begun, if it is let.
  const std::string lingers =
      "until grep -qs '\"attempt\":3' $HOME/task*/task.json; do [ -e $SHOP/empty ] || exit; done; ";
  for (const Case& c : std::initializer_list<Case>{
           {"too early", "say '{\"done\": true}'; " + lingers},
           {"twice", "cp $SHOP/result$n $dir/result.safetensors; say '{\"done\": true}'; " + lingers},
           {"of its own", "say '{\"progress\": 1}'; say '{\"declined\": \"\"}'; say '{\"done\": true}'; " + lingers}}) {
    INFO(c.what);
    Shop shop;
    for (int task = 1; task <= 9; ++task) {
      shop.Write(fmt::format("result{}", task), std::vector{Floats("w", {static_cast<float>(task), 0})});
    }
    shop.Serve("n=$(expr \"$heard\" : '.*\"attempt\":\\([0-9]*\\)'); dir=$PWD; [ $n = 2 ] && { " + c.script +
               "}; cp $SHOP/result$n $dir/result.safetensors; say '{\"done\": true}'");
    int num_done = 0;
    for (int attempt = 1; attempt <= 9; ++attempt) {
      v1::Lease lease = shop.ALease();
      lease.set_attempt(attempt);
      RunControl control;
      const Outcome outcome = shop.Attempt(lease, control);
      shop.clock.Advance(absl::Seconds(1));
      if (!outcome.ok() || !std::holds_alternative<v1::Contribution>(*outcome)) continue;
      ++num_done;
      CHECK(ContributionOf(outcome).outputs(0).dense().data() == BytesOf<float>({static_cast<float>(attempt), 0}));
    }
    CHECK(num_done >= 7);
  }
}

// --- The sandbox ---

TEST_CASE("In the sandbox a program finds its files, its data and the broadcast, and nothing of others") {
  const absl::StatusOr<std::string> bwrap = FindExecutable("bwrap", std::getenv("PATH"));
  if (!bwrap.ok()) {
    WARN("skipped: there is no bubblewrap here");
    return;
  }
  for (const bool stays : {false, true}) {
    INFO((stays ? "served" : "run"));
    Shop shop({.processes_max = 2});
    const TemporaryDirectory data;
    std::ofstream(data.path() + "/ages.csv") << "31\n";
    shop.has_broadcast = true;
    shop.Write("good", std::vector{Floats("w", {1, 2})});
    std::filesystem::create_directory(shop.Path("programs"));
    shop.surroundings.bwrap = *bwrap;
    shop.surroundings.data = {{"people", data.path()}};
    // Its own folder is there, and what lies beside it is not.
    shop.Write("programs/good", shop.Read("good"));
    const std::string work =
        "{ grep -q 31 $SHEAF_DATA/ages.csv && cmp params.safetensors $(readlink params.safetensors) && "
        "! cat " +
        shop.Path("good") +
        " && ! touch $SHEAF_DATA/x && ! touch $(readlink params.safetensors) && touch mine && "
        "! touch \"${HOME%/*}/beside\" && cp " +
        shop.Path("programs/good") + " result.safetensors && [ $(ls -d " + shop.host().scratch() +
        "/p* | wc -l) = 1 ]; } || exit 9\n";
    const std::string served =
        "while read -r heard <&3; do cd $HOME/task* || exit 8; echo '{\"broadcast\": true}' >&4; read -r heard <&3\n" +
        work + "echo '{\"done\": true}' >&4; done";
    shop.Write("programs/program", stays ? "#!/bin/sh\n" + served : "#!/bin/sh\ncd \"$1\" || exit 8\n" + work);
    REQUIRE(chmod(shop.Path("programs/program").c_str(), 0755) == 0);
    shop.Make({shop.Path("programs/program")}, stays);
    RunControl control;
    // Beside another of its kind.
    const auto other = shop.computation().Prepare(shop.ALease(), control);
    for (int task = 0; task < 2; ++task) {
      const Outcome outcome = shop.Attempt();
      if (outcome.status().message() == "count failed: exit code 1") {
        WARN("skipped: bubblewrap may not make name spaces here");
        return;
      }
      CHECK(ContributionOf(outcome).outputs_size() == 1);
    }
  }
}

}  // namespace
}  // namespace sheaf
