// LeasesInReception: leases whose results have come and are being received beside the core (see reception.h). They came
// in time: however long their checks take, the lease does not run out meanwhile.
//
//   leases.Begin(token);
//   const bool is_spared = leases.Spare(token);   // In a sweep of what has run out.
//   if (leases.End(token)) due.AtOnce();          // It was spared: if it is still held, it is looked at again.
//
// Not thread-safe: the core's.
#pragma once

#include <map>

#include "base/check.h"
#include "storage/ids.h"

namespace sheaf {

class LeasesInReception {
 public:
  // A result of this lease is being received; several calls may bring one.
  void Begin(const LeaseToken& token) { ++leases_[token].num_results; }
  // One of them was received. True if a sweep has spared the lease.
  bool End(const LeaseToken& token) {
    const auto found = leases_.find(token);
    SHEAF_CHECK(found != leases_.end(), "no result of this lease is being received");
    const bool was_spared = found->second.was_spared;
    if (--found->second.num_results == 0) leases_.erase(found);
    return was_spared;
  }
  // The lease has run out: true if it is left as it is.
  bool Spare(const LeaseToken& token) {
    const auto found = leases_.find(token);
    if (found == leases_.end()) return false;
    return found->second.was_spared = true;
  }
  // No more than this are spared.
  int size() const { return static_cast<int>(leases_.size()); }

 private:
  struct Lease {
    int num_results = 0;
    bool was_spared = false;
  };
  std::map<LeaseToken, Lease> leases_;
};

}  // namespace sheaf
