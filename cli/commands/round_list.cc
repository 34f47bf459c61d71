#include "cli/commands.h"
#include "cli/commands/paging.h"
#include "cli/terminal/round_text.h"
#include "cli/terminal/state_text.h"
#include "proto/methods.h"

namespace sheaf {
namespace {

class RoundList final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Choices("--state", "STATE", "only rounds in this state", RoundStateNames(), &states_);
    arguments.Text("--job", "JOB", "only rounds of this job", &job_);
    arguments.Number("--limit", "N", "stop after this many; 0 shows all", {.min = 0}, &limit_);
    DeclarePageToken(arguments, &page_token_);
  }

  absl::Status Run(Session& session) override {
    v1::ListRoundsRequest request;
    request.set_population(session.options().population);
    request.set_page_token(page_token_);
    for (const std::string& state : states_) request.add_states(ParseRoundState(state));
    request.set_job(job_);
    ASSIGN_OR_RETURN(v1::ListRoundsResponse response,
                     ListAll(session, kListRounds, request, limit_, [](auto& page) { return page.mutable_rounds(); }));
    if (session.json()) return session.PrintJson(response);
    Print(session, response);
    NoteIfCut(session, response, limit_);
    return absl::OkStatus();
  }

 private:
  static void Print(Session& session, const v1::ListRoundsResponse& response) {
    Table table({{"ROUND"},
                 {"JOB"},
                 {"STATE"},
                 {"DONE", Align::kRight},
                 {"QUEUED", Align::kRight},
                 {"LEASED", Align::kRight},
                 {"FAILED", Align::kRight},
                 {"UP", Align::kRight},
                 {"DOWN", Align::kRight},
                 {"TOOK", Align::kRight},
                 {"AGE", Align::kRight}});
    for (const v1::Round& round : response.rounds()) {
      const int64_t failed = round.tasks().failed() + round.tasks().buried();
      table.AddRow({round.id(), round.spec().job(), StateCell(round.state()), DoneOf(round),
                    HumanCount(round.tasks().queued()), HumanCount(round.tasks().leased()),
                    Cell(HumanCount(failed), failed > 0 ? Color::kRed : Color::kNone), HumanBytes(round.bytes_up()),
                    HumanBytes(round.bytes_down()), HumanDuration(ElapsedOf(round, session.now())),
                    AgeOf(round.create_time(), session.now())});
    }
    session.PrintTable(table);
  }

  std::vector<std::string> states_;
  std::string job_;
  int64_t limit_ = kListLimitDefault;
  std::string page_token_;
};

}  // namespace

std::unique_ptr<Command> MakeRoundList() { return std::make_unique<RoundList>(); }

}  // namespace sheaf
