// Whole trainings in one process: the program loop, the real accumulators and the real arithmetic; only the network is
// missing.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/clock.h"
#include "base/random.h"
#include "tests/sdk/program_local_server.h"
#include "workloads/tags/program.h"
#include "workloads/tags/recall.h"

namespace sheaf {
namespace {

const TagsDataset& Sample() {
  static const TagsDataset dataset = TagsDataset::Load(SHEAF_TEST_DATA "/debian-index-sample.snapshot").value();
  return dataset;
}

// What a worker does: take the rows the client touches out of the broadcast, train, build the contribution.
LocalServer::Computing TrainOn(const TagsDataset& dataset) {
  return [&](const v1::RoundSpec& spec, const v1::TaskSpec& task, const std::string& broadcast) {
    const TagsConfig config = TagsConfig::Parse(spec.computation().config()).value();
    const int client = ParseTagsSelector(task.data_selector(), dataset).value();
    const SafetensorsView file = SafetensorsView::Parse(broadcast).value();
    const std::vector<int64_t> rows = TagsRowsTouched(dataset, client, config);
    const std::string_view w = file.Find(kTagsWeightsTensor).value()->data;
    const std::string_view b = file.Find(kTagsBiasTensor).value()->data;
    std::string selected;
    for (int64_t row : rows) selected += w.substr(row * b.size(), b.size());
    const auto floats = [](std::string_view bytes) {
      return std::span(reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float));
    };
    return BuildTagsContribution(
        TrainTagsClient(dataset, client, config, {.rows = rows, .weights = floats(selected), .bias = floats(b)}),
        config);
  };
}

struct Training {
  std::vector<RoundOutcome> outcomes;
  std::string model_digest;
};

Training Train(
    const TagsDataset& dataset, TagsProgramOptions program_options, ProgramOptions options,
    const std::function<void(LocalServer&)>& prepare = [](LocalServer&) {}) {
  LocalServer server(TrainOn(dataset));
  prepare(server);
  SystemClock clock;
  SeededRandom random(7);
  TagsProgram program(dataset, std::move(program_options));
  absl::StatusOr<std::vector<RoundOutcome>> outcomes = RunProgram({server, clock, random}, program, options);
  INFO(outcomes.status().ToString());
  REQUIRE(outcomes.ok());
  return {*std::move(outcomes), program.ModelDigest()};
}

double FinalRecall(const Training& training) { return training.outcomes.back().evaluation.at(kTagsRecallMetric); }

TEST_CASE(
    "Twenty rounds on the sample learn to tag packages of maintainers never seen, faster by coordinate than by "
    "client") {
  const Training by_coordinate = Train(Sample(), {.seed = 1, .mean = TagsMean::kCoordinate}, {.rounds = 20});
  const Training by_client = Train(Sample(), {.seed = 1, .mean = TagsMean::kClient}, {.rounds = 20});
  CHECK(TagsPopularityRecallAt5(Sample()) < 0.35);
  CHECK(FinalRecall(by_client) >= 0.45);
  CHECK(FinalRecall(by_coordinate) >= 0.52);
  CHECK(FinalRecall(by_coordinate) > FinalRecall(by_client) + 0.02);
}

TEST_CASE("A training has the same model bits in whatever order the contributions arrive") {
  const TagsProgramOptions options{.clients_per_round = 10, .seed = 4};
  const Training forwards = Train(Sample(), options, {.rounds = 3});
  const Training backwards =
      Train(Sample(), options, {.rounds = 3}, [](LocalServer& server) { server.set_reverse(true); });
  CHECK(forwards.model_digest == backwards.model_digest);
  TagsProgramOptions other = options;
  other.seed = 5;
  CHECK(Train(Sample(), other, {.rounds = 3}).model_digest != forwards.model_digest);
}

TEST_CASE("A training has the same model bits however many rounds are announced ahead") {
  const TagsProgramOptions options{.clients_per_round = 10, .seed = 4};
  const Training one_by_one = Train(Sample(), options, {.rounds = 6, .verify = true});
  const Training ahead = Train(Sample(), options, {.rounds = 6, .ahead = 4, .verify = true});
  CHECK(ahead.model_digest == one_by_one.model_digest);
  for (size_t i = 0; i < ahead.outcomes.size(); ++i) {
    CHECK(ahead.outcomes[i].aggregate_digest == one_by_one.outcomes[i].aggregate_digest);
    CHECK(ahead.outcomes[i].evaluation == one_by_one.outcomes[i].evaluation);
    CHECK(ahead.outcomes[i].verification->num_mismatches == 0);
  }
}

TEST_CASE("Every released bit is what brute force gives, with either mean") {
  const TagsMean mean = GENERATE(TagsMean::kCoordinate, TagsMean::kClient);
  const Training training =
      Train(Sample(), {.clients_per_round = 8, .seed = 1, .mean = mean}, {.rounds = 2, .verify = true});
  for (const RoundOutcome& outcome : training.outcomes) {
    REQUIRE(outcome.verification.has_value());
    CHECK(outcome.verification->num_values > 10'000);
    CHECK(outcome.verification->num_mismatches == 0);
    CHECK(outcome.verification->first_mismatch == "");
  }
}

TEST_CASE("Verification finds a single wrong bit and says where it is") {
  const Training training =
      Train(Sample(), {.clients_per_round = 4}, {.rounds = 1, .verify = true},
            [](LocalServer& server) { server.set_tamper([](std::string& aggregate) { aggregate.back() ^= 1; }); });
  CHECK(training.outcomes[0].verification->num_mismatches == 1);
  CHECK_THAT(training.outcomes[0].verification->first_mismatch, Catch::Contains("differs at element"));
}

TEST_CASE("A round samples its clients without repeats, never those held out, and differently each time") {
  TagsProgram program(Sample(), {.seed = 1});
  std::vector<int> clients = program.SampleClients(1);
  CHECK(clients == program.SampleClients(1));
  CHECK(clients != program.SampleClients(2));
  CHECK(clients.size() == 50);
  std::sort(clients.begin(), clients.end());
  CHECK(std::adjacent_find(clients.begin(), clients.end()) == clients.end());
  for (int client : clients) CHECK_FALSE(Sample().is_held_out(client));
  const TagsProgram greedy(Sample(), {.clients_per_round = 1 << 20});
  CHECK(greedy.SampleClients(1).size() == Sample().TrainingClients().size());
}

TEST_CASE("A mean is named by one of two words") {
  CHECK(ParseTagsMean("coordinate").value() == TagsMean::kCoordinate);
  CHECK(ParseTagsMean("client").value() == TagsMean::kClient);
  CHECK_THAT(ParseTagsMean("median").status().ToString(), Catch::Contains("coordinate") && Catch::Contains("client"));
}

TEST_CASE("An aggregate that does not fit the model is refused") {
  TagsProgram program(Sample(), {});
  const std::string before = program.ModelDigest();
  const int64_t labels = Sample().num_labels();
  const auto apply = [&](int64_t feature, int64_t num_labels) {
    NamedTensor indices{.name = "rows.indices", .dtype = v1::INT64, .shape = {1, 1}};
    indices.data.assign(reinterpret_cast<const char*>(&feature), sizeof(feature));
    NamedTensor values{.name = "rows.values", .dtype = v1::FLOAT32, .shape = {1, num_labels}};
    values.data.resize(num_labels * sizeof(float));
    NamedTensor bias{.name = "bias", .dtype = v1::FLOAT32, .shape = {num_labels}, .data = values.data};
    const std::string file = EncodeSafetensors(std::vector<NamedTensor>{indices, values, bias}, {});
    return program.Apply(1, SafetensorsView::Parse(file).value(), {});
  };
  CHECK(apply(0, labels).ok());
  CHECK_FALSE(apply(-1, labels).ok());
  CHECK_FALSE(apply(Sample().num_features(), labels).ok());
  CHECK_FALSE(apply(0, labels + 1).ok());
  const std::string file = EncodeSafetensors(std::vector<NamedTensor>{}, {});
  CHECK(program.Apply(1, SafetensorsView::Parse(file).value(), {}).code() == absl::StatusCode::kNotFound);
  CHECK(program.ModelDigest() == before);
}

// Needs this machine's package lists; run it with `tags_test "[apt]"`.
TEST_CASE("Twenty rounds on this machine's package index reach a recall of 0.52", "[.apt]") {
  SystemClock clock;
  const auto index = ReadPackageIndex();
  INFO(index.status().ToString());
  REQUIRE(index.ok());
  const absl::Time start = clock.Now();
  const TagsDataset dataset = TagsDataset::ParseAvailable(*index).value();
  fmt::print("{} clients, {} examples, {} features, parsed in {}\n", dataset.num_clients(), dataset.num_examples(),
             dataset.num_features(), absl::FormatDuration(clock.Now() - start));
  fmt::print("popularity: {:.4f}\n", TagsPopularityRecallAt5(dataset));
  CHECK(dataset.num_examples() > 25'000);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    for (const TagsMean mean : {TagsMean::kCoordinate, TagsMean::kClient}) {
      const Training training = Train(dataset, {.seed = seed, .mean = mean}, {.rounds = 20});
      const char* name = mean == TagsMean::kCoordinate ? "coordinate" : "client";
      fmt::print("seed {}, {} mean: recall@5 {:.4f} at round 1, {:.4f} at round 10, {:.4f} at round 20\n", seed, name,
                 training.outcomes[0].evaluation.at(kTagsRecallMetric),
                 training.outcomes[9].evaluation.at(kTagsRecallMetric), FinalRecall(training));
      if (mean == TagsMean::kCoordinate) CHECK(FinalRecall(training) >= 0.52);
    }
  }
}

}  // namespace
}  // namespace sheaf
