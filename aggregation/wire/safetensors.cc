#include "aggregation/wire/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "aggregation/wire/state_bytes.h"
#include "base/check.h"
#include "base/huge_pages.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

using Json = nlohmann::json;

constexpr size_t kAlignment = 8;
constexpr const char* kMetadata = "__metadata__";

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

}  // namespace

int64_t TensorView::num_rows() const { return shape.empty() ? 1 : shape.front(); }

int64_t TensorView::row_bytes() const { return RowBytes(dtype, shape); }

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
  size_t data_bytes = 0;
  for (const TensorView& tensor : tensors) {
    data_bytes += tensor.data.size();
    released.push_back(
        {tensor.name, tensor.dtype, tensor.shape, [data = tensor.data](const ByteSink& take) { return take(data); }});
  }
  std::string file;
  const absl::Status written = WriteSafetensors(released, metadata, [&file, data_bytes](std::string_view piece) {
    if (file.empty()) {
      // Behind the header, which comes first.
      file.reserve(piece.size() + data_bytes);
      AdviseHugePages(file.data(), file.capacity());
    }
    file += piece;
    return absl::OkStatus();
  });
  SHEAF_CHECK(written.ok(), "{}", written.ToString());
  return file;
}

absl::StatusOr<SafetensorsView> SafetensorsView::Parse(std::string_view file, const SafetensorsLimits& limits) {
  const auto file_bytes = static_cast<int64_t>(file.size());
  ASSIGN_OR_RETURN(const int64_t text_bytes,
                   SafetensorsHeader::TextBytes(file.substr(0, SafetensorsHeader::kPrefixBytes), file_bytes, limits));
  const std::string_view text = file.substr(SafetensorsHeader::kPrefixBytes, static_cast<size_t>(text_bytes));
  SafetensorsView view;
  ASSIGN_OR_RETURN(view.header_, SafetensorsHeader::Parse(text, file_bytes, limits));
  for (const TensorEntry& tensor : view.header_.tensors()) {
    if (tensor.dtype == v1::DTYPE_UNSPECIFIED) {
      return absl::InvalidArgumentError(
          fmt::format("safetensors: tensor '{}' has no dtype known here; use F32, F64, I32, I64, U64 or U8",
                      tensor.name.substr(0, 128)));
    }
    view.tensors_.push_back(
        {.name = tensor.name,
         .dtype = tensor.dtype,
         .shape = tensor.shape,
         .data = file.substr(static_cast<size_t>(tensor.begin), static_cast<size_t>(tensor.end - tensor.begin))});
  }
  return view;
}

absl::StatusOr<const TensorView*> SafetensorsView::Find(std::string_view name) const {
  ASSIGN_OR_RETURN(const TensorEntry* found, header_.Find(name));
  return &tensors_[static_cast<size_t>(found - header_.tensors().data())];
}

}  // namespace sheaf
