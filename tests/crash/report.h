// Report: the one line that each of these tests prints, and the violations before it.
//
//   Report report("crash points");
//   report.Count(violation, [&] { return fmt::format("seed {}", seed); });
//   report.Print();   // crash points: 5832 run, 0 violations, 9.1 s
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/clock.h"
#include "tests/crash/disk_server.h"

namespace sheaf::crash {

class Report {
 public:
  explicit Report(std::string what);

  // One point; `violation` is empty if all is well.
  void Count(const std::string& violation, const std::function<std::string()>& where);
  void Violate(const std::string& violation);
  // Adds to a figure that is printed too.
  void Note(const std::string& what, int64_t number) { notes_[what] += number; }
  void Print() const;

  int64_t count() const { return count_; }
  int64_t num_violations() const { return num_violations_; }

 private:
  const std::string what_;
  const SystemClock clock_;
  const absl::Time start_;
  int64_t count_ = 0;
  int64_t num_violations_ = 0;
  std::map<std::string, int64_t> notes_;
};

// SHEAF_CRASH_SEEDS: how many times the usual is to be run; 1 if it is not set.
int Effort();

// Low limits, so that a short script meets checkpoints.
DiskServer::Options ServerOptions(uint64_t seed = 1);

}  // namespace sheaf::crash
