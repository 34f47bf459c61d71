#include "cli/help_text.h"

#include <fmt/format.h>

#include "cli/exit_codes.h"
#include "cli/terminal/table.h"

namespace sheaf {
namespace {

constexpr TableStyle kListStyle{.headers = false, .indent = 2};

std::string Spelling(const Argument& argument) {
  std::string names = argument.names;
  if (const size_t comma = names.find(','); comma != std::string::npos) {
    names.insert(comma + 1, " ");
  } else if (!argument.is_positional) {
    // Long names stand under each other whether there is a short one or not.
    names = "    " + names;
  }
  if (!argument.is_positional && !argument.value_name.empty()) names += " " + argument.value_name;
  return names;
}

std::string Meaning(const Argument& argument) {
  std::string text = argument.help;
  if (!argument.default_text.empty()) text += fmt::format(" [{}]", argument.default_text);
  return text;
}

std::string MeaningAndVariable(const Argument& argument) {
  const std::string text = Meaning(argument);
  return argument.environment.empty() ? text : fmt::format("{} (or {})", text, argument.environment);
}

std::string ArgumentList(std::string_view title, const Arguments& arguments, bool positional) {
  Table table({{"NAME"}, {"MEANING"}});
  for (const Argument& argument : arguments.all()) {
    if (argument.is_positional == positional) table.AddRow({Spelling(argument), MeaningAndVariable(argument)});
  }
  return table.empty() ? "" : fmt::format("\n{}\n{}", title, table.Render(kListStyle));
}

std::string UsageLine(const CommandRow& row, const Arguments& arguments) {
  std::string usage = fmt::format("Usage: sheaf {}", CommandName(row));
  for (const Argument& argument : arguments.all()) {
    if (!argument.is_required) {
      if (argument.is_positional) usage += fmt::format(" [{}]", argument.names);
      continue;
    }
    const std::string first = argument.names.substr(0, argument.names.find(','));
    usage += argument.is_positional ? " " + first : fmt::format(" {} {}", first, argument.value_name);
  }
  return usage + " [options]\n";
}

std::string ExitCodesTopic() {
  Table table({{"CODE", Align::kRight}, {"MEANING"}});
  for (const ExitCodeRow& row : ExitCodeTable()) {
    table.AddRow({fmt::format("{}", static_cast<int>(row.code)), std::string(row.meaning)});
  }
  return "Exit codes of sheaf:\n" + table.Render({.headers = false, .indent = 2});
}

std::string EnvironmentTopic(const Arguments& global) {
  Table table({{"VARIABLE"}, {"MEANING"}});
  for (const Argument& argument : global.all()) {
    if (!argument.environment.empty()) table.AddRow({argument.environment, Meaning(argument)});
  }
  table.AddRow({"NO_COLOR", "set to anything: no colours, unless --color always"});
  return "Variables that sheaf reads. A flag beats a variable, a variable beats the default.\n" +
         table.Render(kListStyle);
}

// As docs/examples/one_hot.json, and what a spec may have besides.
constexpr char kRoundSpecTopic[] =
    R"(A round as JSON, for 'sheaf round create -f FILE'. Three tasks for the computation one_hot, whose payload is an index:

  {
    "job": "start",
    "computation": {"name": "one_hot"},
    "aggregate": {
      "outputs": [
        {"name": "sum", "operator": "sum", "dtype": "FLOAT32", "denseShape": [4]},
        {"name": "per_client", "operator": "client_mean", "dtype": "FLOAT32", "denseShape": [4]}
      ]
    },
    "listed": {"tasks": [{"payload": "MQ=="}, {"payload": "MQ=="}, {"payload": "Mw=="}]},
    "deadline": "10m"
  }

The same as YAML, in a file whose name ends in .yaml or .yml:

