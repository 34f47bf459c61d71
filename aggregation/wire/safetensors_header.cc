#include "aggregation/wire/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "aggregation/wire/state_bytes.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetadataKey = "__metadata__";
// Of a name that an error quotes.
constexpr size_t kQuotedBytes = 128;
// How many tensors a message lists.
constexpr size_t kListedMax = 16;

v1::DType DTypeFromName(std::string_view name) {
  for (const v1::DType dtype : {v1::FLOAT32, v1::FLOAT64, v1::INT32, v1::INT64, v1::UINT64, v1::UINT8}) {
    if (DTypeName(dtype) == name) return dtype;
  }
  return v1::DTYPE_UNSPECIFIED;
}

absl::Status Malformed(std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("safetensors: {}", what));
}

absl::Status OfTensor(std::string_view name, std::string_view what) {
  return Malformed(fmt::format("tensor '{}' {}", name.substr(0, kQuotedBytes), what));
}

// Takes the header's tokens one by one, and keeps nothing but what it was made for. There is no tree of the JSON: the
// library's own takes time quadratic in the number of keys as soon as somebody looks for keys that occur twice.
//
// Values of fields that the format does not have are passed over, however deep they are nested.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  HeaderReader(const SafetensorsLimits& limits, std::vector<TensorEntry>& tensors,
               std::map<std::string, std::string>& metadata)
      : limits_(limits), tensors_(tensors), metadata_(metadata) {}

  // What was wrong, once a method has returned false.
  const absl::Status& status() const { return status_; }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::kOutside:
        place_ = Place::kRoot;
        return true;
      case Place::kRoot:
        return name_ == kMetadataKey ? StartMetadata() : StartTensor();
      default:
        return StartNested();
    }
  }
  bool end_object() override {
    if (depth_passed_ > 0) return EndNested();
    switch (place_) {
      case Place::kTensor:
        place_ = Place::kRoot;
        return EndTensor();
      case Place::kMetadata:
        place_ = Place::kRoot;
        return true;
      default:
        place_ = Place::kOutside;
        return true;
    }
  }
  bool start_array(std::size_t) override {
    if (place_ == Place::kTensor && depth_passed_ == 0 && sizes_ != nullptr) {
      place_ = Place::kSizes;
      return true;
    }
    return place_ == Place::kTensor ? StartNested() : Scalar();
  }
  bool end_array() override {
    if (depth_passed_ > 0) return EndNested();
    place_ = Place::kTensor;
    sizes_ = nullptr;
    return true;
  }

  bool key(string_t& text) override {
    if (depth_passed_ > 0) return true;
    switch (place_) {
      case Place::kRoot:
      case Place::kMetadata:
        return Name(text);
      default:
        return Field(text);
    }
  }
  bool string(string_t& text) override {
    if (depth_passed_ > 0) return true;
    if (place_ == Place::kMetadata) {
      if (metadata_.emplace(std::move(entry_), std::move(text)).second) return true;
      return Twice();
    }
    if (place_ == Place::kTensor && is_dtype_) {
      tensors_.back().dtype = DTypeFromName(text);
      has_dtype_ = true;
      is_dtype_ = false;
      return true;
    }
    return Scalar();
  }
  bool number_unsigned(number_unsigned_t number) override {
    if (place_ != Place::kSizes || depth_passed_ > 0) return Scalar();
    if (number > static_cast<uint64_t>(INT64_MAX)) return WrongSizes();
    if (sizes_->size() == kRankMax) {
      return Fail(OfTensor(tensors_.back().name, fmt::format("has more than {} dimensions", kRankMax)));
    }
    sizes_->push_back(static_cast<int64_t>(number));
    return true;
  }
  bool number_integer(number_integer_t) override { return Scalar(); }
  bool number_float(number_float_t, const string_t&) override { return Scalar(); }
  bool boolean(bool) override { return Scalar(); }
  bool null() override { return Scalar(); }
  bool binary(binary_t&) override { return Scalar(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return Fail(Malformed("the header is not a JSON object"));
  }

 private:
  // kSizes: in the array of a shape or of offsets.
  enum class Place { kOutside, kRoot, kMetadata, kTensor, kSizes };

  bool Fail(absl::Status status) {
    status_ = std::move(status);
    return false;
  }
  bool Twice() { return Fail(Malformed("the header names something twice")); }
  bool WrongSizes() {
    return Fail(OfTensor(tensors_.back().name, sizes_ == &offsets_ ? "has no data_offsets, or malformed ones"
                                                                   : "has no shape, or a malformed one"));
  }

  bool Name(std::string& name) {
    if (static_cast<int64_t>(name.size()) > limits_.name_bytes_max) {
      return Fail(absl::ResourceExhaustedError(
          fmt::format("safetensors: the name '{}...' has {} bytes, over safetensors_name_bytes_max = {}; shorten it",
                      name.substr(0, 32), name.size(), limits_.name_bytes_max)));
    }
    const bool is_metadata = place_ == Place::kRoot && name == kMetadataKey;
    if (!is_metadata && ++num_names_ > limits_.tensors_max) {
      return Fail(absl::ResourceExhaustedError(
          fmt::format("safetensors: the header has more tensors and metadata than safetensors_tensors_max = {}; join "
                      "some, or send them as several broadcasts",
                      limits_.tensors_max)));
    }
    (place_ == Place::kRoot ? name_ : entry_) = std::move(name);
    return true;
  }
  bool StartMetadata() {
    place_ = Place::kMetadata;
    return std::exchange(has_metadata_, true) ? Twice() : true;
  }
  bool StartTensor() {
    place_ = Place::kTensor;
    tensors_.push_back({.name = std::move(name_)});
    offsets_.clear();
    has_dtype_ = has_shape_ = has_offsets_ = false;
    is_dtype_ = false;
    sizes_ = nullptr;
    return true;
  }
  bool Field(std::string_view field) {
    is_dtype_ = field == "dtype";
    sizes_ = nullptr;
    if (is_dtype_) return has_dtype_ ? Twice() : true;
    if (field == "shape") {
      sizes_ = &tensors_.back().shape;
      return std::exchange(has_shape_, true) ? Twice() : true;
    }
    if (field == "data_offsets") {
      sizes_ = &offsets_;
      return std::exchange(has_offsets_, true) ? Twice() : true;
    }
    return true;
  }
  bool EndTensor() {
    TensorEntry& tensor = tensors_.back();
    if (!has_dtype_) return Fail(OfTensor(tensor.name, "has no dtype"));
    if (!has_shape_) return Fail(OfTensor(tensor.name, "has no shape, or a malformed one"));
    if (!has_offsets_ || offsets_.size() != 2) {
      return Fail(OfTensor(tensor.name, "has no data_offsets, or malformed ones"));
    }
    tensor.shape.shrink_to_fit();
    tensor.begin = offsets_[0];
    tensor.end = offsets_[1];
    return true;
  }

  // A value that is no object, and not what is expected here.
  bool Scalar() {
    if (depth_passed_ > 0) return true;
    switch (place_) {
      case Place::kOutside:
        return Fail(Malformed("the header is not a JSON object"));
      case Place::kRoot:
        if (name_ == kMetadataKey) return Fail(Malformed("__metadata__ is not an object"));
        return Fail(OfTensor(name_, "is not described by an object"));
      case Place::kMetadata:
        return Fail(Malformed(fmt::format("metadata '{}' is not a string", entry_.substr(0, kQuotedBytes))));
      case Place::kTensor:
        if (is_dtype_) return Fail(OfTensor(tensors_.back().name, "has a dtype that is not a string"));
        return sizes_ == nullptr ? true : WrongSizes();
      case Place::kSizes:
        return WrongSizes();
    }
    return false;
  }
  // An object or array where none is expected: passed over if nobody asks for it.
  bool StartNested() {
    if (depth_passed_ > 0 || (place_ == Place::kTensor && !is_dtype_ && sizes_ == nullptr)) {
      ++depth_passed_;
      return true;
    }
    return Scalar();
  }
  bool EndNested() {
    --depth_passed_;
    return true;
  }

  const SafetensorsLimits& limits_;
  std::vector<TensorEntry>& tensors_;
  std::map<std::string, std::string>& metadata_;
  absl::Status status_;
  Place place_ = Place::kOutside;
  // How deep in a value that is passed over.
  int64_t depth_passed_ = 0;
  int64_t num_names_ = 0;
  bool has_metadata_ = false;
  // The key of the root, or of the metadata, whose value comes.
  std::string name_;
  std::string entry_;
  // Of the tensor whose object this is. `sizes_`: whose array comes; null if none is expected.
  bool is_dtype_ = false;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  std::vector<int64_t>* sizes_ = nullptr;
  std::vector<int64_t> offsets_;
};

