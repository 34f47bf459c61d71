// Playback: plays a transcript to today's code, one side at a time, and says where it does not do what was recorded.
//
//   auto server = PlayToServer(transcript, contract);            // Its calls, at their times, to the handlers.
//   auto worker = PlayToWorker(transcript, "edge-1", contract);  // Its answers to the loop, which has to ask the same.
//   auto wire = PlayOverWire(transcript, contract, address);     // Its calls to a server on the network, one by one.
//
// Names and what nobody promises may differ (likeness.h), times by two seconds.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "tests/golden/transcript.h"

namespace sheaf::golden {

// What came otherwise than it was recorded.
struct Finding {
  // As numbered in the transcript, from 1; 0 for what belongs to no call.
  size_t call = 0;
  // "leases[0].attempt: was 1 and is 2"
  std::string what;
};

std::vector<Finding> PlayToServer(const Transcript& transcript, const std::set<std::string>& contract);
std::vector<Finding> PlayToWorker(const Transcript& transcript, const std::string& worker,
                                  const std::set<std::string>& contract);
std::vector<Finding> PlayOverWire(const Transcript& transcript, const std::set<std::string>& contract,
                                  const std::string& address);

}  // namespace sheaf::golden
