#include "aggregation/operators/sparse_sum.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "aggregation/operators.h"
#include "aggregation/operators/weight_sum.h"
#include "aggregation/safetensors.h"
#include "base/check.h"

namespace sheaf {
namespace {

class SparseSum final : public OutputAccumulator {
 public:
  explicit SparseSum(const OutputLayout& output)
      : OutputAccumulator(output), sums_(MakeSumVector(output.dtype, std::nullopt)), slot_weights_(v1::FLOAT32) {}

  int64_t memory_bytes() const override {
    return sums_->memory_bytes() + slot_weights_.memory_bytes() +
           static_cast<int64_t>(slots_.capacity() * 17 + keys_.size() * 24);
  }

 protected:
  void DoAccumulate(const CheckedValue& value) override;
  void DoMerge(const OutputAccumulator& other) override;
  void DoWrite(StateWriter& out) const override;
  absl::Status DoRead(StateReader& in, StateOrigin origin) override;
  absl::Status DoReport(AggregateReport& report, v1::OutputSummary& summary) const override;

 private:
  // What Report releases: slots in order of coordinate, and one row of values for each.
  struct Release {
    std::vector<int64_t> slots;
    std::string rows;
  };

  bool has_slot_weights() const { return layout().op->divisor == Divisor::kTouchingWeight; }
  int64_t row_bytes() const { return layout().width * DTypeSize(layout().dtype); }
  int64_t SlotOf(int64_t key);
  std::vector<int64_t> SlotsByKey() const;
  std::optional<double> DivisorOf(int64_t slot) const;
  absl::Status ReleaseRows(Release& release) const;
  NamedTensor IndicesTensor(const Release& release) const;
  NamedTensor DenseTensor(const Release& release) const;

