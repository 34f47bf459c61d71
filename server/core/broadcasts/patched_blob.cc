#include "server/core/broadcasts/patched_blob.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "aggregation/wire/safetensors_patch.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// Numbers of rows that are read together.
constexpr int64_t kRowsPerRead = 1 << 16;

// Calls take(position of the first, rows) with the rows that the patch has of a tensor.
template <typename Take>
absl::Status ForEachRows(const BlobView& patch, const PatchedTensor& patched, const Take& take) {
  const int64_t count = patched.indices->num_rows();
  std::string bytes;
  std::vector<int64_t> rows;
  for (int64_t first = 0; first < count; first += kRowsPerRead) {
    const auto some = std::min(kRowsPerRead, count - first);
    constexpr auto kSize = static_cast<int64_t>(sizeof(int64_t));
    const ByteRange range = {.offset = patched.indices->begin + first * kSize, .length = some * kSize};
    bytes.clear();
    RETURN_IF_ERROR(patch.Append({&range, 1}, bytes));
    rows.resize(static_cast<size_t>(some));
    std::memcpy(rows.data(), bytes.data(), bytes.size());
    RETURN_IF_ERROR(take(first, rows));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPatch(const BlobView& patch, const SafetensorsHeader& header, const SafetensorsHeader& base) {
  ASSIGN_OR_RETURN(const std::vector<PatchedTensor> patched, FitPatch(header, base));
  for (const PatchedTensor& each : patched) {
    if (each.indices == nullptr) continue;
    int64_t before = -1;
    RETURN_IF_ERROR(ForEachRows(patch, each, [&](int64_t, const std::vector<int64_t>& rows) {
      const absl::Status checked = CheckPatchRows(*each.tensor, rows, before);
      before = rows.back();
      return checked;
    }));
  }
  return absl::OkStatus();
}

int64_t CountPatchRows(const SafetensorsHeader& patch, const SafetensorsHeader& base) {
  const auto patched = FitPatch(patch, base);
  int64_t count = 0;
  if (!patched.ok()) return count;
  for (const PatchedTensor& each : *patched) count += each.indices == nullptr ? 0 : each.indices->num_rows();
  return count;
}

// Joins what lies side by side in one layer, and reads what of one layer comes together.
class PatchedBlob::Reader {
 public:
  Reader(const std::vector<std::shared_ptr<const BlobView>>& layers, std::string& to) : layers_(layers), to_(to) {}

  absl::Status Read(const Place& place, int64_t length) {
    if (length == 0) return absl::OkStatus();
    if (count_ > 0 && layer_ == place.layer) {
      ByteRange& last = ranges_[count_ - 1];
      if (last.offset + last.length == place.offset) {
        last.length += length;
        return absl::OkStatus();
      }
    }
    if (count_ == ranges_.size() || layer_ != place.layer) RETURN_IF_ERROR(Flush());
    layer_ = place.layer;
    ranges_[count_++] = {.offset = place.offset, .length = length};
    return absl::OkStatus();
  }
  absl::Status Flush() {
    const size_t count = std::exchange(count_, 0);
    if (count == 0) return absl::OkStatus();
    return layers_[static_cast<size_t>(layer_)]->Append({ranges_.data(), count}, to_);
  }

 private:
  const std::vector<std::shared_ptr<const BlobView>>& layers_;
  std::string& to_;
  int32_t layer_ = 0;
  size_t count_ = 0;
  std::array<ByteRange, 256> ranges_;
};

absl::StatusOr<std::shared_ptr<const PatchedBlob>> PatchedBlob::Open(const SafetensorsBlob& whole,
                                                                     std::span<const SafetensorsBlob> patches) {
  std::shared_ptr<PatchedBlob> blob(new PatchedBlob);
  blob->layers_.push_back(whole.bytes);
  for (const SafetensorsBlob& patch : patches) {
    blob->layers_.push_back(patch.bytes);
    RETURN_IF_ERROR(blob->AddPatch(patch, *whole.header));
  }
  for (Tensor& tensor : blob->tensors_) {
    std::vector<PatchedRow>& rows = tensor.rows;
    // Of a row that several patches have, the last one's.
    std::sort(rows.begin(), rows.end(), [](const PatchedRow& a, const PatchedRow& b) {
      return a.row != b.row ? a.row < b.row : a.place.layer > b.place.layer;
    });
    const auto same = [](const PatchedRow& a, const PatchedRow& b) { return a.row == b.row; };
    rows.erase(std::unique(rows.begin(), rows.end(), same), rows.end());
    rows.shrink_to_fit();
  }
  return std::shared_ptr<const PatchedBlob>(std::move(blob));
}

absl::Status PatchedBlob::AddPatch(const SafetensorsBlob& patch, const SafetensorsHeader& base) {
  const auto layer = static_cast<int32_t>(layers_.size() - 1);
  ASSIGN_OR_RETURN(const std::vector<PatchedTensor> patched, FitPatch(*patch.header, base));
  for (const PatchedTensor& each : patched) {
    const TensorEntry& entry = *each.tensor;
    const auto found = std::lower_bound(tensors_.begin(), tensors_.end(), entry.begin,
                                        [](const Tensor& tensor, int64_t begin) { return tensor.begin < begin; });
    // No byte of it is read, and the next tensor may begin where it does.
    if (entry.begin == entry.end) continue;
    const bool is_new = found == tensors_.end() || found->begin != entry.begin;
    Tensor& tensor = is_new ? *tensors_.insert(found, {.begin = entry.begin,
                                                       .end = entry.end,
                                                       .row_bytes = entry.row_bytes(),
                                                       .whole = {.layer = 0, .offset = entry.begin},
                                                       .rows = {}})
                            : *found;
    if (each.indices == nullptr) {
      tensor.whole = {.layer = layer, .offset = each.values->begin};
      tensor.rows.clear();
      continue;
    }
    int64_t before = -1;
    const auto add = [&](int64_t first, const std::vector<int64_t>& rows) {
      RETURN_IF_ERROR(CheckPatchRows(entry, rows, before));
      before = rows.back();
      int64_t offset = each.values->begin + first * tensor.row_bytes;
      for (const int64_t row : rows) {
        tensor.rows.push_back({.row = row, .place = {.layer = layer, .offset = offset}});
        offset += tensor.row_bytes;
      }
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(ForEachRows(*patch.bytes, each, add));
  }
  return absl::OkStatus();
}

absl::Status PatchedBlob::ReadTensor(const Tensor& tensor, const ByteRange& range, Reader& reader) const {
  int64_t at = range.offset - tensor.begin;
  const int64_t end = at + range.length;
  const auto read_whole = [&](int64_t until) {
    const Place place = {.layer = tensor.whole.layer, .offset = tensor.whole.offset + at};
    const int64_t length = until - std::exchange(at, until);
    return reader.Read(place, length);
  };
  if (!tensor.rows.empty()) {
    auto row = std::lower_bound(tensor.rows.begin(), tensor.rows.end(), at / tensor.row_bytes,
                                [](const PatchedRow& patched, int64_t number) { return patched.row < number; });
    for (; row != tensor.rows.end() && row->row * tensor.row_bytes < end; ++row) {
      const int64_t begin = row->row * tensor.row_bytes;
      if (at < begin) RETURN_IF_ERROR(read_whole(begin));
      const Place place = {.layer = row->place.layer, .offset = row->place.offset + at - begin};
      const int64_t until = std::min(begin + tensor.row_bytes, end);
      RETURN_IF_ERROR(reader.Read(place, until - at));
      at = until;
    }
  }
  return read_whole(end);
}

absl::Status PatchedBlob::Append(std::span<const ByteRange> ranges, std::string& to) const {
  const size_t size_before = to.size();
  size_t size_after = size_before;
  for (const ByteRange& range : ranges) size_after += static_cast<size_t>(range.length);
  if (size_after > to.capacity()) to.reserve(std::max(size_after, 2 * to.capacity()));
  Reader reader(layers_, to);
  absl::Status status;
  for (const ByteRange& range : ranges) {
    int64_t at = range.offset;
    const int64_t end = range.offset + range.length;
    auto tensor = std::upper_bound(tensors_.begin(), tensors_.end(), at,
                                   [](int64_t offset, const Tensor& patched) { return offset < patched.end; });
    for (; status.ok() && tensor != tensors_.end() && tensor->begin < end; ++tensor) {
      const int64_t begin = std::max(at, tensor->begin);
      status = reader.Read({.layer = 0, .offset = at}, begin - at);
      at = std::min(tensor->end, end);
      if (status.ok()) status = ReadTensor(*tensor, {.offset = begin, .length = at - begin}, reader);
    }
    if (status.ok()) status = reader.Read({.layer = 0, .offset = at}, end - at);
    if (!status.ok()) break;
  }
  if (status.ok()) status = reader.Flush();
  if (!status.ok()) to.resize(size_before);
  return status;
}

absl::Status PatchedBlob::Visit(const std::function<absl::Status(std::string_view bytes)>& read) const {
  const ByteRange all = {.offset = 0, .length = size_bytes()};
  std::string bytes;
  RETURN_IF_ERROR(Append({&all, 1}, bytes));
  return read(bytes);
}

int64_t PatchedBlob::memory_bytes() const {
  auto bytes = static_cast<int64_t>(sizeof *this + layers_.capacity() * sizeof layers_[0] +
                                    tensors_.capacity() * sizeof(Tensor));
  for (const Tensor& tensor : tensors_) bytes += static_cast<int64_t>(tensor.rows.capacity() * sizeof(PatchedRow));
  return bytes;
}

}  // namespace sheaf
