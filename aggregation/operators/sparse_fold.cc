#include "aggregation/operators/sparse_fold.h"

#include <cstring>
#include <utility>
#include <vector>

#include "aggregation/cell_stream.h"
#include "aggregation/operators.h"
#include "aggregation/operators/weight_sum.h"
#include "aggregation/row_release.h"
#include "aggregation/safetensors.h"
#include "aggregation/sparse/sparse_store.h"

namespace sheaf {
namespace {

class SparseFold final : public OutputAccumulator {
 public:
  explicit SparseFold(const OutputLayout& output) : OutputAccumulator(output), store_(MakeSparseStore(layout())) {}

  int64_t memory_bytes() const override { return store_->memory_bytes(); }

 protected:
  void DoAccumulate(const CheckedValue& value) override;
  void DoMerge(const OutputAccumulator& other) override;
  void DoWrite(StateWriter& out) const override;
  absl::Status DoRead(StateReader& in, StateOrigin origin) override;
  absl::Status DoReport(AggregateReport& report, v1::OutputSummary& summary) const override;

 private:
  // Indices, or nothing for a dense result, and rows.
  struct Released {
    std::string indices;
    std::string rows;
    int64_t num_rows = 0;
  };

  bool has_weight() const { return layout().op->divisor == Divisor::kWeight; }
  bool has_slot_weights() const { return layout().op->divisor == Divisor::kTouchingWeight; }
  bool is_counted() const { return layout().counts_contributors() || has_slot_weights(); }
  CellType weights_type() const {
    const v1::Numerics numerics = layout().numerics == v1::EXACT ? v1::EXACT : v1::F64;
    return {.reduction = Reduction::kSum, .dtype = v1::FLOAT64, .numerics = numerics};
  }
  std::optional<double> DivisorOfAll() const;
  absl::Status ReadWeights(std::span<const int64_t> keys, StateReader& in, StateOrigin origin);
  absl::Status Release(Released& released) const;
  void AppendIndices(std::span<const int64_t> keys, std::string& indices) const;

