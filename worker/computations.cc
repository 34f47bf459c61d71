#include "worker/computations.h"

#include <fmt/format.h>

#include <algorithm>

#include "worker/computations/noop.h"
#include "worker/computations/one_hot.h"
#include "worker/computations/slow.h"
#include "worker/computations/hitters.h"
#include "worker/computations/reco.h"
#include "worker/computations/tags.h"
#include "workloads/hitters/program.h"
#include "workloads/reco/model.h"
#include "workloads/tags/model.h"

namespace sheaf {
namespace {

struct Row {
  const char* name;
  // The data source it needs; empty for none.
  const char* data;
  std::unique_ptr<Computation> (*make)(const ComputationParts& parts);
};

constexpr Row kRows[] = {
    {kTagsComputation, kDebianIndexData, [](const ComputationParts& parts) { return MakeTags(parts.data); }},
    {kRecoComputation, kNeedsData, [](const ComputationParts& parts) { return MakeReco(parts.data); }},
    {kHittersComputation, kDependenciesData, [](const ComputationParts& parts) { return MakeHitters(parts.data); }},
    {kNoopComputation, "", [](const ComputationParts&) { return MakeNoop(); }},
    {kOneHotComputation, "", [](const ComputationParts&) { return MakeOneHot(); }},
    {kSlowComputation, "", [](const ComputationParts& parts) { return MakeSlow(parts.waiter); }},
};

bool HasData(const Row& row, const DataSources& data) { return *row.data == '\0' || data.IsConfigured(row.data); }

}  // namespace

std::vector<std::unique_ptr<Computation>> BuiltinComputations(const ComputationParts& parts,
                                                              const std::vector<std::string>& allowed) {
  std::vector<std::unique_ptr<Computation>> computations;
  for (const Row& row : kRows) {
    bool is_allowed = allowed.empty() || std::find(allowed.begin(), allowed.end(), row.name) != allowed.end();
    if (is_allowed && HasData(row, parts.data)) computations.push_back(row.make(parts));
  }
  return computations;
}

absl::Status CheckComputationNames(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    bool is_known = std::any_of(std::begin(kRows), std::end(kRows), [&](const Row& row) { return row.name == name; });
    if (is_known) continue;
    std::string known;
    for (const Row& row : kRows) known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", row.name);
    return absl::InvalidArgumentError(fmt::format("there is no computation \"{}\"; there are {}", name, known));
  }
  return absl::OkStatus();
}

std::vector<std::string> MissingDataHints(const DataSources& data) {
  std::vector<std::string> hints;
  for (const Row& row : kRows) {
    if (!HasData(row, data)) {
      hints.push_back(fmt::format("not offering \"{}\": it needs --data {}=LOCATION", row.name, row.data));
    }
  }
  return hints;
}

}  // namespace sheaf
