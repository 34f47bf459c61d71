// ServingCertificate: what whoever looks after a server is told of the certificate that it shows.
//
//   certificate.Set({.expire_time = loaded.expire_time});          // Whoever serves with it.
//   const absl::Time expire_time = certificate.Get().expire_time;  // `sheaf server info`.
//
// Thread-safe.
#pragma once

#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace sheaf {

class ServingCertificate {
 public:
  struct Facts {
    // Infinite: there is none.
    absl::Time expire_time = absl::InfiniteFuture();
    // Why a renewed one is not served; empty if all is well.
    std::string problem;
  };

  void Set(Facts facts) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    facts_ = std::move(facts);
  }
  Facts Get() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return facts_;
  }

 private:
  mutable Mutex mutex_;
  Facts facts_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
