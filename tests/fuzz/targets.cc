#include "tests/fuzz/targets.h"

#include <array>

namespace sheaf::fuzz {

std::span<const Target> Targets() {
  static const std::array kTargets = {
      Target{"contribution", RunContribution, MutateContribution},
      Target{"state", RunState, nullptr},
      Target{"spec", RunSpec, MutateSpec},
      Target{"keyed", RunKeyed, nullptr},
      Target{"http", RunHttp, nullptr},
  };
  return kTargets;
}

}  // namespace sheaf::fuzz
