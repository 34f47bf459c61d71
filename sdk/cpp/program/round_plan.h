// RoundPlan: what one round of a program is to do.
//
//   RETURN_IF_ERROR(Verify(number, RoundPlan{.spec = spec, .broadcast = broadcast}, aggregate));
#pragma once

#include <string>

#include "sheaf/v1/round.pb.h"

namespace sheaf {

struct RoundPlan {
  // As Program::Plan returned it.
  v1::RoundSpec spec;
  // What was sent: as Program::Broadcast returned it, or Program::Patch.
  std::string broadcast;
};

}  // namespace sheaf
