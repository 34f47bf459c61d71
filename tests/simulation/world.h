// World: a whole federation in one thread and virtual time, made from one seed: server, workers, programs, an operator,
// the networks between them, and all that goes wrong with each.
//
//   World world(17, StoreKind::kMemory, statistics, /*keep_journal=*/false);
//   std::optional<Violation> violation = world.Run();
//
// For a while it storms; then nothing goes wrong any more, and every round must come to its end in time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/random.h"
#include "tests/simulation/agenda.h"
#include "tests/simulation/journal.h"
#include "tests/simulation/ledger.h"
#include "tests/simulation/observer.h"
#include "tests/simulation/program_actor.h"
#include "tests/simulation/seats.h"
#include "tests/simulation/sim_server.h"
#include "tests/simulation/sim_storage.h"
#include "tests/simulation/verifier.h"
#include "tests/simulation/weather.h"

namespace sheaf::simulation {

class World {
 public:
  // `statistics` outlives the world.
  World(uint64_t seed, StoreKind kind, Statistics& statistics, bool keep_journal);
  ~World();

  // The first invariant that was broken, if any.
  std::optional<Violation> Run();

  const Journal& journal() const { return journal_; }
  // Two runs of one seed have one digest.
  uint64_t digest() const { return agenda_.digest(); }

 private:
  // Once a second.
  void Beat();
  void BecomeCalm();
  bool IsOver() const;
  void CheckProgress();
  // False if the round waits for what may never come.
  bool CanFinish(const RoundRecord& round);
  void VerifyRounds();
  void VerifyNothingIsLeft();
  std::string ReadAggregate(const RoundId& round);
  // Calls the server and lets time pass until it answers.
  template <typename M>
  absl::StatusOr<typename M::Response> Ask(const M& method, const typename M::Request& request);
  // False when an invariant is broken or nothing is left to do.
  bool Advance();

  Agenda agenda_;
  Journal journal_;
  Statistics& statistics_;
  SeededRandom chance_;
  SeededRandom core_random_;
  SeededRandom worker_random_;
  Weather weather_;
  Ledger ledger_;
  SimStorage storage_;
  SimServer server_;
  Seats seats_;
  std::vector<std::unique_ptr<ProgramActor>> programs_;
  Observer observer_;
  Verifier verifier_;
  absl::Time storm_end_;
};

}  // namespace sheaf::simulation
