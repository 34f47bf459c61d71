#include "server/net/certificate_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr absl::Duration kLookEvery = absl::Seconds(1);

}  // namespace

class CertificateWatch::MemoryFile {
 public:
  explicit MemoryFile(const char* name) : name_(name), fd_(memfd_create(name, MFD_CLOEXEC)) {}
  ~MemoryFile() {
    if (fd_ >= 0) close(fd_);
  }

  std::string path() const { return fmt::format("/proc/self/fd/{}", fd_); }

  // Whoever opens the path finds the old text or the new one.
  absl::Status Replace(const std::string& text) {
    const int fresh = memfd_create(name_, MFD_CLOEXEC);
    const bool is_written = fresh >= 0 && write(fresh, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    const bool is_in_place = is_written && fd_ >= 0 && dup3(fresh, fd_, O_CLOEXEC) == fd_;
    const std::string why = std::strerror(errno);
    if (fresh >= 0) close(fresh);
    if (!is_in_place) return absl::InternalError(fmt::format("no memory for a certificate: {}", why));
    if (access(path().c_str(), R_OK) == 0) return absl::OkStatus();
    return absl::InternalError(fmt::format("cannot read {}: TLS needs the file system /proc; mount it", path()));
  }

 private:
  const char* const name_;
  const int fd_;
};

CertificateWatch::CertificateWatch(CertificateRenewal renewal, ServingCertificate& facts)
    : renewal_(std::move(renewal)), facts_(facts) {}

absl::StatusOr<std::unique_ptr<CertificateWatch>> CertificateWatch::Open(CertificateFiles files, absl::Time now,
                                                                         ServingCertificate& facts) {
  ASSIGN_OR_RETURN(CertificateRenewal renewal,
                   CertificateRenewal::Open(std::move(files), now, CertificateEnd::kServer));
  auto watch = std::unique_ptr<CertificateWatch>(new CertificateWatch(std::move(renewal), facts));
  const auto open = [](const std::string& file, const char* name, std::unique_ptr<MemoryFile>& memory,
                       std::string& path) {
    if (file.empty()) return;
    memory = std::make_unique<MemoryFile>(name);
    path = memory->path();
  };
  open(watch->renewal_.files().certificate, "sheaf-certificate", watch->certificate_, watch->served_.certificate);
  open(watch->renewal_.files().key, "sheaf-key", watch->key_, watch->served_.key);
  open(watch->renewal_.files().authorities, "sheaf-authorities", watch->authorities_, watch->served_.authorities);
  RETURN_IF_ERROR(watch->Publish(watch->renewal_.current()));
  facts.Set({.expire_time = watch->renewal_.current().expire_time});
  return watch;
}

CertificateWatch::~CertificateWatch() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    is_stopping_ = true;
    stop_.NotifyAll();
  }
  thread_.join();
}

absl::Status CertificateWatch::Publish(const LoadedCertificates& loaded) {
  // A handshake between the two gets neither: gRPC looks at both times before it takes a pair, and a second later
  // again.
  if (key_ != nullptr) RETURN_IF_ERROR(key_->Replace(loaded.key));
  if (certificate_ != nullptr) RETURN_IF_ERROR(certificate_->Replace(loaded.certificate));
  if (authorities_ != nullptr) RETURN_IF_ERROR(authorities_->Replace(loaded.authorities));
  for (const auto& use : subscribers_) RETURN_IF_ERROR(use(loaded));
  return absl::OkStatus();
}

absl::Status CertificateWatch::Subscribe(std::function<absl::Status(const LoadedCertificates&)> use) {
  RETURN_IF_ERROR(use(renewal_.current()));
  subscribers_.push_back(std::move(use));
  return absl::OkStatus();
}

void CertificateWatch::Look(absl::Time now) {
  renewal_.Look(now, [this](const LoadedCertificates& renewed) { return Publish(renewed); });
  facts_.Set({.expire_time = renewal_.current().expire_time, .problem = renewal_.problem()});
}

void CertificateWatch::Start(const Clock& clock) {
  thread_ = std::thread([this, &clock] { Run(clock); });
}

void CertificateWatch::Run(const Clock& clock) {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (!is_stopping_) stop_.WaitFor(mutex_, kLookEvery);
      if (is_stopping_) return;
    }
    Look(clock.Now());
  }
}

}  // namespace sheaf
