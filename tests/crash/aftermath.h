// Aftermath: what must hold of a disk after a crash. Starts a server on it, looks, and runs every round to its end.
//
//   std::string violation = CheckAftermath(*disk, now, ledger, mark, options);   // Empty: all is well.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "tests/crash/disk_server.h"
#include "tests/crash/script.h"

namespace sheaf::crash {

// The first thing that is wrong, in a sentence:
// - The database is whole; the server starts; what was created, cancelled and released is still so, to the digest.
// - Every round ends. Of each aggregate: accepted (if DURABLE) is contained in counted, counted in attempted, each
//   contribution once. Nothing individual is left when all have ended.
// Without `looks_inside` SQLite is not asked whether the database is whole: no server does that.
std::string CheckAftermath(SimulatedDisk& disk, absl::Time now, const Ledger& ledger, const Ledger::Mark& mark,
                           const DiskServer::Options& options, bool looks_inside = true);

// The same of a server that runs. With `may_leave_payloads`, what it could not delete may wait for its next start.
std::string CheckServer(DiskServer& server, ManualClock& clock, const Ledger& ledger, const Ledger::Mark& mark,
                        bool may_leave_payloads = false);

}  // namespace sheaf::crash
