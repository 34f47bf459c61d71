// What the process that keeps a program and the worker that asked for it tell each other: messages of a socket of
// packets, between two processes of one binary.
#pragma once

#include <cstdint>
#include <string_view>

#include "worker/processes/process_limits.h"

namespace sheaf {

// From the keeper.
struct ProcessReport {
  enum class Kind : int32_t {
    // It used so much.
    kUsage,
    // It could not be started: `error` is an errno.
    kNotStarted,
    // It and all it had started are gone.
    kEnded,
  };
  Kind kind = Kind::kUsage;
  int32_t error = 0;
  // As waitpid gives it.
  int32_t wait_status = 0;
  // Over which it was killed.
  ProcessLimit exceeded = ProcessLimit::kNone;
  // Of the piece of work that is watched.
  int64_t cpu_nanoseconds = 0;
};

// From the worker: the first byte of a message. To close the socket is to kill the program.
// A piece of work begins: count what it uses. The rest is the path of the directory that it writes to.
inline constexpr char kWatch = 'w';
// It is over.
inline constexpr char kRest = 'r';

// Descriptors that a program is given besides the standard ones.
inline constexpr int kLinesToProgram = 3;
inline constexpr int kLinesFromProgram = 4;

}  // namespace sheaf
