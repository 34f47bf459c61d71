#include <catch2/catch.hpp>
#include <cmath>

#include "base/checksum.h"
#include "base/random.h"
#include "workloads/logistic.h"
#include "workloads/tags/model.h"
#include "workloads/tags/recall.h"

namespace sheaf {
namespace {

std::vector<uint32_t> Features(std::vector<uint32_t> features) { return features; }

// Three clients over six features and three labels; the last one is held out.
TagsDataset SmallDataset() {
  TagsDataset::Builder builder({"a::a", "b::b", "c::c"});
  builder.AddExample(Features({0, 2}), std::vector<uint16_t>{0});
  builder.AddExample(Features({2, 4}), std::vector<uint16_t>{0, 1});
  builder.EndClient(false);
  builder.AddExample(Features({5}), std::vector<uint16_t>{});
  builder.EndClient(false);
  builder.AddExample(Features({0, 4}), std::vector<uint16_t>{1, 2});
  builder.EndClient(true);
  return std::move(builder).Build(6);
}

TagsConfig SmallConfig() { return {.seed = 3, .num_features = 6, .num_labels = 3}; }

TagsUpdate Train(const TagsDataset& dataset, int client, const TagsConfig& config, const TagsModel& model) {
  const std::vector<int64_t> rows = TagsRowsTouched(dataset, client, config);
  return TrainTagsClient(dataset, client, config, {.rows = rows, .weights = model.Gather(rows), .bias = model.bias});
}

TEST_CASE("The logistic function is the textbook's to within float precision, and its loss stays finite") {
  for (double x = -29; x <= 29; x += 0.137) {
    CAPTURE(x);
    CHECK(Sigmoid(static_cast<float>(x)) == Approx(1 / (1 + std::exp(-x))).epsilon(1e-5));
  }
  for (float x : {-1e30f, -31.f, 31.f, 1e30f}) {
    std::vector<float> scores = {x, x, 0.f};
    const double loss = ScoresToGradient(scores, std::vector<uint16_t>{0});
    CHECK(std::isfinite(loss));
    CHECK(loss == Approx(30 + std::log(2)).epsilon(0.01));
  }
}

TEST_CASE("A gradient is prediction minus truth, a loss the summed log loss") {
  std::vector<float> scores(40, 0.5f);
  const double loss = ScoresToGradient(scores, std::vector<uint16_t>{7});
  const double p = 1 / (1 + std::exp(-0.5));
  CHECK(scores[0] == Approx(p));
  CHECK(scores[7] == Approx(p - 1));
  CHECK(loss == Approx(-39 * std::log(1 - p) - std::log(p)));
}

TEST_CASE("A client touches the rows of its own examples and no others") {
  const TagsDataset dataset = SmallDataset();
  CHECK(TagsRowsTouched(dataset, 0, SmallConfig()) == std::vector<int64_t>{0, 2, 4});
  CHECK(TagsRowsTouched(dataset, 1, SmallConfig()) == std::vector<int64_t>{5});
}

TEST_CASE("One step from zero moves every row by the mean gradient of its examples") {
  const TagsDataset dataset = SmallDataset();
  const TagsUpdate update = Train(dataset, 0, SmallConfig(), TagsModel::Zero(6, 3));
  CHECK(update.num_examples == 2);
  CHECK(update.rows == std::vector<int64_t>{0, 2, 4});
  // Gradients are -1/2 where the label holds and 1/2 elsewhere; the batch has two examples.
  CHECK(update.row_deltas == std::vector<float>{.25f, -.25f, -.25f, .5f, 0, -.5f, .25f, .25f, -.25f});
  CHECK(update.bias_delta == std::vector<float>{.5f, 0, -.5f});
  CHECK(update.loss == Approx(3 * std::log(2)));
}

TEST_CASE("Training gives the same bits every time, and the seed orders the examples") {
  const TagsDataset dataset = SmallDataset();
  TagsConfig config = SmallConfig();
  config.batch = 1;
  const TagsModel model = TagsModel::Zero(6, 3);
  const TagsUpdate update = Train(dataset, 0, config, model);
  CHECK(Train(dataset, 0, config, model).row_deltas == update.row_deltas);
  int num_different = 0;
  for (config.seed = 0; config.seed < 20; ++config.seed) {
    if (Train(dataset, 0, config, model).row_deltas != update.row_deltas) ++num_different;
  }
  CHECK(num_different > 0);
}

TEST_CASE("Training has the same bits on every machine and at every optimisation level") {
  const auto dataset = TagsDataset::Load(SHEAF_TEST_DATA "/debian-index-sample.snapshot");
  REQUIRE(dataset.ok());
  const TagsConfig config{.seed = 1, .num_features = dataset->num_features(), .num_labels = dataset->num_labels()};
  const TagsModel model = TagsModel::Zero(dataset->num_features(), dataset->num_labels());
  Sha256 hash;
  for (int client = 0; client < 100; ++client) {
    const TagsUpdate update = Train(*dataset, client, config, model);
    hash.Update({reinterpret_cast<const char*>(update.row_deltas.data()), update.row_deltas.size() * sizeof(float)});
    hash.Update({reinterpret_cast<const char*>(update.bias_delta.data()), update.bias_delta.size() * sizeof(float)});
  }
  CHECK(std::move(hash).Hex() == "b9fa6f08df2fedefbc0ed615e7d67cb51dab616fa5fba626ef13748ef67f5765");
}

TEST_CASE("A client with too many examples trains on some of them") {
  const TagsDataset dataset = SmallDataset();
  TagsConfig config = SmallConfig();
  config.examples_max = 1;
  CHECK(Train(dataset, 0, config, TagsModel::Zero(6, 3)).num_examples == 1);
  CHECK(TagsRowsTouched(dataset, 0, config).size() == 2);
}

TEST_CASE("A contribution carries the touched rows, the bias and the number of examples as weight") {
  const TagsDataset dataset = SmallDataset();
  const v1::Contribution contribution =
      BuildTagsContribution(Train(dataset, 0, SmallConfig(), TagsModel::Zero(6, 3)), SmallConfig());
  REQUIRE(contribution.outputs_size() == 2);
  CHECK(contribution.weight() == 2);
  CHECK(contribution.outputs(0).name() == "rows");
  CHECK(contribution.outputs(0).sparse().values().shape(0) == 3);
  CHECK(contribution.outputs(0).sparse().indices().data().size() == 3 * sizeof(int64_t));
  CHECK(contribution.outputs(1).name() == "bias");
  CHECK(contribution.outputs(1).dense().data().size() == 3 * sizeof(float));
  CHECK(contribution.metrics().at("examples") == 2);
}

TEST_CASE("Recall counts the labels among the five best scores of the held-out packages") {
  TagsDataset::Builder builder({"a", "b", "c", "d", "e", "f", "g"});
  builder.AddExample(Features({0}), std::vector<uint16_t>{0, 6});
  builder.EndClient(true);
  builder.AddExample(Features({1}), std::vector<uint16_t>{5});
  builder.EndClient(true);
  const TagsDataset dataset = std::move(builder).Build(2);
  TagsModel model = TagsModel::Zero(2, 7);
  // Equal scores: the lower labels come first, so 0 is found and 5 and 6 are not.
  CHECK(TagsRecallAt5(model, dataset) == Approx(1.0 / 3));
  model.weights[6] = 1;
  CHECK(TagsRecallAt5(model, dataset) == Approx(2.0 / 3));
  model.bias[5] = 2;
  CHECK(TagsRecallAt5(model, dataset) == 1);
}

TEST_CASE("A configuration survives the wire, and a wrong one is refused by its key") {
  const TagsConfig config{
      .learning_rate = 0.5, .batch = 3, .examples_max = 9, .seed = ~0ull, .num_features = 6, .num_labels = 3};
  const auto parsed = TagsConfig::Parse(config.Serialize());
  REQUIRE(parsed.ok());
  CHECK(parsed->Serialize() == config.Serialize());
  CHECK(parsed->seed == ~0ull);
  const auto message = [&](const std::string& from, const std::string& to) {
    std::string json = config.Serialize();
    json.replace(json.find(from), from.size(), to);
    const auto wrong = TagsConfig::Parse(json);
    CHECK(wrong.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(wrong.status().message());
  };
  CHECK_THAT(message("\"batch\":3", "\"batch\":0"), Catch::Contains("\"batch\""));
  CHECK_THAT(message("\"batch\":3", "\"batch\":-3"), Catch::Contains("\"batch\""));
  CHECK_THAT(message("\"labels\":3", "\"labels\":70000"), Catch::Contains("\"labels\""));
  CHECK_THAT(message("0.5", "\"fast\""), Catch::Contains("\"learning_rate\""));
  CHECK_THAT(message("0.5", "-1"), Catch::Contains("\"learning_rate\""));
  CHECK_THAT(message("\"seed\"", "\"sead\""), Catch::Contains("\"seed\""));
  CHECK_FALSE(TagsConfig::Parse("").ok());
  CHECK_FALSE(TagsConfig::Parse("[1]").ok());
}

TEST_CASE("A worker with another index than the program's does not compute") {
  TagsConfig config = SmallConfig();
  CHECK(config.CheckFits(SmallDataset()).ok());
  config.num_features = 7;
  CHECK(config.CheckFits(SmallDataset()).code() == absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace sheaf
