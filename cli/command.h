// Command: one noun and verb of the command line. It declares its arguments, then runs once against a Session.
//
//   class QueueDescribe final : public Command {
//    public:
//     absl::Status Run(Session& session) override { return PrintQueue(session); }
//   };
//
// A command is made for one run: its members are its parsed arguments. Every command is one row of
// the table in commands.cc and one file, named after it.
#pragma once

#include "absl/status/status.h"
#include "cli/arguments.h"
#include "cli/session.h"

namespace sheaf {

class Command {
 public:
  virtual ~Command() = default;
  virtual void Declare(Arguments& /*arguments*/) {}
  // Data goes to session.out(), everything else to session.err(). The status decides the exit code
  // (exit_codes.h); its message is printed by the caller, with the hint it carries (errors.h).
  virtual absl::Status Run(Session& session) = 0;
};

}  // namespace sheaf
