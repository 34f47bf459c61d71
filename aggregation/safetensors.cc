#include "aggregation/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "aggregation/output_layout.h"
#include "aggregation/state_bytes.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

using Json = nlohmann::json;

constexpr int64_t kHeaderMax = 100'000'000;
constexpr size_t kAlignment = 8;
constexpr const char* kMetadata = "__metadata__";

v1::DType DTypeFromName(std::string_view name) {
  for (const v1::DType dtype : {v1::FLOAT32, v1::FLOAT64, v1::INT32, v1::INT64, v1::UINT64, v1::UINT8}) {
    if (DTypeName(dtype) == name) return dtype;
  }
  return v1::DTYPE_UNSPECIFIED;
}

std::vector<TensorView> ViewsOf(const std::vector<NamedTensor>& tensors) {
  std::vector<TensorView> views;
  for (const NamedTensor& tensor : tensors) {
    views.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .data = tensor.data});
  }
  return views;
}

std::string HeaderOf(const std::vector<const ReleasedTensor*>& tensors,
                     const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  int64_t offset = 0;
  for (const ReleasedTensor* tensor : tensors) {
    const int64_t end = offset + tensor->size_bytes();
    header[tensor->name] = {
        {"dtype", std::string(DTypeName(tensor->dtype))}, {"shape", tensor->shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  StateWriter out;
  out.Put<uint64_t>(text.size());
  return std::move(out).Take() + text;
}

absl::StatusOr<Json> ParseHeader(std::string_view text) {
  // Json keeps the last of repeated keys without a word; readers that keep the first would see another file.
  std::vector<std::set<std::string>> keys;
  bool has_duplicates = false;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) has_duplicates |= !keys.back().insert(value.get<std::string>()).second;
    return true;
  };
  Json header = Json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object())
    return absl::InvalidArgumentError("safetensors: the header is not a JSON object");
  if (has_duplicates) return absl::InvalidArgumentError("safetensors: the header names something twice");
  return header;
}

absl::Status ParseMetadata(const Json& json, std::map<std::string, std::string>& metadata) {
  if (!json.is_object()) return absl::InvalidArgumentError("safetensors: __metadata__ is not an object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string())
      return absl::InvalidArgumentError(fmt::format("safetensors: metadata '{}' is not a string", key));
    metadata.emplace(key, value.get<std::string>());
  }
  return absl::OkStatus();
}

// Nothing if it is not an array of integers in [0, 2^63).
std::optional<std::vector<int64_t>> ParseSizes(const Json& json) {
  if (!json.is_array()) return std::nullopt;
  std::vector<int64_t> sizes;
  for (const Json& item : json) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    sizes.push_back(static_cast<int64_t>(item.get<uint64_t>()));
  }
  return sizes;
}

struct ParsedTensor {
  TensorView view;
  int64_t begin = 0;
  int64_t end = 0;
};

absl::StatusOr<ParsedTensor> ParseTensor(const std::string& name, const Json& json, std::string_view data) {
  const auto refuse = [&](std::string_view why) {
    return absl::InvalidArgumentError(fmt::format("safetensors: tensor '{}' {}", name.substr(0, 128), why));
  };
  if (!json.is_object()) return refuse("is not described by an object");
  // Never copied: copies recurse, and a header may be nested deeper than any stack.
  static const Json kNothing;
  const auto field = [&](const char* key) -> const Json& { return json.contains(key) ? json.at(key) : kNothing; };
  const Json& dtype = field("dtype");
  ParsedTensor tensor;
  tensor.view.name = name;
  tensor.view.dtype = dtype.is_string() ? DTypeFromName(dtype.get<std::string>()) : v1::DTYPE_UNSPECIFIED;
  if (tensor.view.dtype == v1::DTYPE_UNSPECIFIED)
    return refuse("has no dtype known here; use F32, F64, I32, I64 or U64");
  std::optional<std::vector<int64_t>> shape = ParseSizes(field("shape"));
  const std::optional<std::vector<int64_t>> offsets = ParseSizes(field("data_offsets"));
  if (!shape.has_value()) return refuse("has no shape, or a malformed one");
  if (!offsets.has_value() || offsets->size() != 2) return refuse("has no data_offsets, or malformed ones");
  tensor.begin = (*offsets)[0];
  tensor.end = (*offsets)[1];
  if (tensor.begin > tensor.end || tensor.end > static_cast<int64_t>(data.size()))
    return refuse("lies outside the file");
  const std::optional<int64_t> elements = Product(*shape);
  int64_t bytes = 0;
  if (!elements.has_value() || __builtin_mul_overflow(*elements, DTypeSize(tensor.view.dtype), &bytes) ||
      bytes != tensor.end - tensor.begin) {
    return refuse("has data_offsets that do not fit its shape and dtype");
  }
  tensor.view.shape = *std::move(shape);
  tensor.view.data = data.substr(static_cast<size_t>(tensor.begin), static_cast<size_t>(bytes));
  return tensor;
}

