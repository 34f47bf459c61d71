// The workload `reco`: its dataset, its arithmetic, and whole trainings in one process: the program loop and the real
// accumulators; only the network is missing.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/clock.h"
#include "base/random.h"
#include "tests/sdk/program_local_server.h"
#include "workloads/reco/program.h"

namespace sheaf {
namespace {

const RecoDataset& Sample() {
  static const RecoDataset dataset = RecoDataset::Load(SHEAF_TEST_DATA "/debian-needs-sample.snapshot").value();
  return dataset;
}

std::vector<float> Floats(std::string_view bytes) {
  const auto* begin = reinterpret_cast<const float*>(bytes.data());
  return {begin, begin + bytes.size() / sizeof(float)};
}

// What a worker does: take the rows the client reads out of the broadcast, compute, build the contribution.
LocalServer::Computing ComputeOn(const RecoDataset& dataset) {
  return [&](const v1::RoundSpec& spec, const v1::TaskSpec& task, const std::string& broadcast) {
    const RecoConfig config = RecoConfig::Parse(spec.computation().config()).value();
    const int client = dataset.ParseSelector(task.data_selector()).value();
    const SafetensorsView file = SafetensorsView::Parse(broadcast).value();
    const TensorView& items = *file.Find(kRecoItemsTensor).value();
    const RecoDraw draw = DrawReco(dataset.items(client), client, config);
    std::string selected;
    for (int64_t row : draw.rows) selected += items.data.substr(row * items.row_bytes(), items.row_bytes());
    return BuildRecoContribution(ComputeReco(draw, config, Floats(selected)), config);
  };
}

struct Training {
  std::vector<RoundOutcome> outcomes;
  std::string model_digest;
  double recall() const { return outcomes.back().evaluation.at(kRecoRecallMetric); }
};

Training Train(const RecoDataset& dataset, RecoProgramOptions program_options, ProgramOptions options,
               bool reverse = false) {
  LocalServer server(ComputeOn(dataset));
  server.set_reverse(reverse);
  SystemClock clock;
  SeededRandom random(7);
  RecoProgram program(dataset, std::move(program_options));
  absl::StatusOr<std::vector<RoundOutcome>> outcomes = RunProgram({server, clock, random}, program, options);
  INFO(outcomes.status().ToString());
  REQUIRE(outcomes.ok());
  return {*std::move(outcomes), program.ModelDigest()};
}

TEST_CASE("Packages with enough known dependencies are clients, whatever the order of the index") {
  const std::string stanzas[] = {
      "Package: a\nDepends: libx, liby (>= 2) | libz\nSuggests: tool\n\n",
      "Package: b\nDepends: liby, libx, tool\n\n",
      "Package: c\nDepends: libx, rare\nPre-Depends: liby\n\n",
      "Package: d\nDepends: rare2\n\n",
  };
  const RecoDatasetOptions options{.items_per_client_min = 2, .clients_per_item_min = 2};
  const RecoDataset dataset =
      RecoDataset::ParseAvailable(stanzas[0] + stanzas[1] + stanzas[2] + stanzas[3], options).value();
  CHECK(dataset.num_clients() == 3);
  // libx, liby, tool.
  CHECK(dataset.num_items() == 3);
  const auto last = dataset.items(2);
  CHECK(std::vector<uint32_t>(last.begin(), last.end()) == std::vector<uint32_t>{0, 1});
  const RecoDataset other =
      RecoDataset::ParseAvailable(stanzas[3] + stanzas[2] + stanzas[1] + stanzas[0], options).value();
  CHECK(other.Serialize() == dataset.Serialize());
  CHECK(RecoDataset::ParseAvailable("Package: a\n", options).status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("A snapshot of packages with tags is not mistaken for one of dependencies") {
  const absl::Status status = RecoDataset::Load(SHEAF_TEST_DATA "/debian-index-sample.snapshot").status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(status.message()), Catch::Contains("debian-index-sample"));
}

TEST_CASE("A client splits its items in two, and only rows of the second half and its negatives leave it") {
  const RecoConfig config{.seed = 3, .num_items = Sample().num_items()};
  const auto items = Sample().items(0);
  const RecoDraw draw = DrawReco(items, 0, config);
  CHECK(draw.support.num_positives + draw.query.num_positives == items.size());
  std::vector<int64_t> both(draw.support.items.begin(), draw.support.items.begin() + draw.support.num_positives);
  both.insert(both.end(), draw.query.items.begin(), draw.query.items.begin() + draw.query.num_positives);
  std::sort(both.begin(), both.end());
  CHECK(std::equal(both.begin(), both.end(), items.begin(), items.end()));

  const RecoModel model = RecoModel::Initial(Sample().num_items(), config.dimensions, 1);
  const RecoUpdate update = ComputeReco(draw, config, model.Gather(draw.rows));
  for (int64_t row : update.rows) CHECK(std::count(draw.query.items.begin(), draw.query.items.end(), row) > 0);
  CHECK(update.rows.size() < draw.rows.size());
  CHECK(update.gradients.size() == update.rows.size() * 17);
}

// Loss of the query half when `user` is held fixed, in double; independent of the code under test.
TEST_CASE("The gradients are those of the loss: a small step against them lowers it") {
  const RecoConfig config{.seed = 3, .num_items = Sample().num_items()};
  RecoModel model = RecoModel::Initial(Sample().num_items(), config.dimensions, 1);
  for (int client = 0; client < 20; ++client) {
    const RecoDraw draw = DrawReco(Sample().items(client), client, config);
    const RecoUpdate before = ComputeReco(draw, config, model.Gather(draw.rows));
    RecoModel moved = model;
    for (size_t i = 0; i < before.rows.size(); ++i) {
      for (int d = 0; d < moved.width; ++d) {
        // Rows of the query half alone: the client's vector stays what it was.
        if (std::count(draw.support.items.begin(), draw.support.items.end(), before.rows[i]) > 0) continue;
        moved.weights[before.rows[i] * moved.width + d] -= 0.01f * before.gradients[i * moved.width + d];
      }
    }
    CHECK(ComputeReco(draw, config, moved.Gather(draw.rows)).loss < before.loss);
  }
}

TEST_CASE("Thirty rounds on the sample learn to complete packages never seen, well beyond popularity") {
  const Training training = Train(Sample(), {.seed = 1}, {.rounds = 30});
  const double popularity = RecoPopularityRecallAt20(Sample(), {});
  INFO(fmt::format("recall@20 {}, popularity {}", training.recall(), popularity));
  CHECK(popularity > 0.1);
  CHECK(training.recall() > popularity + 0.1);
}

TEST_CASE(
    "A reco training has the same model bits in whatever order the contributions arrive, and other ones by seed") {
  const RecoProgramOptions options{.clients_per_round = 10, .seed = 4};
  const Training forwards = Train(Sample(), options, {.rounds = 3});
  CHECK(Train(Sample(), options, {.rounds = 3}, /*reverse=*/true).model_digest == forwards.model_digest);
  RecoProgramOptions other = options;
  other.seed = 5;
  CHECK(Train(Sample(), other, {.rounds = 3}).model_digest != forwards.model_digest);
}

TEST_CASE("Every released bit of a reco round is what brute force gives") {
  const Training training = Train(Sample(), {.clients_per_round = 20, .seed = 1}, {.rounds = 2, .verify = true});
  for (const RoundOutcome& outcome : training.outcomes) {
    CHECK(outcome.verification->num_values > 10'000);
    CHECK(outcome.verification->first_mismatch == "");
    CHECK(outcome.verification->num_mismatches == 0);
  }
}

TEST_CASE("A configuration of reco travels as JSON, and what is wrong in one is named") {
  const RecoConfig config{.dimensions = 8, .local_rate = 0.5, .seed = 9, .num_items = 100};
  const RecoConfig parsed = RecoConfig::Parse(config.Serialize()).value();
  CHECK(parsed.Serialize() == config.Serialize());
  CHECK_THAT(RecoConfig::Parse("{}").status().ToString(), Catch::Contains("dimensions"));
  CHECK_THAT(RecoConfig::Parse(R"({"dimensions":0})").status().ToString(), Catch::Contains("from 1"));
  CHECK_FALSE(RecoConfig::Parse("[]").ok());
  CHECK(config.CheckFits(Sample()).code() == absl::StatusCode::kFailedPrecondition);
}

// Needs this machine's package lists; run it with `reco_test "[apt]"`.
TEST_CASE("Fifty rounds on this machine's package index reach a recall of 0.38", "[.apt]") {
  const auto index = ReadPackageIndex();
  INFO(index.status().ToString());
  REQUIRE(index.ok());
  const RecoDataset dataset = RecoDataset::ParseAvailable(*index).value();
  fmt::print("{} clients, {} items, popularity: {:.4f}\n", dataset.num_clients(), dataset.num_items(),
             RecoPopularityRecallAt20(dataset, {}));
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const Training training = Train(dataset, {.seed = seed}, {.rounds = 50});
    fmt::print("seed {}: recall@20 {:.4f} at round 10, {:.4f} at round 50; {} bytes of aggregate\n", seed,
               training.outcomes[9].evaluation.at(kRecoRecallMetric), training.recall(),
               training.outcomes.back().aggregate_bytes);
    CHECK(training.recall() >= 0.38);
  }
}

}  // namespace
}  // namespace sheaf
