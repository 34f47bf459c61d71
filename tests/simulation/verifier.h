// Verifier: what must be true of a round that has ended, and of the contributions of any. A released aggregate is
// exactly what the contributions make that the store says were counted, each once, and every contribution that a worker
// was told to be accepted is among them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/stored/round_release.h"
#include "sheaf/v1/round.pb.h"
#include "storage/task_store.h"
#include "tests/simulation/journal.h"
#include "tests/simulation/ledger.h"
#include "tests/simulation/statistics.h"

namespace sheaf::simulation {

struct EndedRound {
  RoundRecord record;
  // As the store keeps it.
  v1::RoundSpec spec;
  std::vector<TaskRecord> tasks;
  std::vector<ContributionRecord> contributions;
  // Of a round that SUCCEEDED; and the file that holds its tensors.
  RoundRelease release;
  std::string aggregate;
  bool was_cancelled = false;
  // Or never announced.
  bool was_opened = true;
  // Of an announced round: what its program meant to open it with.
  std::string broadcast_digest;
};

class Verifier {
 public:
  // All outlive the verifier.
  Verifier(Journal& journal, Statistics& statistics, const Ledger& ledger)
      : journal_(journal), statistics_(statistics), ledger_(ledger) {}

  void Check(const EndedRound& round);
  // Also of a round that goes on.
  void CheckContributions(const EndedRound& round);

 private:
  void CheckEnd(const EndedRound& round);
  void CheckStaleness(const EndedRound& round);
  void CheckAggregate(const EndedRound& round);
  void CheckCriticalPath(const EndedRound& round);

  Journal& journal_;
  Statistics& statistics_;
  const Ledger& ledger_;
};

}  // namespace sheaf::simulation
