#include <fmt/format.h>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/help_text.h"
#include "cli/terminal/errors.h"

namespace sheaf {
namespace {

class Help final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Positional("TOPIC", "a noun, round-spec, exit-codes or environment", &topic_).is_required = false;
  }

  absl::Status Run(Session& session) override {
    const std::string text = TextOf(topic_);
    if (text.empty()) {
      return WithHint(
          absl::InvalidArgumentError(fmt::format("there is no help on '{}'", topic_)),
          "there is help on the nouns, and on round-spec, exit-codes and environment; 'sheaf --help' lists the nouns");
    }
    session.out() << text;
    return absl::OkStatus();
  }

 private:
  static std::string TextOf(const std::string& topic) {
    if (topic.empty()) return OverviewHelp();
    if (std::string text = NounHelp(topic); !text.empty()) return text;
    GlobalOptions options;
    Arguments global;
    DeclareGlobalOptions(global, &options);
    return TopicHelp(topic, global);
  }

  std::string topic_;
};

}  // namespace

std::unique_ptr<Command> MakeHelp() { return std::make_unique<Help>(); }

}  // namespace sheaf
