// The demos' computations and their data, in the table of a worker.
#include <catch2/catch.hpp>

#include "tests/no_waiter.h"
#include "worker/computation_table.h"
#include "workloads/hitters/computation.h"
#include "workloads/hitters/dataset.h"
#include "workloads/package_source.h"
#include "workloads/reco/computation.h"
#include "workloads/reco/dataset.h"
#include "workloads/tags/computation.h"
#include "workloads/tags/dataset.h"

namespace sheaf {
namespace {

const ComputationTable& Demos() {
  static const ComputationTable table = {TagsComputation(), RecoComputation(), HittersComputation()};
  return table;
}

TEST_CASE("A demo's computation is offered only where its data is") {
  DataSources data(Demos().data_sources());
  auto offers = [&] {
    NoWaiter waiter;
    std::vector<std::string> names;
    for (const auto& computation : Demos().Make({data, waiter})) names.push_back(std::string(computation->name()));
    return names;
  };
  CHECK(offers().empty());
  CHECK_THAT(Demos().MissingDataHints(data).at(0), Catch::Contains("--data debian-index="));
  REQUIRE(data.Configure("debian-index", "apt").ok());
  CHECK(offers() == std::vector<std::string>{"tags"});
  CHECK_THAT(Demos().MissingDataHints(data).at(0), Catch::Contains("--data debian-needs="));
  CHECK_THAT(Demos().MissingDataHints(data).at(1), Catch::Contains("--data debian-dependencies="));
  REQUIRE(data.Configure("debian-dependencies", "apt").ok());
  CHECK(offers() == std::vector<std::string>{"tags", "hitters"});
  REQUIRE(data.Configure("debian-needs", "apt").ok());
  CHECK(offers() == std::vector<std::string>{"tags", "reco", "hitters"});
}

TEST_CASE("A demo's data that is missing is an error that says what to do") {
  DataSources data(Demos().data_sources());
  const DataSource<TagsDataset> index = PackageSource<TagsDataset>(kDebianIndexData);
  CHECK_THAT(std::string(LocalData(index, data).Load().status().message()), Catch::Contains("--data debian-index=apt"));
  CHECK_THAT(std::string(LocalData(PackageSource<HittersDataset>(kDependenciesData), data).Load().status().message()),
             Catch::Contains("--data debian-dependencies=apt"));
  CHECK_THAT(std::string(LocalData(PackageSource<RecoDataset>(kNeedsData), data).Load().status().message()),
             Catch::Contains("--data debian-needs=apt"));
  CHECK_THAT(std::string(data.Configure("moon", "apt").message()), Catch::Contains("debian-index"));
  REQUIRE(data.Configure("debian-index", "/nowhere/index.snapshot").ok());
  CHECK_THAT(std::string(LocalData(index, data).Load().status().message()), Catch::Contains("/nowhere/index.snapshot"));
}

}  // namespace
}  // namespace sheaf
