#include "aggregation/operators/sparse_accumulator.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "aggregation/cells/cell_stream.h"
#include "aggregation/memory/huge_pages.h"
#include "aggregation/operators/row_release.h"
#include "aggregation/operators/weight_sum.h"
#include "aggregation/sparse/make_sparse_store.h"
#include "aggregation/wire/tensor.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// Bytes of a dense result released at once, about.
constexpr size_t kPieceBytes = 64 << 10;

class SparseAccumulator final : public OutputAccumulator {
 public:
  explicit SparseAccumulator(const OutputLayout& output)
      : OutputAccumulator(output), store_(MakeSparseStore(layout())) {}

  int64_t memory_bytes() const override { return store_->memory_bytes(); }
  void Settle() override { store_->num_touched(); }
  int most_bins() const override { return store_->most_bins(); }

 protected:
  void DoAccumulate(const CheckedValue& value) override;
  void DoMerge(const OutputAccumulator& other) override;
  void DoWrite(StateWriter& out) const override;
  absl::Status DoRead(StateReader& in, StateOrigin origin) override;
  absl::Status DoRelease(AggregateRelease& release, v1::OutputSummary& summary) const override;

 private:
  // Which of the touched coordinates are released.
  struct Selection {
    int64_t num_kept = 0;
    // Of each, in ascending order; null if all are.
    std::shared_ptr<const std::vector<bool>> is_kept;
  };

  bool has_weight() const { return layout().op->divisor == Divisor::kWeight; }
  bool has_slot_weights() const { return layout().op->divisor == Divisor::kTouchingWeight; }
  bool is_counted() const { return layout().counts_contributors() || has_slot_weights(); }
  CellType weights_type() const {
    const v1::Numerics numerics = layout().numerics == v1::EXACT ? v1::EXACT : v1::F64;
    return {.reduction = Reduction::kSum, .dtype = v1::FLOAT64, .numerics = numerics};
  }
  std::optional<ExactDivisor> DivisorOfAll() const;
  absl::Status ReadWeights(std::span<const int64_t> keys, StateReader& in, StateOrigin origin);
  absl::StatusOr<Selection> Select() const;
  // Everything there is, in ascending order, with the rows released of it. OUT_OF_RANGE if a sum does not fit.
  absl::Status ForEachRun(const std::function<absl::Status(const SlotRun& run, const RowRelease& rows)>& visit) const;
  absl::Status WriteIndices(const Selection& selection, const ByteSink& take) const;
  absl::Status WriteIndicesMakingValues(const ByteSink& take, std::string& values) const;
  absl::Status WriteValues(const ByteSink& take) const;
  absl::Status WriteDenseRows(const ByteSink& take) const;
  absl::Status TakeIndices(std::span<const int64_t> keys, const ByteSink& take) const;

  // Const methods fold what waits in it: that changes no value.
  std::unique_ptr<SparseStore> store_;
  WeightSum weight_;
};

void SparseAccumulator::DoAccumulate(const CheckedValue& value) {
  const float weight = layout().op->is_weighted() ? value.weight : 1.0f;
  store_->Accumulate(value, weight);
  if (has_weight()) weight_.Add(weight);
}

void SparseAccumulator::DoMerge(const OutputAccumulator& other) {
  const auto& from = dynamic_cast<const SparseAccumulator&>(other);
  store_->Expect(from.store_->num_touched());
  from.store_->ForEachRun([this](const SlotRun& run) {
    for (size_t i = 0; i < run.keys.size(); ++i) {
      const SparseStore::Place place = store_->FindOrAdd(run.keys[i]);
      place.columns->AddFrom(place.slot, *run.columns, run.slots[i]);
    }
  });
  weight_.Merge(from.weight_);
}

