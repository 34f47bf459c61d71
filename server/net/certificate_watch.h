// CertificateWatch: looks at the files of the server's certificate each second, and lets the transports have what can
// work (tls/certificate_renewal.h).
//
//   ServingCertificate certificate;
//   ASSIGN_OR_RETURN(auto watch, CertificateWatch::Open(files, clock.Now(), certificate));
//   FileWatcherCertificateProvider provider(watch->served().key, watch->served().certificate, /*refresh_seconds=*/1);
//   RETURN_IF_ERROR(watch->Subscribe([&](const LoadedCertificates& loaded) { return Use(loaded); }));
//   watch->Start(clock);
//
//   files --Look--> checked? --yes--> memory (served) --gRPC looks--> handshakes
//                        |     \----> subscribers -----------------> handshakes
//                        \--no--> the pair before stays; an error in the log, and in `sheaf server info`
//
// What is served lies in memory, not on a disk; gRPC reads it as /proc/self/fd/N, because it takes certificates that
// change from files only. Look and Subscribe belong to one thread; once Start was called, Look to the watch's own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "tls/certificate_renewal.h"
#include "tls/certificates.h"
#include "tls/serving_certificate.h"

namespace sheaf {

class CertificateWatch {
 public:
  // The codes of LoadCertificates; INTERNAL if there is no memory for them, or no /proc. `facts` is kept up to date and
  // outlives the watch.
  static absl::StatusOr<std::unique_ptr<CertificateWatch>> Open(CertificateFiles files, absl::Time now,
                                                                ServingCertificate& facts);
  ~CertificateWatch();
  CertificateWatch(const CertificateWatch&) = delete;
  CertificateWatch& operator=(const CertificateWatch&) = delete;

  // Where gRPC finds what it may serve; empty where there is no file.
  const CertificateFiles& served() const { return served_; }

  // Calls `use` now, and with whatever is to be served from then on; an error of it is a fault of the files. Before
  // Start; what `use` refers to outlives the watch.
  absl::Status Subscribe(std::function<absl::Status(const LoadedCertificates&)> use);

  // See CertificateRenewal.
  void Look(absl::Time now);

  // Looks each second from now on, in a thread of its own.
  void Start(const Clock& clock);

 private:
  // A file in memory that is replaced at one blow.
  class MemoryFile;

  CertificateWatch(CertificateRenewal renewal, ServingCertificate& facts);
  absl::Status Publish(const LoadedCertificates& loaded);
  void Run(const Clock& clock);

  CertificateRenewal renewal_;
  ServingCertificate& facts_;
  CertificateFiles served_;
  std::vector<std::function<absl::Status(const LoadedCertificates&)>> subscribers_;
  std::unique_ptr<MemoryFile> certificate_;
  std::unique_ptr<MemoryFile> key_;
  std::unique_ptr<MemoryFile> authorities_;

  Mutex mutex_;
  CondVar stop_;
  bool is_stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sheaf
