// Contributions of every odd kind, handed in by hand to a real server, and what the command line says of each. What it
// prints stands in docs/reference/operators.md, word for word.
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "sdk/cpp/methods.h"
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
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

// The lines that begin with one of these, as they were printed.
std::string LinesWith(const std::string& text, const std::vector<std::string>& beginnings) {
  std::string kept;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    for (const std::string& beginning : beginnings) {
      if (line.rfind(beginning, 0) == 0) kept += line + "\n";
    }
  }
  return kept;
}

TEST_CASE("Every odd contribution gets its answer, as the page of operators shows") {
  Federation federation;
  std::string transcript;
  const auto spec_file = [&](const std::string& name, const std::string& bias_more) {
    std::ofstream(federation.directory() + "/" + name)
        << R"({"computation": {"name": "noop"}, "minGoal": 1, "retry": {"failedMax": 1}, "aggregate": {"outputs": [)"
        << R"({"name": "bias", "operator": "sum", "dtype": "FLOAT32", "denseShape": [4])" << bias_more << "},"
        << R"({"name": "weights", "operator": "coordinate_mean", "dtype": "FLOAT32", "denseShape": [4]}]},)"
        << R"("listed": {"tasks": [{}, {}, {}, {}, {}, {}]}})";
    return federation.directory() + "/" + name;
  };
  const auto run = [&](const std::vector<std::string>& arguments) {
    return federation.Sheaf(arguments);
  };
  (void)run;
  const CommandRun declared = federation.Sheaf({"round", "create", "-f", spec_file("sparse.json", R"(, "form": "SPARSE")")});
  std::printf("%d\n%s%s", declared.exit_code, declared.out.c_str(), declared.err.c_str());
  const CommandRun created = federation.Sheaf({"round", "create", "-f", spec_file("round.json", "")});
  std::printf("%d\n%s%s", created.exit_code, created.out.c_str(), created.err.c_str());
  REQUIRE(created.exit_code == 0);
  const std::string round = created.out.substr(0, created.out.find('\n'));
  const v1::SyncResponse granted = SyncOnce(federation.transport(), APoll("hand", "poll-1", 6));
  REQUIRE(granted.leases_size() == 6);
  const Value values[] = {
      {.indices = {2, 0, 2}, .values = {1, 1, 3}},
      {.is_sparse_for_dense = true},
      {.indices = {0, 4}},
      {.dense = {1, 1, std::nanf(""), 1}},
      {.dense = {1, 1, 1}},
      {.values = {1, 1, 1}},
  };
  v1::SyncRequest results = APoll("hand", "poll-2", 0);
  std::map<std::string, const Value*> by_task;
  for (int i = 0; i < 6; ++i) by_task[fmt::format("{}/{}", round, i)] = &values[i];
  for (const v1::Lease& lease : granted.leases()) {
    v1::TaskResult& result = *results.add_results();
    result.set_task(lease.task());
    result.set_lease_token(lease.lease_token());
    result.set_contribution(Contribution(*by_task.at(lease.task())));
  }
  const v1::SyncResponse answered = SyncOnce(federation.transport(), results);
  for (const auto& v : answered.verdicts()) std::printf("%s\n", v.ShortDebugString().c_str());
  for (int i = 0; i < 6; ++i) std::printf("%s", federation.Sheaf({"task", "describe", fmt::format("{}/{}", round, i)}).out.c_str());
  std::printf("%s", federation.Sheaf({"task", "list", round}).out.c_str());
  std::printf("%s", federation.Sheaf({"round", "describe", round}).out.c_str());
}

}  // namespace
}  // namespace sheaf