// Column by column, each in order of coordinate: the coordinates, who touched them, the weights, the cells. So the
// bytes say nothing of the order of arrival, nor of how the store keeps its values.
void SparseAccumulator::DoWrite(StateWriter& out) const {
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

absl::Status SparseAccumulator::DoRead(StateReader& in, StateOrigin origin) {
  ASSIGN_OR_RETURN(const int64_t num_slots, in.Get<int64_t>());
  if (!in.Has(num_slots, sizeof(int64_t))) return StateReader::Missing();
  // Each chunk of cells takes at least a byte: what is announced is there before anything grows.
  int64_t num_cells = 0;
  if (__builtin_mul_overflow(num_slots, layout().width, &num_cells) || !in.Has(num_cells / kCellChunk, 1)) {
    return StateReader::Missing();
  }
  std::vector<int64_t> keys(static_cast<size_t>(num_slots));
  RETURN_IF_ERROR(in.GetArray(keys.data(), num_slots));
  // In ascending order, so none twice; the one order in which they are written.
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
  if (has_weight()) RETURN_IF_ERROR(weight_.Read(in, origin));
  CellStreamReader cells(layout().cell_type(), num_cells, origin, in);
  for (const int64_t key : keys) {
    const SparseStore::Place place = store_->FindOrAdd(key);
    RETURN_IF_ERROR(cells.Take(layout().width, *place.columns->cells, place.slot * layout().width));
  }
  return absl::OkStatus();
}

absl::Status SparseAccumulator::ReadWeights(std::span<const int64_t> keys, StateReader& in, StateOrigin origin) {
  CellStreamReader weights(weights_type(), static_cast<int64_t>(keys.size()), origin, in);
  for (const int64_t key : keys) {
    const SparseStore::Place place = store_->FindOrAdd(key);
    RETURN_IF_ERROR(weights.Take(1, *place.columns->weights, place.slot));
    double weight = 0;
    place.columns->weights->Round(place.slot, 1, {}, reinterpret_cast<char*>(&weight));
    // Not a number fails, too.
    if (!(weight > 0 && weight <= WeightMax(origin.num_clients))) {
      return absl::DataLossError("the state's sums of weights are malformed");
    }
  }
  return absl::OkStatus();
}

std::optional<ExactDivisor> SparseAccumulator::DivisorOfAll() const {
  if (num_clients() == 0) return std::nullopt;
  if (layout().op->divisor == Divisor::kCount) return ExactDivisor::OfCount(num_clients());
  if (layout().op->divisor == Divisor::kWeight) return weight_.divisor();
  return std::nullopt;
}

absl::Status SparseAccumulator::TakeIndices(std::span<const int64_t> keys, const ByteSink& take) const {
  const auto dims = static_cast<size_t>(layout().index_dims);
  if (dims == 1) return take({reinterpret_cast<const char*>(keys.data()), keys.size_bytes()});
  std::vector<int64_t> indices;
  indices.reserve(keys.size() * dims);
  for (int64_t key : keys) {
    int64_t position[kRankMax];
    for (size_t d = dims; d-- > 1; key /= layout().shape[d]) position[d] = key % layout().shape[d];
    if (dims > 0) position[0] = key;
    indices.insert(indices.end(), position, position + dims);
  }
  return take({reinterpret_cast<const char*>(indices.data()), indices.size() * sizeof(int64_t)});
}

absl::StatusOr<SparseAccumulator::Selection> SparseAccumulator::Select() const {
  Selection selection{.num_kept = store_->num_touched(), .is_kept = nullptr};
  if (layout().min_contributors <= 1 && !layout().drop_zeros) return selection;
  selection.num_kept = 0;
  std::vector<bool> is_kept;
  RETURN_IF_ERROR(ForEachRun([&](const SlotRun& run, const RowRelease& rows) {
    selection.num_kept += rows.num_kept();
    const size_t first = is_kept.size();
    is_kept.resize(first + run.keys.size());
    for (const uint32_t position : rows.kept()) is_kept[first + position] = true;
    return absl::OkStatus();
  }));
  selection.is_kept = std::make_shared<const std::vector<bool>>(std::move(is_kept));
  return selection;
}

absl::Status SparseAccumulator::ForEachRun(
    const std::function<absl::Status(const SlotRun& run, const RowRelease& rows)>& visit) const {
  RowRelease rows(layout(), DivisorOfAll());
  absl::Status status;
  store_->ForEachRun([&](const SlotRun& run) {
    if (!status.ok()) return;
    const auto misfit = rows.Take(*run.columns, run.slots);
    status = misfit ? OutOfRange(run.keys[misfit->position], misfit->offset) : visit(run, rows);
  });
  return status;
}

absl::Status SparseAccumulator::WriteIndices(const Selection& selection, const ByteSink& take) const {
  absl::Status status;
  std::vector<int64_t> kept;
  size_t first = 0;
  store_->ForEachRun([&](const SlotRun& run) {
    if (!status.ok()) return;
    std::span<const int64_t> keys = run.keys;
    if (selection.is_kept != nullptr) {
      kept.clear();
      for (size_t i = 0; i < run.keys.size(); ++i) {
        if ((*selection.is_kept)[first + i]) kept.push_back(run.keys[i]);
      }
      keys = kept;
    }
    first += run.keys.size();
    status = TakeIndices(keys, take);
  });
  return status;
}

absl::Status SparseAccumulator::WriteIndicesMakingValues(const ByteSink& take, std::string& values) const {
  std::vector<int64_t> kept;
  return ForEachRun([&](const SlotRun& run, const RowRelease& rows) {
    std::span<const int64_t> keys = run.keys;
    if (!rows.is_all_kept()) {
      kept.clear();
      for (const uint32_t position : rows.kept()) kept.push_back(run.keys[position]);
      keys = kept;
    }
    values += rows.rows();
    return TakeIndices(keys, take);
  });
}

absl::Status SparseAccumulator::WriteValues(const ByteSink& take) const {
  return ForEachRun([&](const SlotRun&, const RowRelease& rows) { return take(rows.rows()); });
}

absl::Status SparseAccumulator::WriteDenseRows(const ByteSink& take) const {
  const auto row_bytes = static_cast<size_t>(layout().width * DTypeSize(layout().released_dtype()));
  std::string piece;
  const auto append_zeros = [&](int64_t num_rows) -> absl::Status {
    for (size_t left = static_cast<size_t>(num_rows) * row_bytes; left > 0;) {
      const size_t n = std::min(left, kPieceBytes);
      piece.append(n, '\0');
      left -= n;
      if (piece.size() < kPieceBytes) continue;
      RETURN_IF_ERROR(take(piece));
      piece.clear();
    }
    return absl::OkStatus();
  };
  int64_t next = 0;
  const absl::Status written = ForEachRun([&](const SlotRun& run, const RowRelease& rows) -> absl::Status {
    for (size_t i = 0; i < static_cast<size_t>(rows.num_kept()); ++i) {
      const int64_t key = run.keys[rows.is_all_kept() ? i : rows.kept()[i]];
      RETURN_IF_ERROR(append_zeros(key - next));
      piece.append(rows.rows().substr(i * row_bytes, row_bytes));
      next = key + 1;
      if (piece.size() < kPieceBytes) continue;
      RETURN_IF_ERROR(take(piece));
      piece.clear();
    }
    return absl::OkStatus();
  });
  RETURN_IF_ERROR(written);
  RETURN_IF_ERROR(append_zeros(layout().num_coordinates - next));
  return take(piece);
}

absl::Status SparseAccumulator::DoRelease(AggregateRelease& release, v1::OutputSummary& summary) const {
  ASSIGN_OR_RETURN(const Selection selection, Select());
  summary.set_touched(store_->num_touched());
  summary.set_released(selection.num_kept);
  const std::optional<ExactDivisor> divisor = DivisorOfAll();
  summary.set_divisor_value(divisor.has_value() ? divisor->upper : 0);
  release.folds.push_back(store_->counters());
  release.folds.back().set_output(layout().name);
  const std::string& name = layout().name;
  const std::vector<int64_t>& shape = layout().shape;
  const v1::DType dtype = layout().released_dtype();
  if (layout().releases_dense) {
    release.tensors.push_back({name, dtype, shape, [this](const ByteSink& take) { return WriteDenseRows(take); }});
    return absl::OkStatus();
  }
  // To order single values takes as long as to make them, so that both are done at once: writing the indices leaves the
  // values to the write that follows. Values that are asked for without, or a second time, are made anew.
  const auto values = layout().width == 1 ? std::make_shared<std::string>() : nullptr;
  const auto write_indices = [this, selection, values](const ByteSink& take) {
    if (values == nullptr) return WriteIndices(selection, take);
    values->clear();
    values->reserve(static_cast<size_t>(selection.num_kept * DTypeSize(layout().released_dtype())));
    AdviseHugePages(values->data(), values->capacity());
    return WriteIndicesMakingValues(take, *values);
  };
  const auto write_values = [this, values](const ByteSink& take) {
    if (values == nullptr || values->empty()) return WriteValues(take);
    return take(std::exchange(*values, std::string()));
  };
  release.tensors.push_back({name + ".indices", v1::INT64, {selection.num_kept, layout().index_dims}, write_indices});
  std::vector<int64_t> values_shape = {selection.num_kept};
  values_shape.insert(values_shape.end(), layout().trailing_dims().begin(), layout().trailing_dims().end());
  release.tensors.push_back({name + ".values", dtype, values_shape, write_values});
  const std::string shape_bytes(reinterpret_cast<const char*>(shape.data()), shape.size() * sizeof(int64_t));
  release.tensors.push_back(
      ReleaseWhole({name + ".dense_shape", v1::INT64, {static_cast<int64_t>(shape.size())}, shape_bytes}));
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<OutputAccumulator> MakeSparseAccumulator(const OutputLayout& layout) {
  return std::make_unique<SparseAccumulator>(layout);
}

}  // namespace sheaf
