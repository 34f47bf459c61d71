#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "cli/commands.h"
#include "cli/terminal/field_list.h"
#include "cli/terminal/round_text.h"
#include "cli/terminal/state_text.h"
#include "proto/methods.h"

namespace sheaf {
namespace {

// "12 of its own, 3 through 1 round".
std::string StalenessText(const v1::Round& round) {
  const std::map<int32_t, int64_t> counts(round.contributions_by_staleness().begin(),
                                          round.contributions_by_staleness().end());
  std::vector<std::string> parts;
  for (const auto& [staleness, count] : counts) {
    parts.push_back(
        staleness == 0 ? fmt::format("{} of its own", HumanCount(count))
                       : fmt::format("{} through {} round{}", HumanCount(count), staleness, staleness == 1 ? "" : "s"));
  }
  return absl::StrJoin(parts, ", ");
}

class RoundDescribe final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Positional("ROUND", "the round's id", &round_);
    arguments.Choice("--time", "ages, or ISO 8601 times", {"relative", "iso"}, &time_);
  }

  absl::Status Run(Session& session) override {
    v1::GetRoundRequest request;
    request.set_round(round_);
    ASSIGN_OR_RETURN(const v1::GetRoundResponse response, session.Call(kGetRound, request));
    if (session.json()) return session.PrintJson(response);
    const v1::Round& round = response.round();
    PrintFields(session, round);
    if (round.has_phases()) session.out() << "\nPhases (where the wall time went)\n" << PhasesText(round.phases());
    if (!round.critical_path().empty()) session.out() << "  " << Printable(CriticalPathText(round)) << "\n";
    PrintOutputs(session, round);
    if (!round.aggregate().folds().empty()) PrintFolds(session, round.aggregate());
    if (!round.metrics().empty()) PrintMetrics(session, round);
    return absl::OkStatus();
  }

 private:
  void PrintFields(Session& session, const v1::Round& round) const {
    const TimeText time{.style = time_ == "iso" ? TimeStyle::kIso : TimeStyle::kRelative, .now = session.now()};
    const v1::RoundSpec& spec = round.spec();
    FieldList fields;
    fields.Add("Round", {round.id(), Color::kBold});
    fields.Add("State", StateCell(round.state()));
    fields.AddIf("Error", {round.error(), Color::kRed});
    fields.AddIf("Job", spec.job());
    fields.Add("Population", spec.population());
    fields.Add("Computation", ComputationText(spec.computation()));
    fields.Add("Contributions", ContributionsText(round));
    fields.Add("Tasks", TaskCountsText(round.tasks()));
    fields.Add("Attempts", fmt::format("{} failed, {} lost", round.num_failed_attempts(), round.num_lost_attempts()));
    if (round.num_speculative_wins() > 0) {
      fields.Add("Speculation", fmt::format("{} accepted from a second attempt while the first still ran",
                                            HumanCount(round.num_speculative_wins())));
    }
    fields.AddIf("Continues", spec.continues());
    if (!round.contributions_by_staleness().empty()) fields.Add("Staleness", StalenessText(round));
    fields.Add("Created", time(round.create_time()));
    if (round.has_end_time()) {
      fields.Add("Ended", time(round.end_time()));
    } else {
      // An announced round fails if nobody has opened it by then; its deadline counts from its opening.
      fields.Add(round.state() == v1::ANNOUNCED ? "Opens before" : "Deadline", time(round.deadline_time()));
    }
    fields.Add(round.has_end_time() ? "Took" : "Running for", HumanDuration(ElapsedOf(round, session.now())));
    fields.Add("Bytes", fmt::format("{} up, {} down", HumanBytes(round.bytes_up()), HumanBytes(round.bytes_down())));
    fields.AddIf("Broadcast",
                 round.state() == v1::ANNOUNCED ? "comes with 'sheaf round open'" : spec.broadcast_digest());
    fields.Add("Priority", fmt::format("{}", spec.priority() > 0 ? spec.priority() : 3));
    fields.Add("Durability", spec.durability() == v1::EPHEMERAL ? "ephemeral" : "durable");
    if (round.has_aggregate()) {
      fields.Add(spec.release() == v1::PARTIAL_AGGREGATE ? "Partial aggregate" : "Result",
                 fmt::format("{}, sha256 {}", HumanBytes(round.aggregate().size_bytes()), round.aggregate().digest()));
    }
    session.out() << fields.Render(session.table_style());
  }

