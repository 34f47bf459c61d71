#include "aggregation/wire/safetensors_patch.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "aggregation/wire/safetensors.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr char kBaseKey[] = "sheaf.base";
constexpr std::string_view kIndices = ".indices";
constexpr std::string_view kValues = ".values";

absl::Status Unfit(std::string_view tensor, std::string_view why) {
  return absl::InvalidArgumentError(fmt::format("the patch does not fit its base: tensor \"{}\" {}", tensor, why));
}

const TensorEntry* FindOrNull(const SafetensorsHeader& header, std::string_view name) {
  const auto found = header.Find(name);
  return found.ok() ? *found : nullptr;
}

// The tensor of the base of which `part` has the rows or their numbers; null if it has neither.
const TensorEntry* PatchedBy(const TensorEntry& part, std::string_view suffix, const SafetensorsHeader& base) {
  const std::string_view name = part.name;
  if (!name.ends_with(suffix)) return nullptr;
  return FindOrNull(base, name.substr(0, name.size() - suffix.size()));
}

absl::Status CheckWhole(const TensorEntry& part, const TensorEntry& tensor) {
  if (part.dtype != tensor.dtype || part.shape != tensor.shape || part.end - part.begin != tensor.end - tensor.begin) {
    return Unfit(part.name,
                 fmt::format("is of dtype {} and shape {}, and the base's of {} and {}", DTypeName(part.dtype),
                             ShapeText(part.shape), DTypeName(tensor.dtype), ShapeText(tensor.shape)));
  }
  return absl::OkStatus();
}

absl::Status CheckParts(const PatchedTensor& patched) {
  const TensorEntry& tensor = *patched.tensor;
  if (patched.indices == nullptr) return Unfit(tensor.name, "has rows, and no numbers of rows");
  if (patched.values == nullptr) return Unfit(tensor.name, "has numbers of rows, and no rows");
  const std::vector<int64_t>& indices = patched.indices->shape;
  if (patched.indices->dtype != v1::INT64 || indices.size() != 1) {
    return Unfit(patched.indices->name, "is not of dtype I64 and one dimension");
  }
  std::vector<int64_t> shape = indices;
  if (!tensor.shape.empty()) shape.insert(shape.end(), tensor.shape.begin() + 1, tensor.shape.end());
  if (tensor.dtype == v1::DTYPE_UNSPECIFIED || patched.values->dtype != tensor.dtype ||
      patched.values->shape != shape) {
    return Unfit(patched.values->name, fmt::format("is not of the base's dtype {} and of shape {}",
                                                   DTypeName(tensor.dtype), ShapeText(shape)));
  }
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsHeader> ParseHeader(std::string_view file) {
  const auto size = static_cast<int64_t>(file.size());
  ASSIGN_OR_RETURN(const int64_t text, SafetensorsHeader::TextBytes(file, size, {}));
  return SafetensorsHeader::Parse(file.substr(SafetensorsHeader::kPrefixBytes, text), size, {});
}

}  // namespace

std::string EncodeSafetensorsPatch(const std::string& base, std::span<const TensorChange> changes) {
  std::vector<TensorView> tensors;
  for (const TensorChange& change : changes) {
    if (!change.rows) {
      tensors.push_back({.name = change.tensor, .dtype = change.dtype, .shape = change.shape, .data = change.data});
      continue;
    }
    tensors.push_back({.name = change.tensor + std::string(kIndices),
                       .dtype = v1::INT64,
                       .shape = {static_cast<int64_t>(change.rows->size())},
                       .data = {reinterpret_cast<const char*>(change.rows->data()), change.rows->size_bytes()}});
    tensors.push_back({.name = change.tensor + std::string(kValues),
                       .dtype = change.dtype,
                       .shape = change.shape,
                       .data = change.data});
  }
  return EncodeSafetensors(tensors, {{kBaseKey, base}});
}

const std::string* PatchBase(const SafetensorsHeader& header) {
  const auto found = header.metadata().find(kBaseKey);
  return found == header.metadata().end() ? nullptr : &found->second;
}

absl::StatusOr<std::vector<PatchedTensor>> FitPatch(const SafetensorsHeader& patch, const SafetensorsHeader& base) {
  std::vector<PatchedTensor> whole;
  std::map<const TensorEntry*, PatchedTensor> in_rows;
  for (const TensorEntry& part : patch.tensors()) {
    // A name that the base has means that tensor.
    if (const TensorEntry* tensor = FindOrNull(base, part.name)) {
      RETURN_IF_ERROR(CheckWhole(part, *tensor));
      whole.push_back({.tensor = tensor, .values = &part});
    } else if ((tensor = PatchedBy(part, kIndices, base)) != nullptr) {
      in_rows[tensor].indices = &part;
    } else if ((tensor = PatchedBy(part, kValues, base)) != nullptr) {
      in_rows[tensor].values = &part;
    } else {
      return Unfit(part.name, "is none of the base's, nor rows of one");
    }
  }
  std::vector<PatchedTensor> patched = std::move(whole);
  for (const PatchedTensor& each : patched) {
    if (in_rows.contains(each.tensor)) return Unfit(each.tensor->name, "is there whole and in rows");
  }
  for (auto& [tensor, parts] : in_rows) {
    parts.tensor = tensor;
    RETURN_IF_ERROR(CheckParts(parts));
    patched.push_back(parts);
  }
  std::sort(patched.begin(), patched.end(),
            [](const PatchedTensor& a, const PatchedTensor& b) { return a.tensor < b.tensor; });
  return patched;
}

absl::Status CheckPatchRows(const TensorEntry& tensor, std::span<const int64_t> rows, int64_t before) {
  for (const int64_t row : rows) {
    if (row < 0 || row >= tensor.num_rows()) {
      return Unfit(tensor.name, fmt::format("has {} rows, and row {} is not among them", tensor.num_rows(), row));
    }
    if (row <= before) return Unfit(tensor.name, fmt::format("has its row {} after row {}", row, before));
    before = row;
  }
  return absl::OkStatus();
}

absl::Status ApplySafetensorsPatch(std::string_view patch, std::string& file) {
  ASSIGN_OR_RETURN(const SafetensorsHeader base_header, ParseHeader(file));
  ASSIGN_OR_RETURN(const SafetensorsHeader patch_header, ParseHeader(patch));
  ASSIGN_OR_RETURN(const std::vector<PatchedTensor> patched, FitPatch(patch_header, base_header));
  std::vector<std::vector<int64_t>> rows;
  for (const PatchedTensor& each : patched) {
    std::vector<int64_t>& of_this = rows.emplace_back();
    if (each.indices == nullptr) continue;
    // Not aligned, for all that is known.
    of_this.resize(static_cast<size_t>(each.indices->num_rows()));
    std::memcpy(of_this.data(), patch.data() + each.indices->begin, of_this.size() * sizeof(int64_t));
    RETURN_IF_ERROR(CheckPatchRows(*each.tensor, of_this));
  }
  for (size_t i = 0; i < patched.size(); ++i) {
    char* const to = file.data() + patched[i].tensor->begin;
    const char* from = patch.data() + patched[i].values->begin;
    if (patched[i].indices == nullptr) {
      std::memcpy(to, from, static_cast<size_t>(patched[i].values->end - patched[i].values->begin));
      continue;
    }
    const int64_t row_bytes = patched[i].tensor->row_bytes();
    for (const int64_t row : rows[i]) {
      std::memcpy(to + row * row_bytes, from, static_cast<size_t>(row_bytes));
      from += row_bytes;
    }
  }
  return absl::OkStatus();
}

}  // namespace sheaf
