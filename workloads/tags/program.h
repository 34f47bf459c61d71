// TagsProgram: federated training of the `tags` model.
//
//   TagsProgram program(dataset, {.clients_per_round = 50, .seed = 1, .mean = TagsMean::kCoordinate});
//   ASSIGN_OR_RETURN(std::vector<RoundOutcome> outcomes, RunProgram(server, program, {.rounds = 20}));
//   const double recall = outcomes.back().evaluation.at(kTagsRecallMetric);
//
// Each round samples clients, gives every one of them its own task, and adds the mean of their deltas to the model
// (FedAvg). With TagsMean::kCoordinate a row is divided by the weight of the clients that touched it, with kClient by
// the weight of all. The dataset must outlive the program. The same dataset and options give the same model bits,
// however many workers take part and whatever happens to them. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "sdk/cpp/program/program.h"
#include "sdk/cpp/program/server_optimizer.h"
#include "workloads/tags/dataset.h"
#include "workloads/tags/model.h"

namespace sheaf {

enum class TagsMean { kCoordinate, kClient };

// "coordinate" or "client". INVALID_ARGUMENT naming both otherwise.
absl::StatusOr<TagsMean> ParseTagsMean(std::string_view text);

struct TagsProgramOptions {
  // All of them if there are fewer.
  int clients_per_round = 50;
  uint64_t seed = 1;
  TagsMean mean = TagsMean::kCoordinate;
  double learning_rate = 1.0;
  int batch = 10;
  int examples_max = 512;
  std::string population;
  std::string job = "tags";
  // Of each round. Zero: the server's defaults.
  absl::Duration round_deadline = absl::ZeroDuration();
  absl::Duration lease_duration = absl::ZeroDuration();
};

inline constexpr char kTagsRecallMetric[] = "micro_recall_at_5";

class TagsProgram final : public Program {
 public:
  TagsProgram(const TagsDataset& dataset, TagsProgramOptions options);

  absl::StatusOr<v1::RoundSpec> Plan(int number) override;
  absl::StatusOr<std::string> Broadcast(int number) override;
  absl::StatusOr<std::optional<std::string>> Patch(int number, const std::string& base) override;
  absl::Status Apply(int number, const SafetensorsView& aggregate, const v1::Round& round) override;
  absl::StatusOr<std::map<std::string, double>> Evaluate(int number) override;
  // Trains every client of the round here, combines them with ReferenceAggregate and compares all released bits.
  absl::StatusOr<Verification> Verify(int number, const RoundPlan& plan, const SafetensorsView& aggregate) override;

  const TagsModel& model() const { return model_; }
  // SHA-256 of the weights' and then the bias' bytes, little-endian, in hex.
  std::string ModelDigest() const;
  // Clients of a round, in the order of its tasks.
  std::vector<int> SampleClients(int number) const;
  // Size of the model: what a dense contribution, or a broadcast without select, would carry.
  int64_t model_bytes() const;

 private:
  TagsConfig RoundConfig(int number) const;
  v1::AggregateSpec AggregateSpec() const;

  const TagsDataset& dataset_;
  TagsProgramOptions options_;
  std::vector<int> training_clients_;
  TagsModel model_;
  // By the newest aggregate.
  std::vector<int64_t> moved_rows_;
  ServerOptimizer optimizer_;
};

}  // namespace sheaf
