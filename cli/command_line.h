// The command line of `sheaf`: finds the command, weighs flags against environment, runs it, tells failures.
//
//   int main(int argc, char** argv) {
//     return RunCommandLine({argv + 1, argv + argc}, host);
//   }
//
// Options every command has (declared here) may stand before the noun or after the verb. A flag beats its variable
// in the environment, which beats the default.
#pragma once

#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/host.h"
#include "cli/session.h"

namespace sheaf {

// Declares --server and how it is reached, --output, --population, --timeout, --color and --no-headers.
void DeclareGlobalOptions(Arguments& arguments, GlobalOptions* options);

// Runs the command that `args` (without the program's name) spell; returns the exit code (exit_codes.h).
int RunCommandLine(const std::vector<std::string>& args, Host& host);

}  // namespace sheaf
