#include "worker/runners/task_description.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/escaping.h"
#include "aggregation/operators.h"
#include "aggregation/wire/tensor.h"
#include "base/checksum.h"

namespace sheaf {
namespace {

using OrderedJson = nlohmann::ordered_json;

// JSON numbers are doubles to many: integers below 2^53 are the same to all.
constexpr uint64_t kSeedBelow = uint64_t{1} << 53;

OrderedJson ToJson(const std::string& bytes) {
  if (bytes.empty()) return nullptr;
  OrderedJson json = OrderedJson::parse(bytes, nullptr, /*allow_exceptions=*/false);
  // What looks like our base64 is taken for bytes, too, so that nobody need guess.
  const bool looks_like_ours = json.is_object() && json.size() == 1 && json.contains("base64");
  if (!json.is_discarded() && !looks_like_ours) return json;
  std::string base64;
  absl::Base64Escape({bytes.data(), bytes.size()}, &base64);
  return {{"base64", base64}};
}

// The same for each attempt, and another for each task.
uint64_t SeedOf(const v1::Lease& lease) {
  return std::stoull(Sha256Hex(lease.task()).substr(0, 16), nullptr, 16) % kSeedBelow;
}

std::string OperandName(Operand operand) {
  return operand == Operand::kDense ? "dense" : operand == Operand::kSparse ? "sparse" : "keyed";
}

OrderedJson OutputToJson(const v1::OutputSpec& spec) {
  const std::vector<int64_t> shape(spec.dense_shape().begin(), spec.dense_shape().end());
  OrderedJson json = {{"name", spec.name()}, {"operator", spec.operator_()}};
  const Operator* const op = FindOperator(Operators(), spec.operator_());
  if (op != nullptr) json["operand"] = OperandName(op->operand);
  json["dtype"] = DTypeName(spec.dtype());
  json["shape"] = shape;
  if (op != nullptr && op->operand == Operand::kSparse) {
    const int32_t dims = spec.index_dims() != 0 ? spec.index_dims() : op->default_index_dims;
    json["index_dims"] = dims != kAllDims ? dims : spec.dense_shape_size();
  }
  if (op != nullptr && op->operand == Operand::kKeyed) json["key_type"] = v1::KeyType_Name(spec.key_type());
  return json;
}

}  // namespace

std::string TaskDescription(const v1::Lease& lease, const std::map<std::string, std::string>& data,
                            const ProcessLimits& limits) {
  OrderedJson outputs = OrderedJson::array();
  for (const v1::OutputSpec& spec : lease.aggregate().outputs()) outputs.push_back(OutputToJson(spec));
  const v1::Numerics numerics = lease.aggregate().numerics();
  OrderedJson json = {{"version", 1},
                      {"computation", lease.computation().name()},
                      {"config", ToJson(lease.computation().config())},
                      {"payload", ToJson(lease.payload())},
                      {"round", lease.round()},
                      {"task", lease.task()},
                      {"attempt", lease.attempt()},
                      {"seed", SeedOf(lease)}};
  json["seconds"] = nullptr;
  if (limits.time != absl::InfiniteDuration()) json["seconds"] = absl::ToDoubleSeconds(limits.time);
  json["data_selector"] = lease.data_selector();
  json["data"] = data.empty() ? OrderedJson::object() : OrderedJson(data);
  json["min_clients"] = lease.min_clients();
  json["broadcast"] = nullptr;
  if (!lease.broadcast_digest().empty()) json["broadcast"] = lease.broadcast_digest();
  if (lease.announced()) json["broadcast"] = true;
  json["numerics"] = v1::Numerics_Name(numerics == v1::NUMERICS_UNSPECIFIED ? v1::EXACT : numerics);
  json["outputs"] = std::move(outputs);
  // A selector need not be UTF-8, and the line must be.
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace sheaf
