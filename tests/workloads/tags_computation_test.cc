#include <fmt/format.h>
#include <google/protobuf/util/message_differencer.h>
#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>

#include "aggregation/round_accumulator.h"
#include "aggregation/wire/safetensors.h"
#include "sheaf/v1/round.pb.h"
#include "tests/no_waiter.h"
#include "worker/computation_runner.h"
#include "worker/computation_table.h"
#include "workloads/tags/computation.h"
#include "workloads/tags/dataset.h"
#include "workloads/tags/model.h"

namespace sheaf {
namespace {

// Twenty maintainers with three packages each.
TagsDataset SmallDataset() {
  std::string index;
  for (int i = 0; i < 60; ++i) {
    index += fmt::format(
        "Package: tool-{0}\nMaintainer: M{1} <m{1}@example.org>\nDepends: libc6, lib{2}\nDescription: does thing{2} "
        "well\n"
        "Tag: role::program, use::thing{2}\n\n",
        i, i / 3, i % 7);
  }
  return TagsDataset::ParseAvailable(index, {.num_labels = 8}).value();
}

class TemporaryPath {
 public:
  TemporaryPath() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sheaf-tags-XXXXXX").string();
    close(mkstemp(pattern.data()));
    path = pattern;
  }
  ~TemporaryPath() { std::filesystem::remove(path); }
  std::string path;
};

// The rows a server would answer with.
NamedTensor Select(const SafetensorsView& broadcast, const v1::RowSelection& selection) {
  const TensorView& tensor = **broadcast.Find(selection.tensor());
  if (selection.all()) return {tensor.name, tensor.dtype, tensor.shape, std::string(tensor.data)};
  NamedTensor result{tensor.name, tensor.dtype, tensor.shape, ""};
  result.shape[0] = selection.rows_size();
  for (int64_t row : selection.rows()) {
    result.data += tensor.data.substr(static_cast<size_t>(row * tensor.row_bytes()), tensor.row_bytes());
  }
  return result;
}

struct Fixture {
  Fixture() {
    REQUIRE(dataset.Save(snapshot.path).ok());
    REQUIRE(data.Configure("debian-index", snapshot.path).ok());
    runner =
        std::make_unique<ComputationRunner>(table.Make({data, waiter}), [](std::function<void()> work) { work(); });
  }

  absl::StatusOr<std::string> Compute(const v1::Lease& lease, const SafetensorsView& broadcast) {
    absl::StatusOr<std::string> result = absl::InternalError("no answer");
    auto control = std::make_shared<RunControl>();
    auto run = [&](absl::StatusOr<std::shared_ptr<PreparedTask>> task) {
      if (!task.ok()) {
        result = task.status();
        return;
      }
      auto inputs = std::make_shared<TaskInputs>();
      for (const v1::RowSelection& selection : (*task)->input_request().selections) {
        selected_rows += selection.rows_size();
        inputs->selected.push_back(Select(broadcast, selection));
      }
      runner->Run(*task, inputs, control, [&](absl::StatusOr<RunOutcome> outcome) {
        result =
            outcome.ok() ? std::get<std::string>(*std::move(outcome)) : absl::StatusOr<std::string>(outcome.status());
      });
    };
    runner->Prepare(std::make_shared<v1::Lease>(lease), control, run);
    return result;
  }

