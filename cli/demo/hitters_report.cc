#include "cli/demo/hitters_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/terminal/round_text.h"
#include "cli/terminal/table.h"

namespace sheaf {
namespace {

// Names are bytes; what is not printable ASCII is written as the code point of that number.
std::string JsonString(std::string_view bytes) {
  std::string text = "\"";
  for (char c : bytes) {
    const bool is_plain = c >= ' ' && c < 0x7f && c != '"' && c != '\\';
    text += is_plain ? std::string(1, c) : fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
  }
  return text + "\"";
}

}  // namespace

std::string UniqTable(const std::vector<HittersRow>& table) {
  std::string text;
  for (const HittersRow& row : table) text += fmt::format("{:>7} {}\n", row.count, row.name);
  return text;
}

HittersReport::HittersReport(Session& session, const HittersProgram& program, int top)
    : session_(session),
      program_(program),
      top_(top),
      progress_(session.err(), {.is_terminal = session.host().err_is_terminal,
                                .colors = session.err_colors(),
                                .width = session.host().terminal_width}) {}

void HittersReport::OnRoundStarted(int number, const v1::Round& round) { OnRoundProgress(number, round); }

void HittersReport::OnRoundProgress(int, const v1::Round& round) {
  if (session_.host().err_is_terminal) progress_.Update(RoundProgressText(round, session_.now()), session_.now());
}

void HittersReport::OnRoundEnded(const RoundOutcome& outcome) {
  progress_.Clear();
  if (outcome.verification.has_value()) verification_ = *outcome.verification;
  session_.json() ? PrintJson(outcome) : Print(outcome);
  session_.out().flush();
}

std::vector<HittersRow> HittersReport::Top() const {
  std::vector<HittersRow> rows = program_.table();
  std::stable_sort(rows.begin(), rows.end(),
                   [](const HittersRow& a, const HittersRow& b) { return a.count > b.count; });
  rows.resize(std::min<size_t>(rows.size(), static_cast<size_t>(top_)));
  return rows;
}

void HittersReport::Print(const RoundOutcome& outcome) {
  const v1::Round& round = outcome.round;
  Table table({{"COUNT", Align::kRight}, {"NAME"}});
  for (const HittersRow& row : Top()) table.AddRow({HumanCount(row.count), row.name});
  session_.PrintTable(table);
  std::ostream& out = session_.out();
  out << fmt::format("\n{} names released, {} withheld\n", HumanCount(static_cast<int64_t>(program_.table().size())),
                     HumanCount(program_.num_withheld()));
  out << fmt::format("{} clients in {}: {} up, {} down; the aggregate has {}\n",
                     HumanCount(round.aggregate().num_clients()), HumanDuration(outcome.timings.Unverified()),
                     HumanBytes(round.bytes_up()), HumanBytes(round.bytes_down()), HumanBytes(outcome.aggregate_bytes));
  if (outcome.verification.has_value()) {
    out << fmt::format("recomputed by brute force in {}: {} of {} values differ\n",
                       HumanDuration(outcome.timings.verify), HumanCount(outcome.verification->num_mismatches),
                       HumanCount(outcome.verification->num_values));
  }
}

void HittersReport::PrintJson(const RoundOutcome& outcome) {
  const v1::Round& round = outcome.round;
  std::string top;
  for (const HittersRow& row : Top()) {
    top += fmt::format(R"({}{{"name":{},"count":{}}})", top.empty() ? "" : ",", JsonString(row.name), row.count);
  }
  std::string verified;
  if (outcome.verification.has_value()) {
    verified = fmt::format(R"(,"verifiedValues":{},"mismatches":{})", outcome.verification->num_values,
                           outcome.verification->num_mismatches);
  }
  session_.out() << fmt::format(R"({{"id":"{}","namesReleased":{},"namesWithheld":{},"clients":{},"tasksSucceeded":{},)"
                                R"("bytesUp":{},"bytesDown":{},"seconds":{},"aggregateDigest":"{}","top":[{}]{}}})"
                                "\n",
                                round.id(), program_.table().size(), program_.num_withheld(),
                                round.aggregate().num_clients(), round.tasks().succeeded(), round.bytes_up(),
                                round.bytes_down(), absl::ToDoubleSeconds(outcome.timings.Unverified()),
                                outcome.aggregate_digest, top, verified);
}

}  // namespace sheaf
