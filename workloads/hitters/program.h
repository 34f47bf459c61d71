// HittersProgram: federated counts of dependency names, in one round with the operator keyed_sum.
//
//   HittersProgram program(dataset, {.min_contributors = 2});
//   ASSIGN_OR_RETURN(std::vector<RoundOutcome> outcomes, RunProgram(server, program, {.rounds = 1}));
//   for (const HittersRow& row : program.table()) fmt::print("{} {}\n", row.count, row.name);
//
// Every client is a task and contributes its own counts; the server releases the sum for each name that at least
// `min_contributors` clients have. The dataset must outlive the program. Not thread-safe; the functions are.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "sdk/cpp/program/program.h"
#include "workloads/hitters/dataset.h"

namespace sheaf {

// Names that program and worker share.
inline constexpr char kHittersComputation[] = "hitters";
inline constexpr int kHittersComputationVersion = 1;
inline constexpr char kHittersOutput[] = "counts";

// What one client sends: its names and their counts.
v1::Contribution BuildHittersContribution(const HittersDataset& dataset, int client);

// FAILED_PRECONDITION unless `config`, which is the digest of the program's dataset, is that of `dataset`.
absl::Status CheckHittersConfig(const std::string& config, const HittersDataset& dataset);

struct HittersRow {
  std::string name;
  int64_t count = 0;
};

struct HittersProgramOptions {
  // Withhold names that fewer clients have.
  int64_t min_contributors = 1;
  std::string population;
  std::string job = "hitters";
  // Zero: the server's default.
  absl::Duration round_deadline = absl::ZeroDuration();
};

class HittersProgram final : public Program {
 public:
  HittersProgram(const HittersDataset& dataset, HittersProgramOptions options);

  absl::StatusOr<v1::RoundSpec> Plan(int number) override;
  absl::Status Apply(int number, const SafetensorsView& aggregate, const v1::Round& round) override;
  // "names_released" and "names_withheld".
  absl::StatusOr<std::map<std::string, double>> Evaluate(int number) override;
  // Counts all clients here, combines them with ReferenceAggregate and compares all released bits.
  absl::StatusOr<Verification> Verify(int number, const RoundPlan& plan, const SafetensorsView& aggregate) override;

  // What the round released, sorted by the bytes of the names.
  const std::vector<HittersRow>& table() const { return table_; }
  // How many names clients have that were not released. Which ones, nobody but their clients knows.
  int64_t num_withheld() const { return num_withheld_; }

 private:
  const HittersDataset& dataset_;
  HittersProgramOptions options_;
  std::vector<HittersRow> table_;
  int64_t num_withheld_ = 0;
};

}  // namespace sheaf
