// Goal: what slow devices cost a training. The real core in virtual time, the real arithmetic of `tags`, and devices
// whose tasks take log-normal times: how long until the model has a recall of 0.52, by rounds that wait for all of
// their tasks, by rounds with more tasks than they need, and by rounds that continue one another.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/server/slow_devices.h"
#include "workloads/tags/program.h"

namespace sheaf {
namespace {

constexpr double kRecall = 0.52;
constexpr int kRoundsMax = 100;
constexpr int kDevices = 65;

struct Mode {
  const char* name;
  // Of each round.
  int num_tasks;
  int goal;
  bool is_buffered = false;
};
constexpr Mode kWaiting = {.name = "all waited for", .num_tasks = 50, .goal = 50};
constexpr Mode kOverSelected = {.name = "over-selected", .num_tasks = kDevices, .goal = 50};
// FedBuff's buffers are of 10, too.
constexpr Mode kBuffered = {.name = "buffered", .num_tasks = kDevices, .goal = 10, .is_buffered = true};

struct Point {
  absl::Duration time;
  double recall = 0;
};

struct Pace {
  // After each round, until the recall is there.
  std::vector<Point> points;
  double mean_staleness = 0;
};

Pace Train(const TagsDataset& dataset, const Mode& mode, uint64_t seed) {
  TagsProgram program(dataset, {.clients_per_round = mode.num_tasks, .seed = seed});
  // A device computes from the model of when it begins.
  SlowDevices devices({.num_devices = kDevices, .seed = seed}, [&](const v1::Lease& lease) {
    const TagsConfig config = TagsConfig::Parse(lease.computation().config()).value();
    const int client = ParseTagsSelector(lease.data_selector(), dataset).value();
    const std::vector<int64_t> rows = TagsRowsTouched(dataset, client, config);
    const TagsUpdate update = TrainTagsClient(
        dataset, client, config, {.rows = rows, .weights = program.model().Gather(rows), .bias = program.model().bias});
    v1::TaskResult result;
    result.set_task(lease.task());
    result.set_lease_token(lease.lease_token());
    result.set_contribution(BuildTagsContribution(update, config).SerializeAsString());
    return result;
  });
  const auto announce = [&](int number, const std::string& before) {
    v1::RoundSpec spec = program.Plan(number).value();
    spec.set_goal(mode.goal);
    if (mode.is_buffered && !before.empty()) {
      spec.set_continues(before);
      spec.mutable_staleness()->set_function(v1::POLYNOMIAL);
    }
    return devices.Announce(spec);
  };
  Pace pace;
  int64_t num_contributions = 0;
  std::string next = announce(1, "");
  for (int number = 1; number <= kRoundsMax; ++number) {
    const std::string round = next;
    next = announce(number + 1, round);
    devices.Open(round);
    const v1::Round released = devices.Finish(round);
    num_contributions += released.num_contributions();
    for (const auto& [staleness, count] : released.contributions_by_staleness()) {
      pace.mean_staleness += static_cast<double>(staleness) * static_cast<double>(count);
    }
    const std::string aggregate = devices.server().ReadAggregate(round);
    REQUIRE(program.Apply(number, SafetensorsView::Parse(aggregate).value(), released).ok());
    const double recall = program.Evaluate(number).value().at(kTagsRecallMetric);
    pace.points.push_back({.time = devices.elapsed(), .recall = recall});
    if (recall >= kRecall) break;
  }
  pace.mean_staleness /= static_cast<double>(num_contributions);
  return pace;
}

const TagsDataset& Sample() {
  static const TagsDataset dataset = TagsDataset::Load(SHEAF_TEST_DATA "/debian-index-sample.snapshot").value();
  return dataset;
}

std::string Text(const Pace& pace) {
  return fmt::format("{} and {} rounds, mean staleness {:.2f}",
                     absl::FormatDuration(absl::Trunc(pace.points.back().time, absl::Seconds(1))), pace.points.size(),
                     pace.mean_staleness);
}

TEST_CASE("With slow devices buffered rounds train a model in a third of the time of rounds that wait, or less") {
  const uint64_t seed = GENERATE(1, 2, 3);
  const Pace waiting = Train(Sample(), kWaiting, seed);
  const Pace over_selected = Train(Sample(), kOverSelected, seed);
  const Pace buffered = Train(Sample(), kBuffered, seed);
  WARN("seed " << seed << ": recall " << kRecall << "\n  waiting for all  " << Text(waiting) << "\n  over-selected    "
               << Text(over_selected) << "\n  buffered         " << Text(buffered));
  for (const Pace* pace : {&waiting, &over_selected, &buffered}) CHECK(pace->points.back().recall >= kRecall);
  CHECK(buffered.points.back().time <= waiting.points.back().time / 3);
  CHECK(buffered.points.back().time <= over_selected.points.back().time);
}

// For docs/guides/draw_time_to_recall.py: {"mode": .., "seed": .., "seconds": .., "recall": ..} of each round.
TEST_CASE("The recall over time, as JSON lines", "[.points]") {
  for (const uint64_t seed : {1, 2, 3}) {
    for (const Mode& mode : {kWaiting, kOverSelected, kBuffered}) {
      for (const Point& point : Train(Sample(), mode, seed).points) {
        fmt::print("{{\"mode\": \"{}\", \"seed\": {}, \"seconds\": {:.1f}, \"recall\": {:.4f}}}\n", mode.name, seed,
                   absl::ToDoubleSeconds(point.time), point.recall);
      }
    }
  }
}

}  // namespace
}  // namespace sheaf