  job: start
  computation: {name: one_hot}
  aggregate:
    outputs:
      - {name: sum, operator: sum, dtype: FLOAT32, denseShape: [4]}
      - {name: per_client, operator: client_mean, dtype: FLOAT32, denseShape: [4]}
  listed:
    tasks: [{payload: MQ==}, {payload: MQ==}, {payload: Mw==}]
  deadline: 10m

Bytes are base64 ("MQ==" is 1, "Mw==" is 3), durations are as in "30s", "10m" and "1h30m".

Instead of "listed", any workers for so many equal tasks:
  "openSlots": {"count": 40, "perWorkerMax": 1, "task": {"payload": "MQ=="}}, "goal": 30

A task for workers with certain labels (sheaf-worker --label zone=eu):
  {"payload": "MQ==", "requirements": {"zone": "eu"}}

More fields, with their defaults:
  "population": "default"    "priority": 3, of 1 (first) to 5    "durability": "DURABLE", or "EPHEMERAL"
  "goal": all tasks          "minGoal": the goal                 "minClients": 1
  "leaseDuration": "30s"     "attemptDeadline": the deadline     "retry": {"failedMax": 4, "lostMax": 16}
  "broadcastDigest": none    "contributionBytesMax": the server's limit

'sheaf round create --validate-only' checks a spec and creates nothing. 'sheaf server info' lists the operators.
)";

}  // namespace

std::string OverviewHelp() {
  Table nouns({{"NOUN"}, {"VERBS"}});
  for (const Noun& noun : NounTable()) {
    std::string verbs;
    for (const CommandRow& row : CommandTable()) {
      if (row.noun == noun.name) verbs += fmt::format("{}{}", verbs.empty() ? "" : "|", row.verb);
    }
    nouns.AddRow({std::string(noun.name), verbs});
  }
  for (const CommandRow& row : CommandTable()) {
    if (row.noun.empty()) nouns.AddRow({std::string(row.verb), ""});
  }
  return fmt::format(
      "sheaf inspects a Sheaf server and gives it work.\n"
      "\nUsage: sheaf <noun> <verb> [options]\n"
      "\nCommands\n{}"
      "\nExamples\n"
      "  sheaf demo tags                           train a model on this machine, in under a minute\n"
      "  sheaf round create -f round.json --wait   run one round\n"
      "  sheaf queue describe                      what waits, what runs\n"
      "  sheaf round explain r-7k2m9q4x            why is it not done yet?\n"
      "\n'sheaf <noun> <verb> --help' explains a command; 'sheaf help round-spec', 'sheaf help exit-codes' and 'sheaf "
      "help "
      "environment' the rest.\n",
      nouns.Render(kListStyle));
}

std::string NounHelp(std::string_view noun) {
  std::string text;
  for (const Noun& row : NounTable()) {
    if (row.name == noun) text = fmt::format("sheaf {}: {}\n\nCommands\n", row.name, row.summary);
  }
  if (text.empty()) return "";
  Table verbs({{"COMMAND"}, {"SUMMARY"}});
  std::string examples;
  for (const CommandRow& row : CommandTable()) {
    if (row.noun != noun) continue;
    verbs.AddRow({CommandName(row), std::string(row.summary)});
    examples += fmt::format("  {}\n", row.example);
  }
  return text + verbs.Render(kListStyle) + "\nExamples\n" + examples;
}

std::string CommandHelp(const CommandRow& row, const Arguments& arguments, const Arguments& global) {
  return fmt::format("{}\n\n{}{}{}{}\nExample\n  {}\n", row.summary, UsageLine(row, arguments),
                     ArgumentList("Arguments", arguments, true), ArgumentList("Options", arguments, false),
                     ArgumentList("Options of every command", global, false), row.example);
}

std::string TopicHelp(std::string_view topic, const Arguments& global) {
  if (topic == "exit-codes") return ExitCodesTopic();
  if (topic == "environment") return EnvironmentTopic(global);
  if (topic == "round-spec") return kRoundSpecTopic;
  return "";
}

}  // namespace sheaf
