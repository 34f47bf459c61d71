// World: a whole federation in one thread and virtual time, made from one seed: server, workers, programs, an operator,
// the networks between them, and all that goes wrong with each.
//
//   World world({.seed = 17, .mode = Mode::kLiveness}, statistics);
//   std::optional<Violation> violation = world.Run();
//
// In safety mode it storms to the end, and nothing untrue may be seen. In liveness mode the storm ends at one instant:
// from then on every task must end in its time (see Progress), every round at its deadline at the latest, and when all
// have ended nothing may be left over.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "tests/simulation/agenda.h"
#include "tests/simulation/credentials.h"
#include "tests/simulation/journal.h"
#include "tests/simulation/ledger.h"
#include "tests/simulation/observer.h"
#include "tests/simulation/program_actor.h"
#include "tests/simulation/progress.h"
#include "tests/simulation/seats.h"
#include "tests/simulation/sim_servers.h"
#include "tests/simulation/sim_storage.h"
#include "tests/simulation/swizzle.h"
#include "tests/simulation/verifier.h"
#include "tests/simulation/weather.h"
#include "tests/simulation/world_options.h"

namespace sheaf::simulation {

class World {
 public:
  // `statistics` outlives the world.
  World(const WorldOptions& options, Statistics& statistics);
  ~World();

  // The first invariant that was broken, if any.
  std::optional<Violation> Run();

  const Journal& journal() const { return journal_; }
  // Two runs of one seed have one digest.
  uint64_t digest() const { return agenda_.digest(); }
  // Between store operations.
  int64_t num_passages() const { return server_.num_passages(); }

 private:
  // Programs whose rounds continue one another, from this number on.
  void CreateChain(int number, std::vector<FaultyTransport*>& links);
  // Once a second.
  void Beat();
  void BecomeCalm();
  bool IsOver() const;
  const ProgramActor* ProgramOf(const std::string& request_id) const;
  // It is durable that a round has ended: it is verified, and may be deleted from now on.
  void OnRoundEnded(const RoundId& id);
  EndedRound ReadRound(const RoundRecord& record);
  // All rounds that are still there, at the end.
  void VerifyRounds();
  void VerifyShown(const RoundRecord& record);
  // Everybody goes home, and time passes; then nothing may be left.
  void Close();
  void VerifyNothingIsLeft();
  std::string ReadAggregate(const RoundId& round);
  // Calls the server and lets time pass until it answers.
  template <typename M>
  absl::StatusOr<typename M::Response> Ask(const M& method, const typename M::Request& request);
  // False when an invariant is broken or nothing is left to do.
  bool Advance();
  // Until then, or until an invariant is broken.
  void AdvanceTo(absl::Time time);

  const WorldOptions options_;
  Agenda agenda_;
  Journal journal_;
  Statistics& statistics_;
  SeededRandom chance_;
  // For announced rounds.
  SeededRandom announcing_;
  // For rounds that continue others.
  SeededRandom carrying_;
  SeededRandom core_random_;
  SeededRandom worker_random_;
  Weather weather_;
  const Limits limits_;
  Ledger ledger_;
  SimStorage storage_;
  const Credentials credentials_;
  SimServers server_;
  Seats seats_;
  std::vector<std::unique_ptr<ProgramActor>> programs_;
  Observer observer_;
  std::unique_ptr<Swizzle> swizzle_;
  Verifier verifier_;
  Progress progress_;
  // Of a world in safety mode.
  bool is_over_ = false;
  bool is_closing_ = false;
};

}  // namespace sheaf::simulation
