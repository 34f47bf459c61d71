// Contributions of every odd kind, handed in by hand to a real server, and what the command line says of each. What it
// prints stands in docs/reference/operators.md, word for word.
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "proto/methods.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

constexpr char kPage[] = SHEAF_SOURCE "/docs/reference/operators.md";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

template <typename T>
v1::Tensor TensorOf(v1::DType dtype, const std::vector<int64_t>& shape, const std::vector<T>& values) {
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  tensor.mutable_shape()->Add(shape.begin(), shape.end());
  tensor.set_data(std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
  return tensor;
}

struct Value {
  std::vector<float> dense = {1, 1, 1, 1};
  std::vector<int64_t> indices = {0, 2};
  std::vector<float> values = {1, 1};
  // Sends the sparse tensor for the dense output, too.
  bool is_sparse_for_dense = false;
};

std::string Contribution(const Value& value) {
  v1::Contribution contribution;
  v1::OutputValue& bias = *contribution.add_outputs();
  v1::OutputValue& weights = *contribution.add_outputs();
  bias.set_name("bias");
  weights.set_name("weights");
  const int64_t n = static_cast<int64_t>(value.indices.size());
  v1::SparseTensor& sparse = *weights.mutable_sparse();
  sparse.add_dense_shape(4);
  *sparse.mutable_indices() = TensorOf(v1::INT64, {n}, value.indices);
  *sparse.mutable_values() = TensorOf(v1::FLOAT32, {static_cast<int64_t>(value.values.size())}, value.values);
  *bias.mutable_dense() = TensorOf(v1::FLOAT32, {static_cast<int64_t>(value.dense.size())}, value.dense);
  if (value.is_sparse_for_dense) *bias.mutable_sparse() = sparse;
  return contribution.SerializeAsString();
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// The shell's own words for what the test does, and what the real command answers.
class Transcript {
 public:
  explicit Transcript(Federation& federation) : federation_(federation) {}

  CommandRun Sheaf(const std::vector<std::string>& arguments, const std::string& typed) {
    CommandRun run = federation_.Sheaf(arguments);
    text_ += fmt::format("$ {}\n{}{}", typed, run.out, run.err);
    return run;
  }
  // As `| grep -E '^(State|Last error)'` cuts it.
  void DescribeTask(const std::string& task) {
    text_ += fmt::format("$ sheaf task describe {} | grep -E '^(State|Last error)'\n", task);
    std::istringstream lines(federation_.Sheaf({"task", "describe", task}).out);
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("State", 0) == 0 || line.rfind("Last error", 0) == 0) text_ += line + "\n";
    }
  }
  void Add(const std::string& text) { text_ += text; }
  // Every id is drawn anew; on the page it is ROUND.
  std::string With(const std::string& round) const { return Replaced(text_, round, "ROUND"); }

 private:
  Federation& federation_;
  std::string text_;
};

// One dense and one sparse output, six tasks; one contribution is enough.
std::string SpecFile(const Federation& federation, const std::string& name, const std::string& form) {
  std::string path = federation.directory() + "/" + name;
  std::ofstream(path)
      << R"({"computation": {"name": "noop"}, "minGoal": 1, "retry": {"failedMax": 1}, "aggregate": {"outputs": [
      {"name": "bias", "operator": "sum", "dtype": "FLOAT32", "denseShape": [4])"
      << form << R"(},
      {"name": "weights", "operator": "coordinate_mean", "dtype": "FLOAT32", "denseShape": [4]}]},
      "listed": {"tasks": [{}, {}, {}, {}, {}, {}]}})";
  return path;
}

// By the number of the task.
const Value kValues[] = {
    {.indices = {2, 0, 2}, .values = {1, 1, 3}}, {.is_sparse_for_dense = true}, {.indices = {0, 4}},
    {.dense = {1, 1, std::nanf(""), 1}},         {.dense = {1, 1, 1}},          {.values = {1, 1, 1}},
};

TEST_CASE("Every odd contribution gets its answer, as the page of operators shows") {
  Federation federation;
  Transcript shell(federation);
  const CommandRun declared =
      shell.Sheaf({"round", "create", "-f", SpecFile(federation, "sparse.json", R"(, "form": "SPARSE")")},
                  "sheaf round create -f sparse.json");
  CHECK(declared.exit_code == 2);
  const CommandRun created = shell.Sheaf({"round", "create", "-f", SpecFile(federation, "round.json", "")},
                                         "sheaf round create -f round.json");
  REQUIRE(created.exit_code == 0);
  const std::string round = created.out.substr(0, created.out.find('\n'));

  // The test is the worker: no worker of ours sends such things.
  const v1::SyncResponse granted = SyncOnce(federation.transport(), APoll("hand", "poll-1", 6));
  REQUIRE(granted.leases_size() == 6);
  v1::SyncRequest results = APoll("hand", "poll-2", 0);
  std::vector<std::string> expected;
  for (const v1::Lease& lease : granted.leases()) {
    const size_t task = std::stoul(lease.task().substr(lease.task().find('/') + 1));
    v1::TaskResult& result = *results.add_results();
    result.set_task(lease.task());
    result.set_lease_token(lease.lease_token());
    result.set_contribution(Contribution(kValues[task]));
    expected.push_back(task == 0 ? "ACCEPTED" : "REJECTED");
  }
  const v1::SyncResponse answer = SyncOnce(federation.transport(), results);
  CHECK(VerdictsOf(answer) == expected);
  shell.Add("# the answer to the worker\n");
  for (const v1::ResultVerdict& verdict : answer.verdicts()) {
    shell.Add(fmt::format("{} {}{}{}\n", verdict.task(), v1::ResultVerdict::Verdict_Name(verdict.verdict()),
                          verdict.message().empty() ? "" : ": ", verdict.message()));
  }
  shell.Add("# what anybody else can read\n");
  for (size_t task = 0; task < std::size(kValues); ++task) shell.DescribeTask(fmt::format("{}/{}", round, task));

  // Of the five that were refused nothing is in the result.
  Await(federation, round);
  shell.Sheaf({"round", "result", round, "-o", federation.directory() + "/result.npz"},
              fmt::format("sheaf round result {} -o result.npz", round));
  const std::string script =
      "import numpy; r = numpy.load('result.npz'); print({name: r[name].tolist() for name in sorted(r)})";
  shell.Add(fmt::format("$ python3 -c \"{}\"\n", script));
  const CommandRun shown =
      RunCommand({"/usr/bin/python3", "-c", Replaced(script, "result.npz", federation.directory() + "/result.npz")});
  shell.Add(shown.out + shown.err);

  const std::string text = Replaced(shell.With(round), federation.directory() + "/", "");
  if (ReadFile(kPage).find(text) == std::string::npos) fmt::print("{}", text);
  CHECK(ReadFile(kPage).find("```text\n" + text + "```\n") != std::string::npos);
}

}  // namespace
}  // namespace sheaf
