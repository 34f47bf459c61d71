#include <fmt/format.h>
#include <google/protobuf/struct.pb.h>

#include <algorithm>
#include <vector>

#include "cli/commands.h"
#include "cli/commands/selftest.h"
#include "cli/processes/interrupt.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/field_list.h"

namespace sheaf {
namespace {

constexpr absl::Duration kLeaseMin = absl::Milliseconds(200);
constexpr absl::Duration kLeaseMax = absl::Seconds(30);

struct Spread {
  int64_t count = 0;
  absl::Duration median;
  absl::Duration max;
};

Spread SpreadOf(std::vector<absl::Duration> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {.count = static_cast<int64_t>(values.size()), .median = values[values.size() / 2], .max = values.back()};
}

std::string SpreadText(const Spread& spread, std::string_view what) {
  if (spread.count == 0) return "0";
  return fmt::format("{}, {} median {}, max {}", HumanCount(spread.count), what, HumanDuration(spread.median),
                     HumanDuration(spread.max));
}

Cell ZeroCell(int64_t count) { return {HumanCount(count), count == 0 ? Color::kGreen : Color::kRed}; }

absl::Status WithTokenHint(const absl::Status& status, const std::string& population) {
  if (!absl::IsPermissionDenied(status) && !absl::IsUnauthenticated(status)) return status;
  return WithHint(status,
                  fmt::format("the selftest is a submitter and a worker: sheaf token create selftest --role submitter "
                              "--role worker --for {} --to selftest.token, then --token-file selftest.token",
                              population));
}

class ServerSelftest final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Number("--loops", "N", "rounds, one after the other", {.min = 1, .max = 1000}, &loops_);
    arguments.Number("--workers", "N", "workers, in this process", {.min = 1, .max = 64}, &workers_);
    arguments.Number("--tasks", "N", "tasks per round", {.min = 1, .max = 10'000}, &tasks_);
    arguments.Choice("--faults", "what goes wrong between the workers and the server", {"network", "none"}, &faults_);
    arguments.Duration("--lease", "lease of the rounds, 200ms to 30s; late messages arrive three leases late [1s]",
                       &lease_);
    arguments.Duration("--seconds", "start no round after this time", &seconds_);
    arguments.Number("--seed", "N", "of what goes wrong [drawn]", {.min = 0}, &seed_).default_text.clear();
  }

  absl::Status Run(Session& session) override {
    const absl::Duration lease = lease_.value_or(absl::Seconds(1));
    if (lease < kLeaseMin || lease > kLeaseMax) {
      return absl::InvalidArgumentError(fmt::format("--lease is {}; give 200ms to 30s", absl::FormatDuration(lease)));
    }
    if (seed_ < 0) seed_ = static_cast<int64_t>(session.host().random.Below(1'000'000'000));
    InterruptGuard guard;
    const absl::Status status = RunRounds(session, guard, lease);
    return WithTokenHint(status, session.options().population);
  }

 private:
  absl::Status RunRounds(Session& session, InterruptGuard& guard, absl::Duration lease) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Selftest> selftest,
                     Selftest::Start(session, {.num_workers = static_cast<int>(workers_),
                                               .num_tasks = static_cast<int>(tasks_),
                                               .lease = lease,
                                               .has_faults = faults_ == "network",
                                               .seed = static_cast<uint64_t>(seed_),
                                               .is_interrupted = [&guard] { return guard.interrupted(); }}));
    session.err() << fmt::format("{} rounds of {} tasks on {} workers, population {}, seed {}\n", loops_, tasks_,
                                 workers_, session.options().population, seed_);
    const absl::Time start = session.now();
    for (int64_t i = 1; i <= loops_; ++i) {
      if (seconds_ && session.now() - start >= *seconds_) break;
      ASSIGN_OR_RETURN(const RoundTrial trial, selftest->RunRound());
      session.err() << fmt::format("{:>4}  {}  {} in {}: {} attempted, {} acknowledged, {} counted\n", i, trial.round,
                                   trial.is_released ? "released" : "did NOT end", HumanDuration(trial.took),
                                   trial.history.attempted, trial.history.acknowledged, trial.history.counted)
                    << std::flush;
    }
    const SelftestReport& report = selftest->report();
    RETURN_IF_ERROR(session.json() ? PrintJson(session, report) : PrintTable(session, report, lease));
    if (report.ok()) return absl::OkStatus();
    return WithHint(absl::AbortedError(Complaint(report)),
                    fmt::format("keep the server's data directory and log, and report it with seed {}", seed_));
  }

  static std::string Complaint(const SelftestReport& report) {
    if (!report.history.violations.empty()) return report.history.violations.front();
    return fmt::format("round {} did not end after the faults were over", report.stuck_rounds.front());
  }

  static absl::Status PrintTable(Session& session, const SelftestReport& report, absl::Duration lease) {
    FieldList fields;
    fields.Add("Rounds released", HumanCount(report.num_released));
    fields.Add("Rounds stuck", ZeroCell(static_cast<int64_t>(report.stuck_rounds.size())));
    fields.Add("Attempted", HumanCount(report.history.attempted));
    fields.Add("Acknowledged", HumanCount(report.history.acknowledged));
    fields.Add("Counted", HumanCount(report.history.counted));
    fields.Add("Duplicated", ZeroCell(report.history.duplicated));
    fields.Add("Lost", ZeroCell(report.history.lost));
    fields.Add("Foreign", ZeroCell(report.history.foreign));
    fields.Add("Recoveries", SpreadText(SpreadOf(report.recoveries), "from the first call without an answer"));
    fields.Add("Workers vanished", HumanCount(report.num_vanished));
    fields.Add("Tasks taken over", SpreadText(SpreadOf(report.reruns), fmt::format("lease {};", HumanDuration(lease))));
    for (int i = 0; i < kNumNetworkFaults; ++i) {
      fields.Add(fmt::format("Network: {}", NetworkFaultName(static_cast<NetworkFault>(i))),
                 HumanCount(report.network_faults[static_cast<size_t>(i)]));
    }
    fields.Add("Calls twice, late, unanswered", HumanCount(report.call_faults));
    session.out() << fields.Render(session.table_style());
    for (const std::string& violation : report.history.violations) session.out() << violation << "\n";
    return absl::OkStatus();
  }

  absl::Status PrintJson(Session& session, const SelftestReport& report) const {
    google::protobuf::Struct json;
    auto number = [&json](const std::string& name, double value) {
      (*json.mutable_fields())[name].set_number_value(value);
    };
    number("seed", static_cast<double>(seed_));
    number("roundsReleased", static_cast<double>(report.num_released));
    number("roundsStuck", static_cast<double>(report.stuck_rounds.size()));
    number("attempted", static_cast<double>(report.history.attempted));
    number("acknowledged", static_cast<double>(report.history.acknowledged));
    number("counted", static_cast<double>(report.history.counted));
    number("duplicated", static_cast<double>(report.history.duplicated));
    number("lost", static_cast<double>(report.history.lost));
    number("foreign", static_cast<double>(report.history.foreign));
    for (const auto& [name, values] : {std::pair("recover", &report.recoveries), {"takeOver", &report.reruns}}) {
      const Spread spread = SpreadOf(*values);
      number(fmt::format("{}Count", name), static_cast<double>(spread.count));
      number(fmt::format("{}SecondsMedian", name), absl::ToDoubleSeconds(spread.median));
      number(fmt::format("{}SecondsMax", name), absl::ToDoubleSeconds(spread.max));
    }
    return session.PrintJson(json);
  }

  int64_t loops_ = 5;
  int64_t workers_ = 16;
  int64_t tasks_ = 64;
  int64_t seed_ = -1;
  std::string faults_ = "network";
  std::optional<absl::Duration> lease_;
  std::optional<absl::Duration> seconds_;
};

}  // namespace

std::unique_ptr<Command> MakeServerSelftest() { return std::make_unique<ServerSelftest>(); }

}  // namespace sheaf
