#include "workloads/tags/config.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace sheaf {
namespace {

using Json = nlohmann::json;

absl::Status Wrong(std::string_view key, std::string_view want) {
  return absl::InvalidArgumentError(
      fmt::format("the configuration of computation \"tags\" needs \"{}\": {}", key, want));
}

// A whole number in [1, max] into `out`.
absl::Status TakeCount(const Json& json, const char* key, int max, int& out) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_unsigned() || found->get<uint64_t>() < 1 ||
      found->get<uint64_t>() > static_cast<uint64_t>(max)) {
    return Wrong(key, fmt::format("a whole number from 1 to {}", max));
  }
  out = found->get<int>();
  return absl::OkStatus();
}

}  // namespace

std::string TagsConfig::Serialize() const {
  return Json{{"batch", batch},       {"examples_max", examples_max},   {"features", num_features},
              {"labels", num_labels}, {"learning_rate", learning_rate}, {"seed", seed}}
      .dump();
}

absl::StatusOr<TagsConfig> TagsConfig::Parse(std::string_view json) {
  const Json parsed = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) {
    return absl::InvalidArgumentError("the configuration of computation \"tags\" is not a JSON object");
  }
  TagsConfig config;
  absl::Status status = TakeCount(parsed, "batch", 1 << 20, config.batch);
  if (status.ok()) status = TakeCount(parsed, "examples_max", 1 << 20, config.examples_max);
  if (status.ok()) status = TakeCount(parsed, "features", 1 << 28, config.num_features);
  if (status.ok()) status = TakeCount(parsed, "labels", 65535, config.num_labels);
  if (!status.ok()) return status;
  const auto rate = parsed.find("learning_rate");
  if (rate == parsed.end() || !rate->is_number() || !(rate->get<double>() > 0) || !std::isfinite(rate->get<double>())) {
    return Wrong("learning_rate", "a number above 0");
  }
  config.learning_rate = rate->get<double>();
  const auto seed = parsed.find("seed");
  if (seed == parsed.end() || !seed->is_number_unsigned()) return Wrong("seed", "a whole number, 0 or above");
  config.seed = seed->get<uint64_t>();
  return config;
}

absl::Status TagsConfig::CheckFits(const TagsDataset& dataset) const {
  if (num_features == dataset.num_features() && num_labels == dataset.num_labels()) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "the round's model has {} features and {} labels, this worker's dataset {} and {}: they were made from "
      "different package indexes; give all workers the program's snapshot",
      num_features, num_labels, dataset.num_features(), dataset.num_labels()));
}

}  // namespace sheaf
