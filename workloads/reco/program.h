// RecoProgram: federated training of the `reco` model.
//
//   RecoProgram program(dataset, {.clients_per_round = 100, .seed = 1});
//   ASSIGN_OR_RETURN(std::vector<RoundOutcome> outcomes, RunProgram(server, program, {.rounds = 50}));
//   const double recall = outcomes.back().evaluation.at(kRecoRecallMetric);
//
// Each round samples clients, gives every one of them its own task, sums the gradients of the item rows they touched,
// and moves those rows with FedAdagrad. The dataset must outlive the program. The same dataset and options give the
// same model bits, however many workers take part and whatever happens to them. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "sdk/cpp/program/program.h"
#include "sdk/cpp/program/server_optimizer.h"
#include "workloads/reco/dataset.h"
#include "workloads/reco/model.h"
#include "workloads/reco/recall.h"

namespace sheaf {

struct RecoProgramOptions {
  // All of them if there are fewer.
  int clients_per_round = 100;
  uint64_t seed = 1;
  // Of the server's steps. The large tau keeps items that few clients touched from moving as far as the popular ones.
  double learning_rate = 0.3;
  double tau = 0.5;
  // How clients compute. The seed and the number of items are filled in.
  RecoConfig client;
  std::string population;
  std::string job = "reco";
  // Of each round. Zero: the server's defaults.
  absl::Duration round_deadline = absl::ZeroDuration();
};

inline constexpr char kRecoRecallMetric[] = "micro_recall_at_20";

class RecoProgram final : public Program {
 public:
  RecoProgram(const RecoDataset& dataset, RecoProgramOptions options);

  absl::StatusOr<v1::RoundSpec> Plan(int number) override;
  absl::StatusOr<std::string> Broadcast(int number) override;
  absl::StatusOr<std::optional<std::string>> Patch(int number, const std::string& base) override;
  absl::Status Apply(int number, const SafetensorsView& aggregate, const v1::Round& round) override;
  absl::StatusOr<std::map<std::string, double>> Evaluate(int number) override;
  // Computes every client of the round here, combines them with ReferenceAggregate and compares all released bits.
  absl::StatusOr<Verification> Verify(int number, const RoundPlan& plan, const SafetensorsView& aggregate) override;

  // SHA-256 of the weights' bytes, little-endian, in hex.
  std::string ModelDigest() const;
  // Clients of a round, in the order of its tasks.
  std::vector<int> SampleClients(int number) const;
  // Size of the model: what a dense contribution, or a broadcast without select, would carry.
  int64_t model_bytes() const { return static_cast<int64_t>(model_.weights.size() * sizeof(float)); }
  double PopularityRecall() const { return RecoPopularityRecallAt20(dataset_, options_.client); }

 private:
  const RecoDataset& dataset_;
  RecoProgramOptions options_;
  std::vector<int> training_clients_;
  RecoModel model_;
  // By the newest aggregate.
  std::vector<int64_t> moved_rows_;
  ServerOptimizer optimizer_;
};

}  // namespace sheaf
