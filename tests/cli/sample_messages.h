// Answers that the golden tables are made of. Times are counted back from CommandRun's clock.
#pragma once

#include <string>

#include "sheaf/v1/inspection_service.pb.h"
#include "sheaf/v1/round.pb.h"

namespace sheaf {

// SucceededRound with its critical path, through the second attempt at task 4: lost on edge-1, accepted of edge-7. And that
// task, with the attempts.
v1::Round TracedRound();
v1::Task TracedTask();
// A round that succeeded a second ago, with two outputs, phases and metrics.
v1::Round SucceededRound();
// The same, half way: 26 of 50.
v1::Round CollectingRound();
// Of two attempts, the second one running: the first worker was lost.
v1::Task RetriedTask();

}  // namespace sheaf
