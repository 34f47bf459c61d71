// TokenFile: the token that proves who we are, in a file that may be replaced while we run.
//
//   TokenFile token("edge.token");
//   context->AddMetadata("authorization", token.header());   // "Bearer sheaf_..."
//   ...
//   token.Refused();                                          // Perhaps there is a new one: the next call shows it.
//
// Thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace sheaf {

// The one word in a file. NOT_FOUND, PERMISSION_DENIED or INVALID_ARGUMENT, naming the file and never its content;
// FAILED_PRECONDITION if other users may read it.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

class TokenFile {
 public:
  // Empty: no token.
  explicit TokenFile(std::string path);

  // Empty if there is no token.
  std::string header() const EXCLUDES(mutex_);
  void Refused() EXCLUDES(mutex_);

 private:
  const std::string path_;
  mutable Mutex mutex_;
  std::string header_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
