// Process: a program that does work for us, and what it says meanwhile.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<Process> process, host.Start(spec));
//   RETURN_IF_ERROR(process->Say(R"({"task": {}})", absl::Seconds(10)));
//   for (;;) {
//     const ProcessEvent event = process->Wait(absl::Milliseconds(50));
//     if (event.kind == ProcessEvent::Kind::kLine) fmt::print("{}\n", event.line);
//     if (event.kind == ProcessEvent::Kind::kEnded) break;   // With process->end().
//   }
//
// Destroying it kills the program and all that it started, and deletes its directory; neither is waited for. Kill
// waits. What it prints is read and, but for the end, forgotten. Used by one thread at a time.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/processes/descriptor.h"
#include "worker/processes/process_limits.h"
#include "worker/processes/process_report.h"

namespace sheaf {

struct ProcessEvent {
  enum class Kind { kNothing, kLine, kEnded };
  Kind kind = Kind::kNothing;
  // Without its end.
  std::string line;
};

// How a program ended.
struct ProcessEnd {
  // -1 if a signal ended it, or if it never began.
  int exit_code = -1;
  int signal = 0;
  // It was killed for this.
  ProcessLimit exceeded = ProcessLimit::kNone;
  // Something else that ended it, in words.
  std::string reason;

  // "exit code 3", "signal 11 (Segmentation fault)", "over its limit of memory", or the reason.
  std::string Text() const;
};

class Process {
 public:
  // A longer line ends the program.
  static constexpr size_t kLineBytesMax = 1 << 20;
  // Of what it printed.
  static constexpr size_t kPrintedBytesMax = 8 << 10;

  struct Descriptors {
    Descriptor control;
    Descriptor lines_to_program;
    Descriptor lines_from_program;
    Descriptor printed;
  };
  // For ProcessHost. All of them do not block.
  Process(Descriptors descriptors, std::string directory)
      : descriptors_(std::move(descriptors)), directory_(std::move(directory)) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Its own; gone when it is.
  const std::string& directory() const { return directory_; }

  // Has it read `line`, which has no end of a line in it. DEADLINE_EXCEEDED if it does not read for `timeout`;
  // UNAVAILABLE if it has ended or reads no more.
  absl::Status Say(std::string_view line, absl::Duration timeout);
  // What it does next; nothing within `timeout`, or sooner. Lines come before the end.
  ProcessEvent Wait(absl::Duration timeout);
  // Once Wait said that it has ended.
  const ProcessEnd& end() const { return end_; }

  // A piece of work begins: count what it uses, and hold it to its limits. `directory` is what it writes to.
  void Watch(const std::string& directory);
  // It is over.
  void Rest();
  bool is_watched() const { return is_watched_; }
  // Of the piece of work, as far as is known.
  absl::Duration cpu_time() const { return cpu_time_; }

  // The end of what it printed.
  const std::string& printed() const { return printed_; }

  // Kills it and all it started, and waits until they are gone.
  void Kill();

 private:
  // Nothing, if none is complete.
  ProcessEvent TakeLine();
  void ReadLines();
  void ReadPrinted();
  void ReadReports();
  void EndFor(std::string reason);

  Descriptors descriptors_;
  const std::string directory_;
  // What it said; the next line begins at `next_line_`.
  std::string said_;
  size_t next_line_ = 0;
  std::string printed_;
  bool is_watched_ = false;
  absl::Duration cpu_time_;
  bool has_ended_ = false;
  ProcessEnd end_;
};

}  // namespace sheaf
