#include "tests/conformance/operator_suite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "aggregation/reference.h"
#include "base/status_macros.h"
#include "tests/conformance/shuffled_for.h"

namespace sheaf {
namespace {

using Contributions = std::vector<v1::Contribution>;

absl::Status Broken(std::string_view law, std::string_view how) {
  return absl::InternalError(fmt::format("{}: {}", law, how));
}

// The first lines of two texts that differ, from shortly before they do.
std::string DifferenceOf(const std::string& expected, const std::string& found) {
  constexpr size_t kBefore = 40, kShown = 160;
  size_t at = 0, line = 0;
  while (at < expected.size() && at < found.size() && expected[at] == found[at]) {
    if (expected[at++] == '\n') line = at;
  }
  const auto shown = [&](const std::string& text) {
    const size_t end = std::min(text.find('\n', line), text.size());
    const size_t from = at - line > kShown / 2 ? at - kBefore : line;
    const std::string cut = text.substr(from, std::min(end - from, kShown));
    return fmt::format("{}{}{}", from > line ? "..." : "", cut, from + cut.size() < end ? "..." : "");
  };
  return fmt::format("expected '{}', found '{}'", shown(expected), shown(found));
}

std::string BytesText(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

bool AreEqual(const AggregateReport& a, const AggregateReport& b) {
  const auto same_tensor = [](const NamedTensor& x, const NamedTensor& y) {
    return x.name == y.name && x.dtype == y.dtype && x.shape == y.shape && x.data == y.data;
  };
  const auto same_summary = [](const v1::OutputSummary& x, const v1::OutputSummary& y) {
    return x.name() == y.name() && x.operator_() == y.operator_() && x.divisor() == y.divisor() &&
           x.divisor_value() == y.divisor_value() && x.touched() == y.touched() && x.released() == y.released();
  };
  return a.num_contributions == b.num_contributions && a.num_clients == b.num_clients &&
         std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(), same_tensor) &&
         std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(), b.outputs.end(), same_summary);
}

bool AreEqual(const absl::StatusOr<AggregateReport>& a, const absl::StatusOr<AggregateReport>& b) {
  return a.ok() && b.ok() ? AreEqual(*a, *b) : a.status() == b.status();
}

absl::StatusOr<RoundAccumulator> ThroughBytes(const OperatorSuite& suite, const v1::AggregateSpec& spec,
                                              const RoundAccumulator& accumulator) {
  const std::string bytes = accumulator.Serialize();
  absl::StatusOr<RoundAccumulator> restored = RoundAccumulator::Restore(spec, suite.operators, bytes);
  if (!restored.ok()) {
    return Broken("a state that was just written is refused", std::string(restored.status().message()));
  }
  if (const std::string again = restored->Serialize(); again != bytes) {
    return Broken("a state is written differently after it was read back",
                  DifferenceOf(BytesText(bytes), BytesText(again)));
  }
  return restored;
}

absl::Status Fold(RoundAccumulator& into, const v1::Contribution& contribution) {
  const absl::StatusOr<ValidContribution> valid = into.Validate(contribution);
  if (!valid.ok()) {
    const char* const kind =
        contribution.outputs(0).has_state() ? "a partial aggregate" : "a contribution of the trial";
    return Broken(fmt::format("{} is refused", kind), std::string(valid.status().message()));
  }
  into.Accumulate(*valid);
  return absl::OkStatus();
}

absl::StatusOr<AggregateReport> ReportOf(absl::StatusOr<AggregateRelease> release) {
  RETURN_IF_ERROR(release.status());
  AggregateReport report;
  for (const ReleasedTensor& tensor : release->tensors) {
    std::string data;
    RETURN_IF_ERROR(tensor.write([&data](std::string_view piece) {
      data += piece;
      return absl::OkStatus();
    }));
    report.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, std::move(data)});
  }
  static_cast<AggregateSummary&>(report) = *std::move(release);
  return report;
}