// Offsets, which are relative to the data, become those of the file.
absl::Status Place(TensorEntry& tensor, int64_t data_begin, int64_t data_bytes) {
  if (tensor.begin > tensor.end || tensor.end > data_bytes) return OfTensor(tensor.name, "lies outside the file");
  const int64_t bytes = tensor.end - tensor.begin;
  tensor.begin += data_begin;
  tensor.end += data_begin;
  if (tensor.dtype == v1::DTYPE_UNSPECIFIED) return absl::OkStatus();
  const std::optional<int64_t> elements = Product(tensor.shape);
  int64_t needed = 0;
  if (!elements.has_value() || __builtin_mul_overflow(*elements, DTypeSize(tensor.dtype), &needed) || needed != bytes) {
    return OfTensor(tensor.name, "has data_offsets that do not fit its shape and dtype");
  }
  return absl::OkStatus();
}

// The format wants every byte to belong to exactly one tensor.
absl::Status CheckCoverage(const std::vector<TensorEntry>& tensors, int64_t data_begin, int64_t file_bytes) {
  int64_t end = data_begin;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.begin != end) return OfTensor(tensor.name, "leaves a gap before it or overlaps another");
    end = tensor.end;
  }
  return end == file_bytes ? absl::OkStatus() : Malformed("there are bytes behind the last tensor");
}

}  // namespace

