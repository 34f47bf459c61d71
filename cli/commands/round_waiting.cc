#include "cli/commands/round_waiting.h"

#include <fmt/format.h>

#include "cli/processes/interrupt.h"
#include "cli/processes/supervised_transport.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/progress_line.h"
#include "cli/terminal/round_text.h"
#include "cli/terminal/state_text.h"
#include "proto/methods.h"
#include "sdk/cpp/client/round_client.h"

namespace sheaf {

absl::StatusOr<v1::Round> AwaitRound(Session& session, const std::string& round, Progress progress) {
  // The first look fails at once if there is no such round or no server.
  v1::GetRoundRequest request;
  request.set_round(round);
  ASSIGN_OR_RETURN(const v1::GetRoundResponse first, session.Call(kGetRound, request));
  ProgressLine line(session.err(), {.is_terminal = session.host().err_is_terminal,
                                    .colors = session.err_colors(),
                                    .width = session.host().terminal_width});
  v1::Round last = first.round();
  const auto show = [&] {
    if (progress == Progress::kShown) line.Update(RoundProgressText(last, session.now()), session.now());
  };
  const InterruptNote note(
      fmt::format("{}round {} goes on; 'sheaf round wait {}' waits again, 'sheaf round cancel {}' ends it\n",
                  session.host().err_is_terminal ? "\n" : "", round, round, round));
  WaitOptions options{.timeout = session.options().timeout.value_or(absl::InfiniteDuration()),
                      .on_change = [&](const v1::Round& round_now) {
                        last = round_now;
                        show();
                      }};
  ASSIGN_OR_RETURN(Transport * patient, session.patient_transport());
  // On a terminal the elapsed time shall tick, so the server is asked every second and the line redrawn at each call.
  if (session.host().err_is_terminal && progress == Progress::kShown) options.poll = absl::Seconds(1);
  SupervisedTransport ticking(*patient, [&] {
    show();
    return absl::OkStatus();
  });
  absl::StatusOr<v1::Round> ended = WaitForRound(ticking, session.host().clock, round, options);
  line.Finish();
  if (ended.status().code() == absl::StatusCode::kDeadlineExceeded) {
    return WithHint(absl::DeadlineExceededError(
                        fmt::format("round {} did not end within {}", round, HumanDuration(options.timeout))),
                    fmt::format("it goes on; 'sheaf round explain {}' says what it waits for", round));
  }
  return ended;
}

absl::Status ReportEnd(Session& session, const v1::Round& round) {
  if (session.json()) {
    v1::GetRoundResponse response;
    *response.mutable_round() = round;
    RETURN_IF_ERROR(session.PrintJson(response));
  } else {
    const Cell state = StateCell(round.state());
    session.out() << fmt::format("{}  {}  {} contributions  {}\n", round.id(),
                                 Paint(state.text, state.color, session.out_colors()), DoneOf(round),
                                 HumanDuration(ElapsedOf(round, session.now())));
  }
  return EndStatus(round);
}

}  // namespace sheaf
