// TokenFile: the token that proves who we are, in a file that may be replaced while we run.
//
//   TokenFile token("edge.token");
//   const std::string shown = token.header();                  // "Bearer sheaf_..."
//   context->AddMetadata("authorization", shown);
//
//   if (absl::IsUnauthenticated(answer) && token.Refused(shown)) CallAgain();   // The file has another one by now.
//
// Each header() looks whether the file is another one (one stat), so that a new token is shown from the next call on.
// While a changed file cannot be read, or does not hold a token yet, the one before stays: it may be half written.
// Thread-safe.
#pragma once

#include <sys/stat.h>

#include <cstdint>
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
  std::string header() EXCLUDES(mutex_);
  // The server refused a call that showed this header. Reads the file whatever its times say; true if there is another
  // token to show now.
  bool Refused(const std::string& shown) EXCLUDES(mutex_);
  // Grows whenever another token was found in the file; looks for one.
  int64_t version() EXCLUDES(mutex_);

 private:
  void Look() REQUIRES(mutex_);
  void Read() REQUIRES(mutex_);

  const std::string path_;
  Mutex mutex_;
  std::string header_ GUARDED_BY(mutex_);
  int64_t version_ GUARDED_BY(mutex_) = 0;
  // Of the file when it was read last. All zero: it was not there.
  struct stat seen_ GUARDED_BY(mutex_) = {};
};

}  // namespace sheaf
