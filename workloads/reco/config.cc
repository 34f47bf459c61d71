#include "workloads/reco/config.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace sheaf {
namespace {

using Json = nlohmann::json;

absl::Status Wrong(std::string_view key, std::string_view want) {
  return absl::InvalidArgumentError(
      fmt::format("the configuration of computation \"reco\" needs \"{}\": {}", key, want));
}

// A whole number in [1, max] into `out`.
absl::Status TakeCount(const Json& json, const char* key, uint64_t max, int& out) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_unsigned() || found->get<uint64_t>() < 1 ||
      found->get<uint64_t>() > max) {
    return Wrong(key, fmt::format("a whole number from 1 to {}", max));
  }
  out = found->get<int>();
  return absl::OkStatus();
}

}  // namespace

std::string RecoConfig::Serialize() const {
  return Json{{"dimensions", dimensions},   {"items", num_items},     {"local_rate", local_rate},
              {"local_steps", local_steps}, {"negatives", negatives}, {"seed", seed}}
      .dump();
}

absl::StatusOr<RecoConfig> RecoConfig::Parse(std::string_view json) {
  const Json parsed = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) {
    return absl::InvalidArgumentError("the configuration of computation \"reco\" is not a JSON object");
  }
  RecoConfig config;
  absl::Status status = TakeCount(parsed, "dimensions", 4096, config.dimensions);
  if (status.ok()) status = TakeCount(parsed, "items", 1 << 28, config.num_items);
  if (status.ok()) status = TakeCount(parsed, "local_steps", 1000, config.local_steps);
  if (status.ok()) status = TakeCount(parsed, "negatives", 10'000, config.negatives);
  if (!status.ok()) return status;
  const auto rate = parsed.find("local_rate");
  if (rate == parsed.end() || !rate->is_number() || !(rate->get<double>() > 0) || !std::isfinite(rate->get<double>())) {
    return Wrong("local_rate", "a number above 0");
  }
  config.local_rate = rate->get<double>();
  const auto seed = parsed.find("seed");
  if (seed == parsed.end() || !seed->is_number_unsigned()) return Wrong("seed", "a whole number");
  config.seed = seed->get<uint64_t>();
  for (const auto& [key, value] : parsed.items()) {
    if (!Json::parse(RecoConfig().Serialize()).contains(key)) return Wrong(key, "nothing; it is not known here");
  }
  return config;
}

absl::Status RecoConfig::CheckFits(const RecoDataset& dataset) const {
  if (dataset.num_items() == num_items) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("this worker's package index gives {} items, and the round's model has {}; both must read the same "
                  "index: give program and workers one snapshot",
                  dataset.num_items(), num_items));
}

}  // namespace sheaf
