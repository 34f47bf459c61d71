// ChildProcess: a server under measurement, in a process of its own, pinned to a CPU of its own.
//
//   ASSIGN_OR_RETURN(auto server, ChildProcess::Start({.words = {"sheafd", "--listen", "127.0.0.1:0"}, .cpu = 0}));
//   const absl::Duration before = server->cpu_time();
//
// It prints its address on stdout or in its log as "listening on HOST:PORT". Killed with the object. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sheaf::bench {

// Pins this process, and its later children, to one CPU; nothing if there is no such CPU.
void PinTo(std::optional<int> cpu);
// All CPUs again, for this process and its later children.
void Unpin();

class ChildProcess {
 public:
  struct Options {
    std::vector<std::string> words;
    // Added to this process's environment.
    std::vector<std::pair<std::string, std::string>> variables;
    std::optional<int> cpu;
    // A worker does not: then Start returns at once.
    bool listens = true;
  };
  // Returns when it listens. UNAVAILABLE, with what it printed, if it ends before.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const Options& options);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  const std::string& address() const { return address_; }
  // Lets it end what it does, and waits for that.
  void Stop();
  // User and system time so far, in the kernel's ticks of 10 ms.
  absl::Duration cpu_time() const;
  int64_t rss_bytes() const;
  // The most it ever had.
  int64_t peak_rss_bytes() const;

 private:
  ChildProcess(pid_t pid, int output) : pid_(pid), output_(output) {}

  void ReadOn();

  const pid_t pid_;
  const int output_;
  bool is_stopped_ = false;
  std::string address_;
  // Reads its output until it ends.
  std::thread log_;
};

}  // namespace sheaf::bench