// The format wants every byte to belong to exactly one tensor.
absl::Status CheckCoverage(std::vector<ParsedTensor>& tensors, int64_t data_size) {
  std::sort(tensors.begin(), tensors.end(), [](const ParsedTensor& a, const ParsedTensor& b) {
    return std::tie(a.begin, a.end, a.view.name) < std::tie(b.begin, b.end, b.view.name);
  });
  int64_t end = 0;
  for (const ParsedTensor& tensor : tensors) {
    if (tensor.begin != end) {
      return absl::InvalidArgumentError(fmt::format(
          "safetensors: tensor '{}' leaves a gap before it or overlaps another", tensor.view.name.substr(0, 128)));
    }
    end = tensor.end;
  }
  if (end == data_size) return absl::OkStatus();
  return absl::InvalidArgumentError("safetensors: there are bytes behind the last tensor");
}

}  // namespace

int64_t TensorView::num_rows() const { return shape.empty() ? 1 : shape.front(); }

int64_t TensorView::row_bytes() const {
  const std::span<const int64_t> row = std::span(shape).subspan(std::min<size_t>(shape.size(), 1));
  const std::optional<int64_t> elements = Product(row);
  int64_t bytes = 0;
  // Of rows that no number of bytes holds there are none.
  const bool overflows = !elements.has_value() || __builtin_mul_overflow(*elements, DTypeSize(dtype), &bytes);
  return overflows ? 0 : bytes;
}

int64_t DTypeSize(v1::DType dtype) {
  switch (dtype) {
    case v1::FLOAT32:
    case v1::INT32:
      return 4;
    case v1::FLOAT64:
    case v1::INT64:
    case v1::UINT64:
      return 8;
    case v1::UINT8:
      return 1;
    default:
      return 0;
  }
}

std::string_view DTypeName(v1::DType dtype) {
  switch (dtype) {
    case v1::FLOAT32:
      return "F32";
    case v1::FLOAT64:
      return "F64";
    case v1::INT32:
      return "I32";
    case v1::INT64:
      return "I64";
    case v1::UINT64:
      return "U64";
    case v1::UINT8:
      return "U8";
    default:
      return "";
  }
}

absl::Status WriteSafetensors(const std::vector<ReleasedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata, const ByteSink& take) {
  // The widest elements first: then every tensor is aligned for its elements without gaps, which the format forbids.
  std::vector<const ReleasedTensor*> order;
  for (const ReleasedTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const ReleasedTensor* a, const ReleasedTensor* b) {
    const int64_t a_size = DTypeSize(a->dtype), b_size = DTypeSize(b->dtype);
    return a_size != b_size ? a_size > b_size : a->name < b->name;
  });
  RETURN_IF_ERROR(take(HeaderOf(order, metadata)));
  for (const ReleasedTensor* tensor : order) RETURN_IF_ERROR(tensor->write(take));
  return absl::OkStatus();
}

std::string EncodeSafetensors(const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  return EncodeSafetensors(ViewsOf(tensors), metadata);
}

std::string EncodeSafetensors(const std::vector<TensorView>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<ReleasedTensor> released;
  for (const TensorView& tensor : tensors) {
    released.push_back(
        {tensor.name, tensor.dtype, tensor.shape, [data = tensor.data](const ByteSink& take) { return take(data); }});
  }
  std::string file;
  const absl::Status written = WriteSafetensors(released, metadata, [&file](std::string_view piece) {
    file += piece;
    return absl::OkStatus();
  });
  SHEAF_CHECK(written.ok(), "{}", written.ToString());
  return file;
}

absl::StatusOr<SafetensorsView> SafetensorsView::Parse(std::string_view file) {
  StateReader in(file);
  const absl::StatusOr<uint64_t> size = in.Get<uint64_t>();
  if (!size.ok() || *size > static_cast<uint64_t>(std::min(in.remaining(), kHeaderMax))) {
    return absl::InvalidArgumentError(
        "safetensors: the file ends before its header does, or the header is over 100 MB");
  }
  const std::string_view text = file.substr(sizeof(uint64_t), static_cast<size_t>(*size));
  const std::string_view data = file.substr(sizeof(uint64_t) + text.size());
  ASSIGN_OR_RETURN(const Json header, ParseHeader(text));
  SafetensorsView view;
  std::vector<ParsedTensor> tensors;
  for (const auto& [name, json] : header.items()) {
    if (name == kMetadata) {
      RETURN_IF_ERROR(ParseMetadata(json, view.metadata_));
      continue;
    }
    ASSIGN_OR_RETURN(ParsedTensor tensor, ParseTensor(name, json, data));
    tensors.push_back(std::move(tensor));
  }
  RETURN_IF_ERROR(CheckCoverage(tensors, static_cast<int64_t>(data.size())));
  for (ParsedTensor& tensor : tensors) view.tensors_.push_back(std::move(tensor.view));
  return view;
}

absl::StatusOr<const TensorView*> SafetensorsView::Find(std::string_view name) const {
  for (const TensorView& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  std::vector<std::string_view> names;
  for (const TensorView& tensor : tensors_) names.push_back(tensor.name);
  return absl::NotFoundError(fmt::format("there is no tensor '{}'; the file has {}", name, fmt::join(names, ", ")));
}

}  // namespace sheaf
