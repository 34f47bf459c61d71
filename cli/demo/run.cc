#include "cli/demo/run.h"

#include <fmt/format.h>

#include "cli/processes/supervised_transport.h"
#include "cli/processes/temporary_directory.h"
#include "workloads/package_index.h"

namespace sheaf {
namespace {

absl::Status RunInDirectory(
    Session& session, bool keep, InterruptGuard& guard,
    const std::function<absl::Status(InterruptGuard& guard, const std::string& directory)>& demo) {
  const std::string parent = session.host().environment("TMPDIR").value_or("/tmp");
  ASSIGN_OR_RETURN(TemporaryDirectory directory, TemporaryDirectory::Create(parent, "sheaf-demo-"));
  if (keep) {
    directory.Keep();
    session.err() << fmt::format("keeping everything in {}\n", directory.path());
  }
  return demo(guard, directory.path());
}

// Not UNAVAILABLE: this server is ours to start, not the user's.
absl::Status ServerGone(LocalFederation& federation) {
  RETURN_IF_ERROR(federation.Check());
  return WithHint(
      absl::AbortedError(fmt::format("the demo's own server at {} does not answer any more", federation.address())),
      "run it again with --keep and look at sheafd.log");
}

}  // namespace

absl::Status RunDemo(Session& session, bool keep,
                     const std::function<absl::Status(InterruptGuard& guard, const std::string& directory)>& demo) {
  InterruptGuard guard;
  absl::Status status = RunInDirectory(session, keep, guard, demo);
  // Whatever a call made of a server that went away on our behalf.
  if (guard.interrupted()) {
    return WithHint(absl::CancelledError("interrupted"),
                    keep ? "everything was stopped" : "everything was stopped and removed");
  }
  return status;
}

absl::StatusOr<std::string> ReadIndexForDemo(Session& session) {
  session.err() << "reading this machine's package index ..." << std::endl;
  absl::StatusOr<std::string> index = ReadPackageIndex();
  if (index.ok()) return index;
  return WithHint(index.status(),
                  "fetch the package lists with 'apt-get update' (as root), or give a snapshot with --data");
}

absl::Status RunProgramOn(Session& session, InterruptGuard& guard, LocalFederation& federation, Program& program,
                          const ProgramOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Transport> wire, session.host().connect(federation.address(), {}));
  SupervisedTransport transport(*wire, [&]() -> absl::Status {
    if (guard.interrupted()) return absl::CancelledError("interrupted");
    return federation.Check();
  });
  const absl::Status status =
      RunProgram({transport, session.host().clock, session.host().random}, program, options).status();
  return absl::IsUnavailable(status) ? ServerGone(federation) : status;
}

}  // namespace sheaf
