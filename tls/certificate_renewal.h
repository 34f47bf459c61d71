// CertificateRenewal: the files of a certificate while somebody uses what is in them. Whoever uses them gets only what
// can work: after a renewal that went wrong the pair before stays in use, and somebody is told. gRPC's own watcher
// takes whatever it finds.
//
//   ASSIGN_OR_RETURN(CertificateRenewal renewal,
//                    CertificateRenewal::Open(files, clock.Now(), CertificateEnd::kClient));
//   RETURN_IF_ERROR(Use(renewal.current()));
//   renewal.Look(clock.Now(), [&](const LoadedCertificates& renewed) { return Use(renewed); });   // Each second.
//
// Not thread-safe.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tls/certificates.h"

namespace sheaf {

// For the words of the log.
enum class CertificateEnd { kServer, kClient };

class CertificateRenewal {
 public:
  // The codes of LoadCertificates.
  static absl::StatusOr<CertificateRenewal> Open(CertificateFiles files, absl::Time now, CertificateEnd end);

  const CertificateFiles& files() const { return files_; }
  // What is to be used.
  const LoadedCertificates& current() const { return current_; }
  // Why what the files hold is not; empty if it is.
  const std::string& problem() const { return problem_; }

  // Looks at the files: has what is in them used if they changed and can work, says so if they cannot, and warns of the
  // certificate's end, a server in time. Two looks in a row have to see the same fault: a pair is replaced one file
  // after the other. An error of `use` is such a fault.
  void Look(absl::Time now, absl::FunctionRef<absl::Status(const LoadedCertificates&)> use);

 private:
  CertificateRenewal(CertificateFiles files, LoadedCertificates current, CertificateEnd end)
      : files_(std::move(files)), end_(end), current_(std::move(current)) {}
  // Why what the files hold must not be used.
  absl::Status CheckRenewal(const LoadedCertificates& found, absl::Time now) const;
  void WarnOfEnd(absl::Time now);

  CertificateFiles files_;
  CertificateEnd end_;
  LoadedCertificates current_;
  // Of the looks since the files last were what is used.
  std::string fault_;
  int num_faulty_looks_ = 0;
  std::string problem_;
  absl::Time next_warning_ = absl::InfinitePast();
};

}  // namespace sheaf
