// Descriptor: a file descriptor that is closed when its owner goes.
//
//   Descriptor file(open("/dev/null", O_RDONLY | O_CLOEXEC));
//   if (!file) return absl::ErrnoToStatus(errno, "/dev/null");
#pragma once

#include <unistd.h>

#include <utility>

namespace sheaf {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }

  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }
  void Close() { *this = Descriptor(); }

 private:
  int fd_ = -1;
};

}  // namespace sheaf
