// The parser: which command the words name, and what they set. The only place that knows the argument library.
//
//   ParsedLine line = ParseLine(args, global);
//   if (!line.status.ok()) return line.status;
//   return line.command->Run(session);
//
// Takes the nouns and verbs from CommandTable().
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/commands.h"

namespace sheaf {

struct ParsedLine {
  // As far as the words name a command, even if they are wrong further on.
  std::string noun;
  const CommandRow* row = nullptr;
  // Made and filled when `row` is set.
  std::unique_ptr<Command> command;
  // What it declared.
  Arguments arguments;
  bool wants_help = false;
  bool wants_version = false;
  // Names of the global options that the line gives (so that the environment does not count).
  std::vector<std::string> given;
  // INVALID_ARGUMENT names the word that is wrong, with the nearest right one as hint.
  absl::Status status;
};

ParsedLine ParseLine(const std::vector<std::string>& args, const Arguments& global);

}  // namespace sheaf
