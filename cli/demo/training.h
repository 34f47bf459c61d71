// TrainingDemo: what `sheaf demo tags` and `sheaf demo reco` have in common: a model trained in rounds by a federation
// that is started for it, with a report while it runs and what to try next.
//
//   class DemoReco final : public TrainingDemo {
//    public:
//     DemoReco() : TrainingDemo({.name = "reco", .clients = "packages", .rounds = 50, .clients_per_round = 100}) {}
//    private:
//     absl::Status Prepare(Session& session, const std::string& snapshot, std::string& data) override {
//       return PrepareDataset<RecoDataset>(session, snapshot, data).status();
//     }
//     absl::StatusOr<Training> MakeTraining(const TrainingOptions& options) override {
//       return Training{.program = MakeReco(options.seed)};
//     }
//   };
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/command.h"
#include "cli/demo/report.h"
#include "cli/processes/interrupt.h"
#include "cli/processes/local_federation.h"
#include "sdk/cpp/program/program.h"

namespace sheaf {

class TrainingDemo : public Command {
 public:
  // What differs from demo to demo, in words and figures.
  struct Traits {
    // As in `sheaf demo NAME`.
    const char* name;
    // What a client is, in the plural.
    const char* clients;
    // Under which name a worker knows the dataset, and what is in it.
    const char* dataset;
    const char* dataset_help;
    // What tabs compute: a folder of share/sheaf/join, which has all but the dataset. Null: nothing.
    const char* join = nullptr;
    int64_t rounds;
    int64_t clients_per_round;
  };

  void Declare(Arguments& arguments) override;
  absl::Status Run(Session& session) override;

 protected:
  struct TrainingOptions {
    int clients_per_round = 0;
    uint64_t seed = 0;
    std::string population;
    absl::Duration round_deadline;
  };
  struct Training {
    std::unique_ptr<Program> program;
    std::function<std::string()> model_digest;
    // Without the number of rounds.
    DemoFacts facts;
  };

  explicit TrainingDemo(const Traits& traits)
      : traits_(traits), rounds_(traits.rounds), clients_(traits.clients_per_round) {}

  // Loads the dataset at path `data`; if that is empty, parses this machine's package index, and saves it as
  // `snapshot`, where `data` is then. Tells people what is in it.
  virtual absl::Status Prepare(Session& session, const std::string& snapshot, std::string& data) = 0;
  // After Prepare.
  virtual absl::StatusOr<Training> MakeTraining(const TrainingOptions& options) = 0;
  // A line under "next:".
  struct Suggestion {
    std::string command;
    std::string what;
  };
  virtual std::vector<Suggestion> MoreNext(const std::string& /*sheaf*/) const { return {}; }

 private:
  // How many tasks each worker prepares ahead.
  int TasksAhead() const;
  // The directory for `sheafd --join`, made in `directory`; empty if no tab is wanted.
  absl::StatusOr<std::string> MakeJoinDirectory(Session& session, const std::string& directory) const;
  // Returns when as many tabs call as are wanted.
  absl::Status WaitForTabs(Session& session, InterruptGuard& guard, LocalFederation& federation) const;
  absl::Status RunIn(Session& session, InterruptGuard& guard, const std::string& directory);
  absl::Status Train(Session& session, InterruptGuard& guard, LocalFederation& federation);
  void PrintIntroduction(Session& session, const std::string& address) const;
  void PrintNext(Session& session, const std::string& directory) const;

  const Traits traits_;
  int64_t rounds_;
  int64_t workers_ = 8;
  int64_t tabs_ = 0;
  int64_t ahead_ = 0;
  int64_t clients_;
  int64_t seed_ = 1;
  bool verify_ = false;
  bool keep_ = false;
  // Path of the snapshot; the workers read it, too.
  std::string data_;
};

}  // namespace sheaf