// One check of one trial.
class TrialCheck {
 public:
  TrialCheck(const OperatorSuite& suite, const OperatorTrial& trial, Random& random)
      : suite_(suite), trial_(trial), random_(random) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(const RoundAccumulator one_by_one, FoldAll(trial_.contributions));
    state_ = one_by_one.Serialize();
    report_ = one_by_one.Report();
    expected_ = suite_.oracle(trial_);
    if (one_by_one.Serialize() != state_) return Broken("to report changes the state", "");
    RETURN_IF_ERROR(CheckIdentity(one_by_one));
    ASSIGN_OR_RETURN(const RoundAccumulator shuffled, FoldAll(Shuffled()));
    RETURN_IF_ERROR(CheckSame("the order of contributions shows", shuffled));
    RETURN_IF_ERROR(CheckMerged());
    RETURN_IF_ERROR(CheckPartials(one_by_one));
    RETURN_IF_ERROR(CheckParts());
    return CheckAgainstOracle(report_);
  }

 private:
  absl::StatusOr<RoundAccumulator> Empty() const { return RoundAccumulator::Create(trial_.spec, suite_.operators); }

  absl::StatusOr<RoundAccumulator> FoldAll(const Contributions& contributions) const {
    ASSIGN_OR_RETURN(RoundAccumulator all, Empty());
    for (const v1::Contribution& contribution : contributions) RETURN_IF_ERROR(Fold(all, contribution));
    return all;
  }

  absl::Status CheckAgainstOracle(const absl::StatusOr<AggregateReport>& found) const {
    constexpr char kLaw[] = "the oracle disagrees";
    if (expected_.ok() && found.ok()) {
      const absl::Status status = suite_.compare(trial_, *expected_, *found);
      return status.ok() ? status : Broken(kLaw, std::string(status.message()));
    }
    if (expected_.status() == found.status()) return absl::OkStatus();
    return Broken(kLaw, DifferenceOf(Fingerprint(expected_), Fingerprint(found)));
  }

  // A state that was reached in another way.
  absl::Status CheckSame(std::string_view law, const RoundAccumulator& found) const {
    const absl::StatusOr<AggregateReport> report = found.Report();
    if (suite_.order_may_show) return CheckAgainstOracle(report);
    if (!AreEqual(report_, report)) return Broken(law, DifferenceOf(Fingerprint(report_), Fingerprint(report)));
    const std::string state = found.Serialize();
    if (state == state_) return absl::OkStatus();
    return Broken(law,
                  "the reports are equal, the states are not: " + DifferenceOf(BytesText(state_), BytesText(state)));
  }

  absl::Status CheckIdentity(const RoundAccumulator& one_by_one) const {
    ASSIGN_OR_RETURN(const RoundAccumulator nothing, Empty());
    ASSIGN_OR_RETURN(RoundAccumulator merged, ThroughBytes(suite_, trial_.spec, nothing));
    ASSIGN_OR_RETURN(RoundAccumulator all, ThroughBytes(suite_, trial_.spec, one_by_one));
    merged.Merge(std::move(all));
    ASSIGN_OR_RETURN(RoundAccumulator nothing_more, Empty());
    merged.Merge(std::move(nothing_more));
    // To the bit whatever the arithmetic.
    if (merged.Serialize() != state_) return Broken("merging with the identity changes the state", "");
    if (AreEqual(merged.Report(), report_)) return absl::OkStatus();
    return Broken("a state that was read back reports otherwise",
                  DifferenceOf(Fingerprint(report_), Fingerprint(merged.Report())));
  }

  Contributions Shuffled() const {
    Contributions shuffled = trial_.contributions;
    for (size_t i = shuffled.size(); i > 1; --i) std::swap(shuffled[i - 1], shuffled[random_.Below(i)]);
    return shuffled;
  }

  // Each contribution goes to one of a few groups.
  std::vector<Contributions> Groups() const {
    std::vector<Contributions> groups(1 + random_.Below(4));
    for (const v1::Contribution& contribution : Shuffled()) {
      groups[random_.Below(groups.size())].push_back(contribution);
    }
    return groups;
  }

  // Some groups are folded apart and merged, others folded in one by one; restarts between.
  absl::Status CheckMerged() const {
    ASSIGN_OR_RETURN(RoundAccumulator merged, Empty());
    for (const Contributions& group : Groups()) {
      if (random_.Chance(0.5)) {
        ASSIGN_OR_RETURN(RoundAccumulator apart, FoldAll(group));
        ASSIGN_OR_RETURN(RoundAccumulator restored, ThroughBytes(suite_, trial_.spec, apart));
        merged.Merge(std::move(random_.Chance(0.5) ? restored : apart));
      } else {
        for (const v1::Contribution& contribution : group) RETURN_IF_ERROR(Fold(merged, contribution));
        if (random_.Chance(0.5)) continue;
        ASSIGN_OR_RETURN(merged, ThroughBytes(suite_, trial_.spec, merged));
      }
    }
    return CheckSame("the grouping of merged accumulators shows", merged);
  }

  // Groups sent as partial aggregates; some through a leaf above the leaves. One contribution each, so only the clients
  // and what is released are the same.
  absl::Status CheckPartials(const RoundAccumulator& one_by_one) const {
    ASSIGN_OR_RETURN(RoundAccumulator root, Empty());
    ASSIGN_OR_RETURN(RoundAccumulator branch, Empty());
    for (const Contributions& group : Groups()) {
      if (group.empty()) continue;
      ASSIGN_OR_RETURN(const RoundAccumulator leaf, FoldAll(group));
      RETURN_IF_ERROR(Fold(random_.Chance(0.3) ? branch : root, leaf.PartialAggregate()));
    }
    if (branch.num_clients() > 0) RETURN_IF_ERROR(Fold(root, branch.PartialAggregate()));
    absl::StatusOr<AggregateReport> report = root.Report();
    if (report.ok()) report->num_contributions = static_cast<int64_t>(trial_.contributions.size());
    if (suite_.order_may_show) return CheckAgainstOracle(report);
    constexpr char kLaw[] = "the grouping into partial aggregates shows";
    if (!AreEqual(report, report_)) return Broken(kLaw, DifferenceOf(Fingerprint(report_), Fingerprint(report)));
    return root.OutputStates() == one_by_one.OutputStates() ? absl::OkStatus()
                                                            : Broken(kLaw, "the reports are equal, the states are not");
  }

  // Checked, folded and released in parts, of which any may come first. To the bit whatever the arithmetic: the
  // contributions come in the same order.
  absl::Status CheckParts() const {
    ShuffledFor shuffled(random_.Bits());
    ASSIGN_OR_RETURN(RoundAccumulator in_parts, Empty());
    for (const v1::Contribution& contribution : trial_.contributions) {
      ASSIGN_OR_RETURN(const ValidContribution valid, in_parts.validator()->Validate(contribution, shuffled));
      in_parts.Accumulate(valid, shuffled);
    }
    const absl::StatusOr<AggregateReport> report = ReportOf(std::move(in_parts).Release(shuffled));
    if (AreEqual(report, report_)) return absl::OkStatus();
    return Broken("the order of parts shows", DifferenceOf(Fingerprint(report_), Fingerprint(report)));
  }

  const OperatorSuite& suite_;
  const OperatorTrial& trial_;
  Random& random_;
  std::string state_;
  absl::StatusOr<AggregateReport> report_;
  absl::StatusOr<AggregateReport> expected_;
};