  absl::flat_hash_map<int64_t, int64_t> slots_;
  // Per slot: its coordinate, how many contributions touched it, and in which fold (counted from 1) it was last
  // touched.
  std::vector<int64_t> keys_;
  std::vector<int64_t> contributors_;
  std::vector<int64_t> last_fold_;
  int64_t num_folds_ = 0;
  // Slot s has the elements s * width and on.
  std::unique_ptr<SumVector> sums_;
  ExactSum slot_weights_;
  WeightSum weight_;
};

int64_t SparseSum::SlotOf(int64_t key) {
  const auto [found, is_new] = slots_.try_emplace(key, static_cast<int64_t>(keys_.size()));
  if (is_new) {
    keys_.push_back(key);
    contributors_.push_back(0);
    last_fold_.push_back(0);
    const int64_t num_slots = static_cast<int64_t>(keys_.size());
    sums_->Resize(num_slots * layout().width);
    if (has_slot_weights()) slot_weights_.Resize(num_slots);
  }
  return found->second;
}

void SparseSum::DoAccumulate(const CheckedValue& value) {
  const float weight = layout().op->is_weighted() ? value.weight : 1.0f;
  ++num_folds_;
  for (size_t row = 0; row < value.keys.size(); ++row) {
    const int64_t slot = SlotOf(value.keys[row]);
    sums_->Add(slot * layout().width, value.data.data() + static_cast<int64_t>(row) * row_bytes(), layout().width,
               weight);
    int64_t& last_fold = last_fold_[static_cast<size_t>(slot)];
    if (last_fold == num_folds_) continue;
    last_fold = num_folds_;
    ++contributors_[static_cast<size_t>(slot)];
    if (has_slot_weights()) slot_weights_.Add(slot, reinterpret_cast<const char*>(&weight), 1, 1.0f);
  }
  if (layout().op->divisor == Divisor::kWeight) weight_.Add(weight);
}

void SparseSum::DoMerge(const OutputAccumulator& other) {
  const auto& from = dynamic_cast<const SparseSum&>(other);
  for (size_t s = 0; s < from.keys_.size(); ++s) {
    const int64_t from_slot = static_cast<int64_t>(s);
    const int64_t slot = SlotOf(from.keys_[s]);
    sums_->AddFrom(slot * layout().width, *from.sums_, from_slot * layout().width, layout().width);
    contributors_[static_cast<size_t>(slot)] += from.contributors_[s];
    if (has_slot_weights()) slot_weights_.AddFrom(slot, from.slot_weights_, from_slot, 1);
  }
  weight_.Merge(from.weight_);
}

std::vector<int64_t> SparseSum::SlotsByKey() const {
  // Sorting pairs, not slots that look up their keys, keeps the comparisons in cache.
  std::vector<std::pair<int64_t, int64_t>> pairs;
  pairs.reserve(keys_.size());
  for (const int64_t key : keys_) pairs.emplace_back(key, static_cast<int64_t>(pairs.size()));
  std::sort(pairs.begin(), pairs.end());
  std::vector<int64_t> order;
  order.reserve(pairs.size());
  for (const auto& [key, slot] : pairs) order.push_back(slot);
  return order;
}

void SparseSum::DoWrite(StateWriter& out) const {
  const std::vector<int64_t> order = SlotsByKey();
  out.Put<int64_t>(static_cast<int64_t>(order.size()));
  std::vector<ElementRun> rows, weights;
  for (const int64_t slot : order) {
    out.Put(keys_[static_cast<size_t>(slot)]);
    out.Put(contributors_[static_cast<size_t>(slot)]);
    rows.push_back({slot * layout().width, layout().width});
    weights.push_back({slot, 1});
  }
  if (has_slot_weights()) slot_weights_.Write(weights, out);
  if (layout().op->divisor == Divisor::kWeight) weight_.Write(out);
  sums_->Write(rows, out);
}

absl::Status SparseSum::DoRead(StateReader& in, StateOrigin origin) {
  ASSIGN_OR_RETURN(const int64_t num_slots, in.Get<int64_t>());
  if (!in.Has(num_slots, 2 * sizeof(int64_t))) return StateReader::Missing();
  int64_t num_elements = 0;
  // Each chunk of 1024 sums takes at least a byte: what is announced is there before anything grows.
  if (__builtin_mul_overflow(num_slots, layout().width, &num_elements) || !in.Has(num_elements / 1024, 1)) {
    return StateReader::Missing();
  }
  int64_t last_key = -1;
  for (int64_t i = 0; i < num_slots; ++i) {
    ASSIGN_OR_RETURN(const int64_t key, in.Get<int64_t>());
    ASSIGN_OR_RETURN(const int64_t contributors, in.Get<int64_t>());
    if (key <= last_key || key >= layout().num_coordinates || contributors < 1 || contributors > num_clients()) {
      return absl::DataLossError("the state's coordinates are malformed");
    }
    last_key = key;
    slots_.emplace(key, i);
    keys_.push_back(key);
    contributors_.push_back(contributors);
    last_fold_.push_back(0);
  }
  if (has_slot_weights()) {
    slot_weights_.Resize(num_slots);
    RETURN_IF_ERROR(slot_weights_.Read(in, origin));
    bool is_positive = !slot_weights_.has_non_finite();
    for (int64_t slot = 0; slot < num_slots; ++slot) is_positive = is_positive && slot_weights_.RoundToDouble(slot) > 0;
    if (!is_positive) return absl::DataLossError("the state's sums of weights are malformed");
  }
  if (layout().op->divisor == Divisor::kWeight) RETURN_IF_ERROR(weight_.Read(in, origin, num_clients() > 0));
  sums_->Resize(num_elements);
  return sums_->Read(in, origin);
}

std::optional<double> SparseSum::DivisorOf(int64_t slot) const {
  switch (layout().op->divisor) {
    case Divisor::kNone:
      return std::nullopt;
    case Divisor::kTouchingCount:
      return static_cast<double>(contributors_[static_cast<size_t>(slot)]);
    case Divisor::kTouchingWeight:
      return slot_weights_.RoundToDouble(slot);
    case Divisor::kCount:
      return static_cast<double>(num_clients());
    case Divisor::kWeight:
      return weight_.value();
  }
  return std::nullopt;
}

// True if every element is zero, of either sign.
bool IsZeroRow(const char* row, int64_t width, v1::DType dtype) {
  const int64_t size = DTypeSize(dtype);
  const bool is_float = dtype == v1::FLOAT32 || dtype == v1::FLOAT64;
  for (int64_t i = 0; i < width; ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, row + i * size, static_cast<size_t>(size));
    if (is_float) bits &= ~(uint64_t{1} << (8 * size - 1));
    if (bits != 0) return false;
  }
  return true;
}

absl::Status SparseSum::ReleaseRows(Release& release) const {
  std::string row(static_cast<size_t>(row_bytes()), '\0');
  for (const int64_t slot : SlotsByKey()) {
    if (contributors_[static_cast<size_t>(slot)] < layout().min_contributors) continue;
    const int64_t num_fitting = sums_->Round(slot * layout().width, layout().width, DivisorOf(slot), row.data());
    if (num_fitting < layout().width) return OutOfRange(keys_[static_cast<size_t>(slot)], num_fitting);
    if (layout().drop_zeros && IsZeroRow(row.data(), layout().width, layout().dtype)) continue;
    release.slots.push_back(slot);
    release.rows += row;
  }
  return absl::OkStatus();
}

NamedTensor SparseSum::IndicesTensor(const Release& release) const {
  NamedTensor tensor{.name = layout().name + ".indices",
                     .dtype = v1::INT64,
                     .shape = {static_cast<int64_t>(release.slots.size()), layout().index_dims},
                     .data = {}};
  std::vector<int64_t> position(static_cast<size_t>(layout().index_dims));
  for (const int64_t slot : release.slots) {
    int64_t key = keys_[static_cast<size_t>(slot)];
    for (size_t d = position.size(); d-- > 0; key /= layout().shape[d]) position[d] = key % layout().shape[d];
    tensor.data.append(reinterpret_cast<const char*>(position.data()), position.size() * sizeof(int64_t));
  }
  return tensor;
}

NamedTensor SparseSum::DenseTensor(const Release& release) const {
  NamedTensor tensor{.name = layout().name, .dtype = layout().dtype, .shape = layout().shape, .data = {}};
  tensor.data.resize(static_cast<size_t>(layout().num_coordinates * row_bytes()));
  const size_t size = static_cast<size_t>(row_bytes());
  for (size_t i = 0; i < release.slots.size(); ++i) {
    const size_t key = static_cast<size_t>(keys_[static_cast<size_t>(release.slots[i])]);
    if (size > 0) std::memcpy(&tensor.data[key * size], &release.rows[i * size], size);
  }
  return tensor;
}

absl::Status SparseSum::DoReport(AggregateReport& report, v1::OutputSummary& summary) const {
  Release release;
  RETURN_IF_ERROR(ReleaseRows(release));
  summary.set_touched(static_cast<int64_t>(keys_.size()));
  summary.set_released(static_cast<int64_t>(release.slots.size()));
  if (layout().op->divisor == Divisor::kCount) summary.set_divisor_value(static_cast<double>(num_clients()));
  if (layout().op->divisor == Divisor::kWeight) summary.set_divisor_value(weight_.value());
  if (layout().op->releases_dense) {
    report.tensors.push_back(DenseTensor(release));
    return absl::OkStatus();
  }
  report.tensors.push_back(IndicesTensor(release));
  std::vector<int64_t> values_shape = {static_cast<int64_t>(release.slots.size())};
  values_shape.insert(values_shape.end(), layout().trailing_dims().begin(), layout().trailing_dims().end());
  report.tensors.push_back({layout().name + ".values", layout().dtype, values_shape, std::move(release.rows)});
  const std::string shape_bytes(reinterpret_cast<const char*>(layout().shape.data()),
                                layout().shape.size() * sizeof(int64_t));
  report.tensors.push_back(
      {layout().name + ".dense_shape", v1::INT64, {static_cast<int64_t>(layout().shape.size())}, shape_bytes});
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<OutputAccumulator> MakeSparseSum(const OutputLayout& layout) {
  return std::make_unique<SparseSum>(layout);
}

}  // namespace sheaf
