#include "cli/parser.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>

#include "base/nearest.h"
#include "cli/terminal/errors.h"

namespace sheaf {
namespace {

// An Argument and what the line gave for it.
struct Binding {
  const Argument* argument;
  std::vector<std::string> values;
  CLI::Option* option = nullptr;
};

// A noun or verb and the library's object for it.
struct Leaf {
  const CommandRow* row;
  CLI::App* app;
  std::unique_ptr<Command> command;
  Arguments arguments;
  std::deque<Binding> bindings;
};

void Bind(CLI::App& app, const Arguments& arguments, std::deque<Binding>& bindings) {
  for (const Argument& argument : arguments.all()) {
    Binding& binding = bindings.emplace_back(Binding{.argument = &argument});
    if (argument.value_name.empty()) {
      binding.option = app.add_flag(argument.names);
      continue;
    }
    // Required ones are checked by us, for the sake of the message.
    binding.option = app.add_option(argument.names, binding.values)
                         ->expected(1)
                         ->allow_extra_args(false)
                         ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
}

absl::Status Apply(const std::deque<Binding>& bindings) {
  for (const Binding& binding : bindings) {
    const Argument& argument = *binding.argument;
    if (argument.is_required && binding.option->count() == 0) {
      return absl::InvalidArgumentError(argument.is_positional
                                            ? fmt::format("{} is missing: {}", argument.names, argument.help)
                                            : fmt::format("{} {} is missing", argument.names, argument.value_name));
    }
    std::vector<std::string> values = binding.values;
    if (argument.value_name.empty()) values.assign(binding.option->count() > 0 ? 1 : 0, "");
    for (const std::string& value : values) {
      const absl::Status set = argument.set(value);
      if (!set.ok()) {
        return absl::InvalidArgumentError(fmt::format("{}: {}", argument.names, std::string(set.message())));
      }
    }
  }
  return absl::OkStatus();
}

// "-f,--file" -> "-f", "--file".
std::vector<std::string> Spellings(const Arguments& arguments) {
  std::vector<std::string> spellings;
  for (const Argument& argument : arguments.all()) {
    if (argument.is_positional) continue;
    for (const std::string& name : CLI::detail::split(argument.names, ',')) spellings.push_back(name);
  }
  return spellings;
}

std::string DidYouMean(const std::string& word, const std::vector<std::string>& candidates,
                       const std::string& otherwise) {
  const std::string nearest = Nearest(word, candidates);
  return nearest.empty() ? otherwise : fmt::format("did you mean '{}'?", nearest);
}

std::vector<std::string> VerbsOf(std::string_view noun) {
  std::vector<std::string> verbs;
  for (const CommandRow& row : CommandTable()) {
    if (row.noun == noun) verbs.emplace_back(row.verb);
  }
  return verbs;
}

absl::Status UnknownOption(const std::string& word, const ParsedLine& line, const Arguments& global) {
  std::vector<std::string> known = Spellings(global);
  for (std::string& own : Spellings(line.arguments)) known.push_back(std::move(own));
  const std::string name = word.substr(0, word.find('='));
  const std::string command = line.row != nullptr ? CommandName(*line.row) : line.noun;
  const std::string help = fmt::format("'sheaf {}{}--help' shows the options", command, command.empty() ? "" : " ");
  if (name.size() == 2) {
    // Of one letter any other would be near: "-w" may mean "--wait", and never "-s".
    const auto begins = [&](const std::string& option) { return option.starts_with("--") && option[2] == name[1]; };
    const auto found = std::find_if(known.begin(), known.end(), begins);
    known = found == known.end() ? std::vector<std::string>() : std::vector<std::string>{*found};
    const std::string hint = known.empty() ? help : fmt::format("did you mean '{}'?", known.front());
    return WithHint(absl::InvalidArgumentError(fmt::format("unknown option '{}'", name)), hint);
  }
  return WithHint(absl::InvalidArgumentError(fmt::format("unknown option '{}'", name)), DidYouMean(name, known, help));
}

// What is wrong with the words that nothing took, if there are any.
absl::Status CheckWords(const std::vector<std::string>& remaining, const ParsedLine& line, const Arguments& global) {
  if (remaining.empty()) return absl::OkStatus();
  std::string word = remaining.front();
  if (line.row == nullptr) {
    // The noun or verb is the news, even if an option stands before it.
    for (const std::string& candidate : remaining) {
      if (!candidate.starts_with('-')) {
        word = candidate;
        break;
      }
    }
  }
  if (word.starts_with('-')) return UnknownOption(word, line, global);
  if (line.row != nullptr) return absl::InvalidArgumentError(fmt::format("'{}' is one argument too many", word));
  if (!line.noun.empty()) {
    const std::vector<std::string> verbs = VerbsOf(line.noun);
    return WithHint(absl::InvalidArgumentError(fmt::format("unknown verb '{}'", word)),
                    DidYouMean(word, verbs, fmt::format("the verbs of {}: {}", line.noun, fmt::join(verbs, ", "))));
  }
  std::vector<std::string> nouns = VerbsOf("");
  for (const Noun& noun : NounTable()) nouns.emplace_back(noun.name);
  return WithHint(absl::InvalidArgumentError(fmt::format("there is no command '{}'", word)),
                  DidYouMean(word, nouns, "'sheaf --help' shows the commands"));
}

// The library's own sentences, which begin with the option's name.
absl::Status ToStatus(const CLI::ParseError& error) { return absl::InvalidArgumentError(error.what()); }

CLI::App* AddApp(CLI::App& parent, std::string_view name) {
  CLI::App* app = parent.add_subcommand(std::string(name));
  app->set_help_flag();
  // Words nobody takes are collected at the root, where CheckWords says what is wrong with them.
  app->fallthrough();
  app->allow_extras();
  return app;
}

}  // namespace

ParsedLine ParseLine(const std::vector<std::string>& args, const Arguments& global) {
  ParsedLine line;
  CLI::App root;
  root.set_help_flag();
  root.allow_extras();
  root.require_subcommand(0, 1);
  std::deque<Binding> global_bindings;
  Bind(root, global, global_bindings);
  CLI::Option* help = root.add_flag("-h,--help");
  CLI::Option* version = root.add_flag("--version");

  std::deque<std::pair<std::string, CLI::App*>> nouns;
  for (const Noun& noun : NounTable()) {
    nouns.emplace_back(std::string(noun.name), AddApp(root, noun.name));
    nouns.back().second->require_subcommand(0, 1);
  }
  std::deque<Leaf> leaves;
  for (const CommandRow& row : CommandTable()) {
    CLI::App* parent = &root;
    for (const auto& [name, app] : nouns) {
      if (name == row.noun) parent = app;
    }
    Leaf& leaf = leaves.emplace_back(Leaf{.row = &row, .app = AddApp(*parent, row.verb), .command = row.make()});
    leaf.command->Declare(leaf.arguments);
    Bind(*leaf.app, leaf.arguments, leaf.bindings);
  }

  try {
    // The library takes words from the back.
    root.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::ParseError& error) {
    line.status = ToStatus(error);
  }
  for (const auto& [name, app] : nouns) {
    if (app->parsed()) line.noun = name;
  }
  std::deque<Binding> no_bindings;
  const std::deque<Binding>* bindings = &no_bindings;
  for (Leaf& leaf : leaves) {
    if (!leaf.app->parsed()) continue;
    line.row = leaf.row;
    line.command = std::move(leaf.command);
    line.arguments = leaf.arguments;
    bindings = &leaf.bindings;
  }
  line.wants_help = help->count() > 0;
  line.wants_version = version->count() > 0;
  for (const Binding& binding : global_bindings) {
    if (binding.option->count() > 0) line.given.push_back(binding.argument->names);
  }
  // Global options first: they decide how errors look.
  absl::Status applied = Apply(global_bindings);
  if (line.status.ok()) line.status = applied;
  if (line.status.ok()) line.status = CheckWords(root.remaining(true), line, global);
  if (line.status.ok() && !line.wants_help) line.status = Apply(*bindings);
  return line;
}

}  // namespace sheaf
