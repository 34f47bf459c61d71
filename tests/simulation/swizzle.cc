#include "tests/simulation/swizzle.h"

#include <utility>

namespace sheaf::simulation {
namespace {

constexpr absl::Duration kStepMax = absl::Seconds(4);

}  // namespace

void Swizzle::Strike() {
  if (weather_.agenda.now() < end_ || !weather_.Strikes(weather_.plan.swizzle, "swizzles")) return;
  std::vector<FaultyTransport*> chosen;
  for (FaultyTransport* link : links_) {
    if (weather_.chance.Chance(0.5)) chosen.push_back(link);
  }
  weather_.journal.Note("{} links are swizzled", chosen.size());
  const absl::Time all_clogged = OneByOne(chosen, weather_.agenda.now(), &FaultyTransport::Clog);
  end_ = OneByOne(chosen, all_clogged, &FaultyTransport::Unclog);
}

absl::Time Swizzle::OneByOne(std::vector<FaultyTransport*> links, absl::Time start, void (FaultyTransport::*act)()) {
  absl::Time time = start;
  while (!links.empty()) {
    std::swap(links[weather_.chance.Below(links.size())], links.back());
    time += weather_.chance.Between(absl::ZeroDuration(), kStepMax);
    weather_.agenda.At(time, [this, link = links.back(), act] {
      if (weather_.is_stormy) (link->*act)();
    });
    links.pop_back();
  }
  return time;
}

}  // namespace sheaf::simulation