// Leaves contributions out while a law stays broken.
OperatorTrial Smaller(const OperatorSuite& suite, OperatorTrial trial, uint64_t seed) {
  for (size_t i = trial.contributions.size(); i-- > 0;) {
    OperatorTrial without = trial;
    without.contributions.erase(without.contributions.begin() + static_cast<int64_t>(i));
    SeededRandom random(seed);
    if (!suite.Check(without, random).ok()) trial = std::move(without);
  }
  return trial;
}

}  // namespace

absl::StatusOr<AggregateReport> ReferenceOracle(const OperatorTrial& trial) {
  return ReferenceAggregate(trial.spec, trial.contributions);
}

absl::Status SameBits(const OperatorTrial&, const AggregateReport& expected, const AggregateReport& found) {
  if (AreEqual(expected, found)) return absl::OkStatus();
  return absl::InternalError(DifferenceOf(Fingerprint(expected), Fingerprint(found)));
}

absl::Status OperatorSuite::Check(const OperatorTrial& trial, Random& random) const {
  return TrialCheck(*this, trial, random).Run();
}

absl::Status OperatorSuite::CheckMany(int trials, const std::function<OperatorTrial(Random&)>& draw) const {
  // Bytes of a contribution: enough of a small one to rebuild it by hand.
  constexpr int kShown = 1000;
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(trials); ++seed) {
    SeededRandom random(seed);
    const OperatorTrial trial = draw(random);
    const absl::Status status = Check(trial, random);
    if (status.ok()) continue;
    const OperatorTrial smaller = Smaller(*this, trial, seed);
    SeededRandom same_random(seed);
    const absl::Status on_smaller = Check(smaller, same_random);
    std::string text =
        fmt::format("seed {}: {}\nspec: {}\n", seed, std::string((on_smaller.ok() ? status : on_smaller).message()),
                    trial.spec.ShortDebugString());
    for (const v1::Contribution& contribution : (on_smaller.ok() ? trial : smaller).contributions) {
      text += fmt::format("contribution: {:.{}}\n", contribution.ShortDebugString(), kShown);
    }
    return absl::InternalError(text);
  }
  return absl::OkStatus();
}

std::string Fingerprint(const absl::StatusOr<AggregateReport>& report) {
  if (!report.ok()) return report.status().ToString();
  std::string text = fmt::format("{} contributions, {} clients\n", report->num_contributions, report->num_clients);
  for (const NamedTensor& tensor : report->tensors) {
    text += fmt::format("{} {} [{}] {}\n", tensor.name, v1::DType_Name(tensor.dtype), fmt::join(tensor.shape, ", "),
                        BytesText(tensor.data));
  }
  for (const v1::OutputSummary& summary : report->outputs) text += summary.ShortDebugString() + "\n";
  return text;
}

}  // namespace sheaf