absl::StatusOr<int64_t> SafetensorsHeader::TextBytes(std::string_view prefix, int64_t file_bytes,
                                                     const SafetensorsLimits& limits) {
  StateReader in(prefix);
  const absl::StatusOr<uint64_t> size = in.Get<uint64_t>();
  if (!size.ok() || *size > static_cast<uint64_t>(file_bytes - kPrefixBytes)) {
    return Malformed("the file ends before its header does");
  }
  const auto text_bytes = static_cast<int64_t>(*size);
  if (text_bytes <= limits.header_bytes_max) return text_bytes;
  return absl::ResourceExhaustedError(
      fmt::format("safetensors: the header has {} bytes, over safetensors_header_bytes_max = {}; join some tensors, or "
                  "send them as several broadcasts",
                  text_bytes, limits.header_bytes_max));
}

absl::StatusOr<SafetensorsHeader> SafetensorsHeader::Parse(std::string_view text, int64_t file_bytes,
                                                           const SafetensorsLimits& limits) {
  SafetensorsHeader header;
  std::vector<TensorEntry>& tensors = header.tensors_;
  HeaderReader reader(limits, tensors, header.metadata_);
  if (!Json::sax_parse(text.begin(), text.end(), &reader)) return reader.status();
  const int64_t data_begin = kPrefixBytes + static_cast<int64_t>(text.size());
  for (TensorEntry& tensor : tensors) RETURN_IF_ERROR(Place(tensor, data_begin, file_bytes - data_begin));
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  tensors.shrink_to_fit();
  std::vector<uint32_t>& order = header.by_name_;
  order.resize(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return tensors[a].name < tensors[b].name; });
  // Readers that keep the first of two, and those that keep the last, would see different files.
  const auto twice = std::adjacent_find(order.begin(), order.end(),
                                        [&](uint32_t a, uint32_t b) { return tensors[a].name == tensors[b].name; });
  if (twice != order.end()) return OfTensor(tensors[*twice].name, "is there twice");
  RETURN_IF_ERROR(CheckCoverage(tensors, data_begin, file_bytes));
  return header;
}

absl::StatusOr<const TensorEntry*> SafetensorsHeader::Find(std::string_view name) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [&](uint32_t at, std::string_view wanted) { return tensors_[at].name < wanted; });
  if (found != by_name_.end() && tensors_[*found].name == name) return &tensors_[*found];
  std::vector<std::string_view> names;
  for (size_t i = 0; i < std::min(tensors_.size(), kListedMax); ++i) {
    names.push_back(std::string_view(tensors_[i].name).substr(0, kQuotedBytes));
  }
  const size_t num_others = tensors_.size() - names.size();
  return absl::NotFoundError(fmt::format("there is no tensor '{}'; the file has {}{}", name.substr(0, kQuotedBytes),
                                         fmt::join(names, ", "),
                                         num_others == 0 ? "" : fmt::format(" and {} others", num_others)));
}

int64_t SafetensorsHeader::memory_bytes() const {
  // What a string or vector takes beyond itself, and a node of a map beside its strings.
  constexpr size_t kBlock = 16;
  constexpr size_t kNode = 64;
  size_t bytes = sizeof *this + tensors_.capacity() * sizeof(TensorEntry) + by_name_.capacity() * sizeof(uint32_t);
  for (const TensorEntry& tensor : tensors_) {
    bytes += tensor.name.capacity() + tensor.shape.capacity() * sizeof(int64_t) + 2 * kBlock;
  }
  for (const auto& [key, value] : metadata_) {
    bytes += kNode + 2 * (sizeof(std::string) + kBlock) + key.capacity() + value.capacity();
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace sheaf