  static std::string ComputationText(const v1::Computation& computation) {
    if (computation.version_min() == 0) return computation.name();
    return fmt::format("{}, version {} or newer", computation.name(), computation.version_min());
  }

  static std::string ContributionsText(const v1::Round& round) {
    std::string text = fmt::format("{} of {}", round.num_contributions(), GoalOf(round));
    const int64_t min_goal = round.spec().min_goal();
    if (min_goal > 0 && min_goal < GoalOf(round)) text += fmt::format(" (enough: {})", min_goal);
    return text + fmt::format(", combining {} {}", HumanCount(round.num_clients()),
                              round.num_clients() == 1 ? "client" : "clients");
  }

  // What was asked for, and once there is a result, what came of it.
  static void PrintOutputs(Session& session, const v1::Round& round) {
    Table table({{"OUTPUT"},
                 {"OPERATOR"},
                 {"DTYPE"},
                 {"SHAPE"},
                 {"TOUCHED", Align::kRight},
                 {"RELEASED", Align::kRight},
                 {"DIVIDED BY"}});
    for (const v1::OutputSpec& output : round.spec().aggregate().outputs()) {
      std::string divisor, touched, released;
      for (const v1::OutputSummary& summary : round.aggregate().outputs()) {
        if (summary.name() != output.name()) continue;
        divisor = summary.divisor();
        if (summary.divisor_value() != 0) divisor += fmt::format(" ({})", summary.divisor_value());
        touched = HumanCount(summary.touched());
        released = HumanCount(summary.released());
      }
      table.AddRow({output.name(), output.operator_(), v1::DType_Name(output.dtype()),
                    "[" + absl::StrJoin(output.dense_shape(), ", ") + "]", touched, released, divisor});
    }
    TableStyle style = session.table_style();
    style.indent = 2;
    session.out() << "\nOutputs\n" << table.Render(style);
  }

  static void PrintFolds(Session& session, const v1::Aggregate& aggregate) {
    Table table({{"OUTPUT"},
                 {"DENSE BLOCKS", Align::kRight},
                 {"THIN BLOCKS", Align::kRight},
                 {"BUFFERED ENTRIES", Align::kRight},
                 {"BUCKET FOLDS", Align::kRight}});
    for (const v1::FoldCounters& fold : aggregate.folds()) {
      table.AddRow({fold.output(), HumanCount(fold.dense_blocks()), HumanCount(fold.thin_blocks()),
                    HumanCount(fold.buffered_entries()), HumanCount(fold.bucket_folds())});
    }
    TableStyle style = session.table_style();
    style.indent = 2;
    session.out() << "\nFolding of sparse outputs\n" << table.Render(style);
  }

  static void PrintMetrics(Session& session, const v1::Round& round) {
    FieldList fields;
    // A proto map has no order; people want one.
    for (const auto& [name, value] : std::map<std::string, double>(round.metrics().begin(), round.metrics().end())) {
      fields.Add(name, fmt::format("{:.6g}", value));
    }
    TableStyle style = session.table_style();
    style.indent = 2;
    session.out() << "\nMetrics (mean over clients)\n" << fields.Render(style);
  }

  std::string round_;
  std::string time_ = "relative";
};

}  // namespace

std::unique_ptr<Command> MakeRoundDescribe() { return std::make_unique<RoundDescribe>(); }

}  // namespace sheaf