  TagsDataset dataset = SmallDataset();
  TemporaryPath snapshot;
  const ComputationTable table{TagsComputation()};
  DataSources data{table.data_sources()};
  NoWaiter waiter;
  std::unique_ptr<ComputationRunner> runner;
  int64_t selected_rows = 0;
};

// A round of tags on this dataset.
v1::RoundSpec SpecFor(const TagsDataset& dataset) {
  v1::RoundSpec spec;
  spec.mutable_computation()->set_name(kTagsComputation);
  TagsConfig config{.seed = 3, .num_features = dataset.num_features(), .num_labels = dataset.num_labels()};
  spec.mutable_computation()->set_config(config.Serialize());
  v1::OutputSpec* rows = spec.mutable_aggregate()->add_outputs();
  rows->set_name(kTagsRowsOutput);
  rows->set_operator_("weighted_coordinate_mean");
  rows->set_dtype(v1::FLOAT32);
  rows->add_dense_shape(dataset.num_features());
  rows->add_dense_shape(dataset.num_labels());
  rows->set_index_dims(1);
  v1::OutputSpec* bias = spec.mutable_aggregate()->add_outputs();
  bias->set_name(kTagsBiasOutput);
  bias->set_operator_("weighted_mean");
  bias->set_dtype(v1::FLOAT32);
  bias->add_dense_shape(dataset.num_labels());
  return spec;
}

// A model that is not zero, so that taking the wrong rows of it shows.
std::string BroadcastFor(const TagsDataset& dataset) {
  std::vector<NamedTensor> tensors;
  for (auto [name, rows] : {std::pair(kTagsWeightsTensor, dataset.num_features()), {kTagsBiasTensor, 1}}) {
    NamedTensor& tensor = tensors.emplace_back(NamedTensor{name, v1::FLOAT32, {}, ""});
    if (name == kTagsWeightsTensor) tensor.shape.push_back(rows);
    tensor.shape.push_back(dataset.num_labels());
    for (int i = 0; i < rows * dataset.num_labels(); ++i) {
      float value = 0.001f * static_cast<float>(i);
      tensor.data.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
  }
  return EncodeSafetensors(tensors, {});
}

void Append(std::string_view bytes, std::vector<float>& floats) {
  size_t old = floats.size();
  floats.resize(old + bytes.size() / sizeof(float));
  std::memcpy(floats.data() + old, bytes.data(), bytes.size());
}

v1::Lease LeaseFor(const v1::RoundSpec& spec, const std::string& selector) {
  v1::Lease lease;
  lease.set_task("r/0");
  *lease.mutable_computation() = spec.computation();
  *lease.mutable_aggregate() = spec.aggregate();
  lease.set_data_selector(selector);
  return lease;
}

TEST_CASE("A tags worker fetches only the rows its client touches, and returns what training on them gives") {
  Fixture test;
  v1::RoundSpec spec = SpecFor(test.dataset);
  TagsConfig config = TagsConfig::Parse(spec.computation().config()).value();
  std::string file = BroadcastFor(test.dataset);
  SafetensorsView broadcast = SafetensorsView::Parse(file).value();
  RoundAccumulator sum = RoundAccumulator::Create(spec.aggregate()).value();
  const TensorView& weights = **broadcast.Find(kTagsWeightsTensor);
  const TensorView& bias = **broadcast.Find(kTagsBiasTensor);
  for (int client : test.dataset.TrainingClients()) {
    test.selected_rows = 0;
    absl::StatusOr<std::string> bytes = test.Compute(LeaseFor(spec, TagsSelector(client)), broadcast);
    INFO(bytes.status().ToString());
    REQUIRE(bytes.ok());
    v1::Contribution contribution;
    REQUIRE(contribution.ParseFromString(*bytes));
    CHECK(sum.Validate(contribution).status().ToString() == "OK");

    std::vector<int64_t> rows = TagsRowsTouched(test.dataset, client, config);
    CHECK(test.selected_rows == static_cast<int64_t>(rows.size()));
    CHECK(rows.size() < static_cast<size_t>(test.dataset.num_features()));
    std::vector<float> row_values;
    for (int64_t row : rows) Append(weights.data.substr(row * weights.row_bytes(), weights.row_bytes()), row_values);
    std::vector<float> bias_values;
    Append(bias.data, bias_values);
    TagsUpdate update =
        TrainTagsClient(test.dataset, client, config, {.rows = rows, .weights = row_values, .bias = bias_values});
    // Metrics are a map: compared as messages, not as bytes.
    CHECK(google::protobuf::util::MessageDifferencer::Equals(contribution, BuildTagsContribution(update, config)));
  }
}

TEST_CASE("A worker whose package index is another one than the program's says so instead of computing") {
  Fixture test;
  v1::RoundSpec spec = SpecFor(test.dataset);
  TagsDataset other = TagsDataset::ParseAvailable("Package: a\nMaintainer: b\nDescription: c d\nTag: e::f\n").value();
  REQUIRE(other.Save(test.snapshot.path).ok());
  absl::Status status = test.Compute(LeaseFor(spec, "client:0"), SafetensorsView()).status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("A tags task for a client that does not exist is refused by name") {
  Fixture test;
  v1::RoundSpec spec = SpecFor(test.dataset);
  absl::Status status = test.Compute(LeaseFor(spec, "client:100000"), SafetensorsView()).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Catch::Contains("100000"));
}

}  // namespace
}  // namespace sheaf