  // Const methods fold what waits in it: that changes no value.
  std::unique_ptr<SparseStore> store_;
  WeightSum weight_;
};

void SparseFold::DoAccumulate(const CheckedValue& value) {
  const float weight = layout().op->is_weighted() ? value.weight : 1.0f;
  store_->Accumulate(value, weight);
  if (has_weight()) weight_.Add(weight);
}

void SparseFold::DoMerge(const OutputAccumulator& other) {
  const auto& from = dynamic_cast<const SparseFold&>(other);
  store_->Expect(from.store_->num_touched());
  from.store_->ForEachRun([this](const SlotRun& run) {
    for (size_t i = 0; i < run.keys.size(); ++i) {
      const SparseStore::Place place = store_->FindOrAdd(run.keys[i]);
      place.columns->AddFrom(place.slot, *run.columns, run.slots[i]);
    }
  });
  weight_.Merge(from.weight_);
}

void SparseFold::DoWrite(StateWriter& out) const {
  out.Put<int64_t>(store_->num_touched());
  store_->ForEachRun([&](const SlotRun& run) { out.PutArray(run.keys.data(), static_cast<int64_t>(run.keys.size())); });
  if (is_counted()) {
    store_->ForEachRun([&](const SlotRun& run) {
      for (const uint32_t slot : run.slots) out.Put(run.columns->contributors[slot]);
    });
  }
  if (has_slot_weights()) {
    CellStreamWriter weights(weights_type(), out);
    store_->ForEachRun([&](const SlotRun& run) {
      for (const uint32_t slot : run.slots) weights.Append(*run.columns->weights, slot, 1);
    });
    weights.Finish();
  }
  if (has_weight()) weight_.Write(out);
  CellStreamWriter cells(layout().cell_type(), out);
  const int64_t width = layout().width;
  store_->ForEachRun([&](const SlotRun& run) {
    for (const uint32_t slot : run.slots) cells.Append(*run.columns->cells, slot * width, width);
  });
  cells.Finish();
}

absl::Status SparseFold::DoRead(StateReader& in, StateOrigin origin) {
  ASSIGN_OR_RETURN(const int64_t num_slots, in.Get<int64_t>());
  if (!in.Has(num_slots, sizeof(int64_t))) return StateReader::Missing();
  // Each chunk of cells takes at least a byte: what is announced is there before anything grows.
  int64_t num_cells = 0;
  if (__builtin_mul_overflow(num_slots, layout().width, &num_cells) || !in.Has(num_cells / kCellChunk, 1)) {
    return StateReader::Missing();
  }
  std::vector<int64_t> keys(static_cast<size_t>(num_slots));
  RETURN_IF_ERROR(in.GetArray(keys.data(), num_slots));
  int64_t last_key = -1;
  for (const int64_t key : keys) {
    if (key <= last_key || key >= layout().num_coordinates) {
      return absl::DataLossError("the state's coordinates are malformed");
    }
    last_key = key;
  }
  store_->Expect(num_slots);
  for (const int64_t key : keys) {
    const SparseStore::Place place = store_->FindOrAdd(key);
    if (!is_counted()) continue;
    ASSIGN_OR_RETURN(const int64_t contributors, in.Get<int64_t>());
    if (contributors < 1 || contributors > num_clients()) {
      return absl::DataLossError("the state's numbers of contributors are malformed");
    }
    place.columns->contributors[static_cast<size_t>(place.slot)] = contributors;
  }
  if (num_slots > 0 && num_clients() == 0) return absl::DataLossError("the state has coordinates that nobody touched");
  if (has_slot_weights()) RETURN_IF_ERROR(ReadWeights(keys, in, origin));
  if (has_weight()) RETURN_IF_ERROR(weight_.Read(in, origin, num_clients() > 0));
  CellStreamReader cells(layout().cell_type(), num_cells, origin, in);
  for (const int64_t key : keys) {
    const SparseStore::Place place = store_->FindOrAdd(key);
    RETURN_IF_ERROR(cells.Take(layout().width, *place.columns->cells, place.slot * layout().width));
  }
  return absl::OkStatus();
}

absl::Status SparseFold::ReadWeights(std::span<const int64_t> keys, StateReader& in, StateOrigin origin) {
  CellStreamReader weights(weights_type(), static_cast<int64_t>(keys.size()), origin, in);
  for (const int64_t key : keys) {
    const SparseStore::Place place = store_->FindOrAdd(key);
    RETURN_IF_ERROR(weights.Take(1, *place.columns->weights, place.slot));
    double weight = 0;
    place.columns->weights->Round(place.slot, 1, {}, reinterpret_cast<char*>(&weight));
    // Not a number fails, too.
    if (!(weight > 0 && weight < std::numeric_limits<double>::infinity())) {
      return absl::DataLossError("the state's sums of weights are malformed");
    }
  }
  return absl::OkStatus();
}

std::optional<double> SparseFold::DivisorOfAll() const {
  if (layout().op->divisor == Divisor::kCount) return static_cast<double>(num_clients());
  if (layout().op->divisor == Divisor::kWeight) return weight_.value();
  return std::nullopt;
}

void SparseFold::AppendIndices(std::span<const int64_t> keys, std::string& indices) const {
  const size_t dims = static_cast<size_t>(layout().index_dims);
  if (dims == 1) return void(indices.append(reinterpret_cast<const char*>(keys.data()), keys.size_bytes()));
  for (int64_t key : keys) {
    int64_t position[kRankMax];
    for (size_t d = dims; d-- > 1; key /= layout().shape[d]) position[d] = key % layout().shape[d];
    if (dims > 0) position[0] = key;
    indices.append(reinterpret_cast<const char*>(position), dims * sizeof(int64_t));
  }
}

absl::Status SparseFold::Release(Released& released) const {
  RowRelease rows(layout(), DivisorOfAll());
  const size_t row_bytes = rows.row_bytes();
  if (layout().releases_dense) {
    released.rows.resize(static_cast<size_t>(layout().num_coordinates) * row_bytes);
  } else {
    const size_t num_touched = static_cast<size_t>(store_->num_touched());
    released.rows.reserve(num_touched * row_bytes);
    released.indices.reserve(num_touched * static_cast<size_t>(layout().index_dims) * sizeof(int64_t));
    AdviseHugePages(released.rows.data(), released.rows.capacity());
    AdviseHugePages(released.indices.data(), released.indices.capacity());
  }
  absl::Status status;
  std::vector<int64_t> keys;
  store_->ForEachRun([&](const SlotRun& run) {
    if (!status.ok()) return;
    if (const auto misfit = rows.Take(*run.columns, run.slots)) {
      status = OutOfRange(run.keys[misfit->position], misfit->offset);
      return;
    }
    std::span<const int64_t> kept = run.keys;
    if (!rows.is_all_kept()) {
      keys.clear();
      for (const uint32_t position : rows.kept()) keys.push_back(run.keys[position]);
      kept = keys;
    }
    released.num_rows += rows.num_kept();
    if (!layout().releases_dense) {
      AppendIndices(kept, released.indices);
      released.rows.append(rows.rows());
      return;
    }
    for (size_t i = 0; i < kept.size() && row_bytes > 0; ++i) {
      std::memcpy(&released.rows[static_cast<size_t>(kept[i]) * row_bytes], rows.rows().data() + i * row_bytes,
                  row_bytes);
    }
  });
  return status;
}

absl::Status SparseFold::DoReport(AggregateReport& report, v1::OutputSummary& summary) const {
  Released released;
  RETURN_IF_ERROR(Release(released));
  summary.set_touched(store_->num_touched());
  summary.set_released(released.num_rows);
  summary.set_divisor_value(DivisorOfAll().value_or(0));
  report.folds.push_back(store_->counters());
  report.folds.back().set_output(layout().name);
  const std::string& name = layout().name;
  const std::vector<int64_t>& shape = layout().shape;
  if (layout().releases_dense) {
    report.tensors.push_back({name, layout().released_dtype(), shape, std::move(released.rows)});
    return absl::OkStatus();
  }
  std::vector<int64_t> values_shape = {released.num_rows};
  values_shape.insert(values_shape.end(), layout().trailing_dims().begin(), layout().trailing_dims().end());
  report.tensors.push_back(
      {name + ".indices", v1::INT64, {released.num_rows, layout().index_dims}, std::move(released.indices)});
  report.tensors.push_back({name + ".values", layout().released_dtype(), values_shape, std::move(released.rows)});
  const std::string shape_bytes(reinterpret_cast<const char*>(shape.data()), shape.size() * sizeof(int64_t));
  report.tensors.push_back({name + ".dense_shape", v1::INT64, {static_cast<int64_t>(shape.size())}, shape_bytes});
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<OutputAccumulator> MakeSparseFold(const OutputLayout& layout) {
  return std::make_unique<SparseFold>(layout);
}

}  // namespace sheaf
