// CallId: one call to this process, from before it is looked at until it was answered. No two calls of a process have
// the same. So a call that waits can be told that its caller has gone, although others of the same worker came since.
//
//   sync.Answer(request, call, caller, now, reply);
//   polls.Abandon(call);                              // Ends that call if it waits, and no other.
#pragma once

#include "base/number_id.h"

namespace sheaf {

using CallId = NumberId<struct CallIdTag>;

}  // namespace sheaf
