// The help texts, rendered from the tables: never written twice.
#pragma once

#include <string>
#include <string_view>

#include "cli/arguments.h"
#include "cli/commands.h"

namespace sheaf {

// What `sheaf` alone prints.
std::string OverviewHelp();
// One noun and its verbs.
std::string NounHelp(std::string_view noun);
// One command, its arguments, the options all commands have, and an example.
std::string CommandHelp(const CommandRow& row, const Arguments& arguments, const Arguments& global);
// "exit-codes" or "environment"; "" for any other topic.
std::string TopicHelp(std::string_view topic, const Arguments& global);

}  // namespace sheaf
