// Arguments: what one command takes, declared once; the parser and the help text both read it.
//
//   void Declare(Arguments& arguments) {
//     arguments.Positional("ROUND", "the round", &round_);
//     arguments.Number("--limit", "N", "stop after this many", {.min = 0}, &limit_);
//     arguments.Text("-f,--file", "FILE", "the spec", &file_).is_required = true;
//   }
//
// The bound variables keep their values as defaults and must outlive the parsing. Parser-neutral: no type of
// the argument library shows here.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sheaf {

struct Argument {
  // "--limit", "-f,--file", or the name of a positional.
  std::string names;
  // What stands for the value in help; empty for a flag.
  std::string value_name;
  std::string help;
  // Shown in help; empty shows nothing.
  std::string default_text;
  // Read when the command line does not give it; empty for none.
  std::string environment;
  bool is_positional = false;
  bool is_required = false;
  bool is_repeatable = false;
  // Converts and stores one value ("" for a flag that was given). INVALID_ARGUMENT says what would be right.
  std::function<absl::Status(const std::string&)> set;
};

struct NumberRange {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
};

class Arguments {
 public:
  // Each returns the row it added, for the rare properties.
  Argument& Positional(const std::string& name, std::string help, std::string* value);
  Argument& Flag(std::string names, std::string help, bool* value);
  Argument& Text(std::string names, std::string value_name, std::string help, std::string* value);
  // The same, given any number of times.
  Argument& Texts(std::string names, std::string value_name, std::string help, std::vector<std::string>* values);
  Argument& Number(std::string names, std::string value_name, std::string help, NumberRange range, int64_t* value);
  // "30s", "5m", "1h30m", or a bare number of seconds.
  Argument& Duration(std::string names, std::string help, std::optional<absl::Duration>* value);
  // One of `choices`, in any case; stored as written in `choices`.
  Argument& Choice(std::string names, std::string help, const std::vector<std::string>& choices, std::string* value);
  // The same, given any number of times.
  Argument& Choices(std::string names, std::string value_name, std::string help,
                    const std::vector<std::string>& choices, std::vector<std::string>* values);

  const std::deque<Argument>& all() const { return all_; }

 private:
  Argument& Add(Argument argument);

  // A deque: references to rows stay valid.
  std::deque<Argument> all_;
};

}  // namespace sheaf
