#include "cli/exit_codes.h"

namespace sheaf {
namespace {

constexpr ExitCodeRow kMeanings[] = {
    {ExitCode::kOk, "it worked"},
    {ExitCode::kFailed, "it failed; or the round that it waited for failed or was cancelled"},
    {ExitCode::kUsage, "the command line or the file given to it is wrong"},
    {ExitCode::kNotFound, "no such round, task, worker or file"},
    {ExitCode::kDenied, "the server or the file system refused"},
    {ExitCode::kUnreachable, "the server cannot be reached"},
    {ExitCode::kTimedOut, "it took longer than --timeout"},
    {ExitCode::kPrecondition, "the state of the round, task or store does not allow it (yet, or any more)"},
    {ExitCode::kInterrupted, "interrupted by Ctrl-C"},
};

struct StatusRow {
  absl::StatusCode status;
  ExitCode code;
};

constexpr StatusRow kStatuses[] = {
    {absl::StatusCode::kOk, ExitCode::kOk},
    {absl::StatusCode::kInvalidArgument, ExitCode::kUsage},
    {absl::StatusCode::kNotFound, ExitCode::kNotFound},
    {absl::StatusCode::kPermissionDenied, ExitCode::kDenied},
    {absl::StatusCode::kUnauthenticated, ExitCode::kDenied},
    {absl::StatusCode::kUnavailable, ExitCode::kUnreachable},
    {absl::StatusCode::kDeadlineExceeded, ExitCode::kTimedOut},
    {absl::StatusCode::kFailedPrecondition, ExitCode::kPrecondition},
    {absl::StatusCode::kAlreadyExists, ExitCode::kPrecondition},
    {absl::StatusCode::kCancelled, ExitCode::kInterrupted},
};

}  // namespace

std::span<const ExitCodeRow> ExitCodeTable() { return kMeanings; }

ExitCode ToExitCode(absl::StatusCode code) {
  for (const StatusRow& row : kStatuses) {
    if (row.status == code) return row.code;
  }
  return ExitCode::kFailed;
}

}  // namespace sheaf
