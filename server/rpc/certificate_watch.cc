#include "server/rpc/certificate_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr absl::Duration kLookEvery = absl::Seconds(1);
// Looks that see the same fault before it is one.
constexpr int kFaultyLooks = 2;
// Time enough to renew by hand, also over holidays.
constexpr absl::Duration kWarnBefore = absl::Hours(14 * 24);
constexpr absl::Duration kWarnEvery = absl::Hours(24);

std::string Day(absl::Time time) { return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone()); }

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

CertificateWatch::CertificateWatch(CertificateFiles files, ServingCertificate& facts)
    : files_(std::move(files)), facts_(facts) {}

absl::StatusOr<std::unique_ptr<CertificateWatch>> CertificateWatch::Open(CertificateFiles files, absl::Time now,
                                                                         ServingCertificate& facts) {
  auto watch = std::unique_ptr<CertificateWatch>(new CertificateWatch(std::move(files), facts));
  ASSIGN_OR_RETURN(LoadedCertificates loaded, LoadCertificates(watch->files_));
  const auto open = [](const std::string& file, const char* name, std::unique_ptr<MemoryFile>& memory,
                       std::string& path) {
    if (file.empty()) return;
    memory = std::make_unique<MemoryFile>(name);
    path = memory->path();
  };
  open(watch->files_.certificate, "sheaf-certificate", watch->certificate_, watch->served_.certificate);
  open(watch->files_.key, "sheaf-key", watch->key_, watch->served_.key);
  open(watch->files_.authorities, "sheaf-authorities", watch->authorities_, watch->served_.authorities);
  RETURN_IF_ERROR(watch->Publish(std::move(loaded)));
  watch->WarnOfEnd(now);
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

absl::Status CertificateWatch::Publish(LoadedCertificates loaded) {
  // A handshake between the two gets neither: gRPC looks at both times before it takes a pair, and a second later
  // again.
  if (key_ != nullptr) RETURN_IF_ERROR(key_->Replace(loaded.key));
  if (certificate_ != nullptr) RETURN_IF_ERROR(certificate_->Replace(loaded.certificate));
  if (authorities_ != nullptr) RETURN_IF_ERROR(authorities_->Replace(loaded.authorities));
  current_ = std::move(loaded);
  next_warning_ = absl::InfinitePast();
  facts_.Set({.expire_time = current_.expire_time});
  return absl::OkStatus();
}

absl::Status CertificateWatch::CheckRenewal(const LoadedCertificates& found, absl::Time now) const {
  if (found.expire_time <= now) {
    return absl::FailedPreconditionError(fmt::format("the certificate {} expired on {}; put one there that is valid",
                                                     files_.certificate, Day(found.expire_time)));
  }
  if (found.valid_from > now) {
    return absl::FailedPreconditionError(
        fmt::format("the certificate {} is valid only from {}; it is served from then on, if the clock of this machine "
                    "is right",
                    files_.certificate, Day(found.valid_from)));
  }
  return absl::OkStatus();
}

void CertificateWatch::Look(absl::Time now) {
  absl::StatusOr<LoadedCertificates> found = LoadCertificates(files_);
  absl::Status status = found.status();
  const bool has_changed = status.ok() && *found != current_;
  if (has_changed) status = CheckRenewal(*found, now);
  if (has_changed && status.ok()) status = Publish(*std::move(found));
  if (status.ok()) {
    if (has_changed)
      LogInfo("serving with the renewed certificate {}, valid until {}", files_.certificate, Day(current_.expire_time));
    if (!has_changed && num_faulty_looks_ >= kFaultyLooks) {
      LogInfo("the files of the certificate are again those that are served");
      facts_.Set({.expire_time = current_.expire_time});
    }
    num_faulty_looks_ = 0;
    fault_.clear();
  } else {
    const std::string message(status.message());
    num_faulty_looks_ = message == fault_ ? num_faulty_looks_ + 1 : 1;
    fault_ = message;
    if (num_faulty_looks_ == kFaultyLooks) {
      LogError("the renewed certificate is not served, the one before is, until {}: {}", Day(current_.expire_time),
               message);
      facts_.Set({.expire_time = current_.expire_time, .problem = message});
    }
  }
  WarnOfEnd(now);
}

void CertificateWatch::WarnOfEnd(absl::Time now) {
  if (now < next_warning_ || current_.expire_time - now > kWarnBefore) return;
  next_warning_ = now + kWarnEvery;
  if (current_.expire_time <= now) {
    LogError("the certificate {} expired on {}: clients refuse it; renew it, the server reads it again by itself",
             files_.certificate, Day(current_.expire_time));
  } else {
    LogWarning("the certificate {} expires on {}; renew it, the server reads it again by itself", files_.certificate,
               Day(current_.expire_time));
  }
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
