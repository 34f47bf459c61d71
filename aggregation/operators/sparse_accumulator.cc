#include "aggregation/operators/sparse_accumulator.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "aggregation/cells/cell_stream.h"
#include "aggregation/operators/row_release.h"
#include "aggregation/operators/weight_sum.h"
#include "aggregation/sparse/make_sparse_store.h"
#include "aggregation/sparse/union_growth.h"
#include "aggregation/wire/tensor.h"
#include "base/huge_pages.h"
#include "base/ordered_for.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// Rows of one released piece take so many bytes, about; and all pieces that wait for one before them.
constexpr int64_t kPieceBytes = int64_t{256} << 10;
constexpr int64_t kWaitingBytes = int64_t{16} << 20;
constexpr int64_t kPieceRowsMax = int64_t{1} << 14;
// What lies between the rows of a piece of a dense result; and what is handed over at once of those beyond.
constexpr int64_t kZerosMax = int64_t{1} << 20;
constexpr size_t kGatheredBytes = 64 << 10;

std::string_view AsBytes(std::span<const int64_t> numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()};
}

// Hands bytes over, small pieces together.
class GatheredBytes {
 public:
  explicit GatheredBytes(const ByteSink& take) : take_(take) {}

  absl::Status Append(std::string_view bytes) {
    if (waiting_.size() + bytes.size() < kGatheredBytes) {
      waiting_ += bytes;
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(Flush());
    if (bytes.size() >= kGatheredBytes) return take_(bytes);
    waiting_ += bytes;
    return absl::OkStatus();
  }
  absl::Status AppendZeros(int64_t count) {
    static constexpr char kZeros[kGatheredBytes] = {};
    for (auto left = static_cast<size_t>(count); left > 0;) {
      const size_t n = std::min(left, sizeof kZeros);
      RETURN_IF_ERROR(Append({kZeros, n}));
      left -= n;
    }
    return absl::OkStatus();
  }
  absl::Status Flush() {
    if (waiting_.empty()) return absl::OkStatus();
    absl::Status taken = take_(waiting_);
    waiting_.clear();
    return taken;
  }

 private:
  const ByteSink& take_;
  std::string waiting_;
};

class SparseAccumulator final : public OutputAccumulator {
 public:
  explicit SparseAccumulator(const OutputLayout& output)
      : OutputAccumulator(output), store_(MakeSparseStore(layout())) {}

  int64_t memory_bytes() const override { return store_->memory_bytes(); }
  void Settle() override { store_->num_touched(); }
  int most_bins() const override { return store_->most_bins(); }

 protected:
  void DoAccumulate(CheckedValues values, ParallelFor& parallel) override;
  void DoMerge(const OutputAccumulator& other) override;
  void DoWrite(StateWriter& out) const override;
  absl::Status DoRead(StateReader& in, StateOrigin origin) override;
  absl::Status DoRelease(AggregateRelease& release, v1::OutputSummary& summary, ParallelFor& parallel) const override;

 private:
  // Which of the touched coordinates are released.
  struct Selection {
    std::shared_ptr<const SlotRuns> runs;
    int64_t num_kept = 0;
    // Of each, in ascending order; null if all are.
    std::shared_ptr<const std::vector<bool>> is_kept;
  };
  // A run of them, and what is released of it.
  struct Piece {
    Piece(const OutputLayout& layout, std::optional<ExactDivisor> divisor) : rows(layout, divisor) {}

    SlotRuns::Room room;
    SlotRun run;
    RowRelease rows;
    // Of the rows kept: their keys, where these are not the run's; and indices, where these are not the keys.
    std::vector<int64_t> keys;
    std::vector<int64_t> indices_room;
    std::span<const int64_t> indices;
    // As they lie in a dense result: from this coordinate on up to that, without the zeros that stand for themselves.
    int64_t first = 0;
    int64_t end = 0;
    std::string bytes;
    struct Gap {
      size_t at;
      int64_t num_zeros;
    };
    std::vector<Gap> gaps;
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
  int64_t released_row_bytes() const { return layout().width * DTypeSize(layout().released_dtype()); }
  absl::StatusOr<Selection> Select(ParallelFor& parallel) const;
  // For each run of what there is: makes a piece, several at once, and hands it over, in ascending order.
  using Make = std::function<absl::Status(Piece& piece)>;
  absl::Status ForEachRun(const SlotRuns& runs, ParallelFor& parallel, const Make& make, const Make& give) const;
  // Rounds what is released of the piece's run. OUT_OF_RANGE if a sum does not fit.
  absl::Status MakeRows(Piece& piece) const;
  std::span<const int64_t> KeysOfRows(Piece& piece) const;
  // One per dimension that they address.
  std::span<const int64_t> IndicesOf(std::span<const int64_t> keys, std::vector<int64_t>& room) const;
  // Puts the piece's rows as they lie in a dense result.
  void MakeDense(Piece& piece) const;
  absl::Status WriteIndices(const Selection& selection, const ByteSink& take, ParallelFor& parallel) const;
  absl::Status WriteIndicesMakingValues(const SlotRuns& runs, const ByteSink& take, std::string& values,
                                        ParallelFor& parallel) const;
  absl::Status WriteValues(const SlotRuns& runs, const ByteSink& take, ParallelFor& parallel) const;
  absl::Status WriteDenseRows(const SlotRuns& runs, const ByteSink& take, ParallelFor& parallel) const;

  // Const methods fold what waits in it: that changes no value.
  std::unique_ptr<SparseStore> store_;
  WeightSum weight_;
  UnionGrowth growth_;
};

void SparseAccumulator::DoAccumulate(CheckedValues values, ParallelFor& parallel) {
  store_->Accumulate(values, parallel);
  int64_t num_rows = 0;
  for (const CheckedValue* const value : values) num_rows += static_cast<int64_t>(value->keys.size());
  growth_.Add(static_cast<int64_t>(values.size()), num_rows, store_->known_touched());
  if (!has_weight()) return;
  for (const CheckedValue* const value : values) weight_.Add(value->weight);
}

void SparseAccumulator::DoMerge(const OutputAccumulator& other) {
  const auto& from = dynamic_cast<const SparseAccumulator&>(other);
  const int64_t num_touched = from.store_->num_touched();
  store_->Expect(num_touched);
  from.store_->ForEachRun([this](const SlotRun& run) {
    for (size_t i = 0; i < run.keys.size(); ++i) {
      const SparseStore::Place place = store_->FindOrAdd(run.keys[i]);
      place.columns->AddFrom(place.slot, *run.columns, run.slots[i]);
    }
  });
  weight_.Merge(from.weight_);
  growth_.Add(1, num_touched, store_->known_touched());
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
  growth_.Miss();
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

absl::Status SparseAccumulator::ForEachRun(const SlotRuns& runs, ParallelFor& parallel, const Make& make,
                                           const Make& give) const {
  const int64_t bytes_each = std::max<int64_t>(runs.longest() * (released_row_bytes() + 2 * sizeof(int64_t)), 1);
  // A piece is made while another is handed over, however large they are.
  const OrderedParts parts{.num_parts = runs.size(),
                           .waiting_max = static_cast<int>(std::clamp<int64_t>(kWaitingBytes / bytes_each, 2, 64))};
  const std::optional<ExactDivisor> divisor = DivisorOfAll();
  return OrderedFor<Piece>(
      parallel, parts, [&] { return std::make_unique<Piece>(layout(), divisor); },
      [&](int64_t i, Piece& piece) {
        piece.run = runs.Read(i, piece.room);
        return make(piece);
      },
      give);
}

absl::Status SparseAccumulator::MakeRows(Piece& piece) const {
  const auto misfit = piece.rows.Take(*piece.run.columns, piece.run.slots);
  return misfit ? OutOfRange(piece.run.keys[misfit->position], misfit->offset) : absl::OkStatus();
}

std::span<const int64_t> SparseAccumulator::IndicesOf(std::span<const int64_t> keys, std::vector<int64_t>& room) const {
  const auto dims = static_cast<size_t>(layout().index_dims);
  if (dims == 1) return keys;
  room.resize(keys.size() * dims);
  auto index = room.begin();
  for (int64_t key : keys) {
    for (size_t d = dims; d-- > 1; key /= layout().shape[d]) index[static_cast<int64_t>(d)] = key % layout().shape[d];
    if (dims > 0) *index = key;
    index += static_cast<int64_t>(dims);
  }
  return room;
}

std::span<const int64_t> SparseAccumulator::KeysOfRows(Piece& piece) const {
  if (piece.rows.is_all_kept()) return piece.run.keys;
  piece.keys.clear();
  for (const uint32_t position : piece.rows.kept()) piece.keys.push_back(piece.run.keys[position]);
  return piece.keys;
}

absl::StatusOr<SparseAccumulator::Selection> SparseAccumulator::Select(ParallelFor& parallel) const {
  const int64_t run_max =
      std::clamp<int64_t>(kPieceBytes / std::max<int64_t>(released_row_bytes(), 1), 1, kPieceRowsMax);
  Selection selection{.runs = store_->Runs(run_max, parallel), .num_kept = store_->num_touched(), .is_kept = nullptr};
  if (layout().min_contributors <= 1 && !layout().drop_zeros) return selection;
  std::vector<bool> is_kept(static_cast<size_t>(selection.num_kept));
  selection.num_kept = 0;
  RETURN_IF_ERROR(ForEachRun(
      *selection.runs, parallel, [this](Piece& piece) { return MakeRows(piece); },
      [&](const Piece& piece) {
        selection.num_kept += piece.rows.num_kept();
        const auto first = static_cast<size_t>(piece.run.num_before);
        for (const uint32_t position : piece.rows.kept()) is_kept[first + position] = true;
        return absl::OkStatus();
      }));
  selection.is_kept = std::make_shared<const std::vector<bool>>(std::move(is_kept));
  return selection;
}

absl::Status SparseAccumulator::WriteIndices(const Selection& selection, const ByteSink& take,
                                             ParallelFor& parallel) const {
  return ForEachRun(
      *selection.runs, parallel,
      [&](Piece& piece) {
        std::span<const int64_t> keys = piece.run.keys;
        if (selection.is_kept != nullptr) {
          const auto first = static_cast<size_t>(piece.run.num_before);
          piece.keys.clear();
          for (size_t i = 0; i < keys.size(); ++i) {
            if ((*selection.is_kept)[first + i]) piece.keys.push_back(keys[i]);
          }
          keys = piece.keys;
        }
        piece.indices = IndicesOf(keys, piece.indices_room);
        return absl::OkStatus();
      },
      [&](const Piece& piece) { return take(AsBytes(piece.indices)); });
}

absl::Status SparseAccumulator::WriteIndicesMakingValues(const SlotRuns& runs, const ByteSink& take,
                                                         std::string& values, ParallelFor& parallel) const {
  return ForEachRun(
      runs, parallel,
      [&](Piece& piece) {
        RETURN_IF_ERROR(MakeRows(piece));
        piece.indices = IndicesOf(KeysOfRows(piece), piece.indices_room);
        return absl::OkStatus();
      },
      [&](const Piece& piece) {
        values += piece.rows.rows();
        return take(AsBytes(piece.indices));
      });
}

absl::Status SparseAccumulator::WriteValues(const SlotRuns& runs, const ByteSink& take, ParallelFor& parallel) const {
  return ForEachRun(
      runs, parallel, [this](Piece& piece) { return MakeRows(piece); },
      [&](const Piece& piece) { return take(piece.rows.rows()); });
}

// Zeros between rows that lie close together are part of the piece. So many as they are elsewhere would make it large:
// there it only says where they are.
void SparseAccumulator::MakeDense(Piece& piece) const {
  const std::span<const int64_t> keys = KeysOfRows(piece);
  const int64_t row_bytes = released_row_bytes();
  piece.first = keys.empty() ? 0 : keys.front();
  piece.end = keys.empty() ? 0 : keys.back() + 1;
  piece.bytes.clear();
  piece.gaps.clear();
  int64_t zeros_left = kZerosMax;
  int64_t next = piece.first;
  for (size_t i = 0; i < keys.size(); ++i) {
    const int64_t zeros = (keys[i] - next) * row_bytes;
    if (zeros <= zeros_left) {
      piece.bytes.append(static_cast<size_t>(zeros), '\0');
      zeros_left -= zeros;
    } else {
      piece.gaps.push_back({.at = piece.bytes.size(), .num_zeros = zeros});
    }
    piece.bytes += piece.rows.rows().substr(i * static_cast<size_t>(row_bytes), static_cast<size_t>(row_bytes));
    next = keys[i] + 1;
  }
}

absl::Status SparseAccumulator::WriteDenseRows(const SlotRuns& runs, const ByteSink& take,
                                               ParallelFor& parallel) const {
  const int64_t row_bytes = released_row_bytes();
  GatheredBytes gathered(take);
  int64_t next = 0;
  const absl::Status written = ForEachRun(
      runs, parallel,
      [this](Piece& piece) {
        RETURN_IF_ERROR(MakeRows(piece));
        MakeDense(piece);
        return absl::OkStatus();
      },
      [&](const Piece& piece) -> absl::Status {
        if (piece.first == piece.end) return absl::OkStatus();
        RETURN_IF_ERROR(gathered.AppendZeros((piece.first - next) * row_bytes));
        next = piece.end;
        size_t at = 0;
        for (const Piece::Gap& gap : piece.gaps) {
          RETURN_IF_ERROR(gathered.Append(std::string_view(piece.bytes).substr(at, gap.at - at)));
          RETURN_IF_ERROR(gathered.AppendZeros(gap.num_zeros));
          at = gap.at;
        }
        return gathered.Append(std::string_view(piece.bytes).substr(at));
      });
  RETURN_IF_ERROR(written);
  RETURN_IF_ERROR(gathered.AppendZeros((layout().num_coordinates - next) * row_bytes));
  return gathered.Flush();
}

absl::Status SparseAccumulator::DoRelease(AggregateRelease& release, v1::OutputSummary& summary,
                                          ParallelFor& parallel) const {
  ASSIGN_OR_RETURN(const Selection selection, Select(parallel));
  summary.set_touched(store_->num_touched());
  summary.set_released(selection.num_kept);
  const std::optional<ExactDivisor> divisor = DivisorOfAll();
  summary.set_divisor_value(divisor.has_value() ? divisor->upper : 0);
  release.folds.push_back(store_->counters());
  release.folds.back().set_output(layout().name);
  growth_.AddTo(release.folds.back());
  const std::string& name = layout().name;
  const std::vector<int64_t>& shape = layout().shape;
  const v1::DType dtype = layout().released_dtype();
  if (layout().releases_dense) {
    release.tensors.push_back({name, dtype, shape, [this, runs = selection.runs, &parallel](const ByteSink& take) {
                                 return WriteDenseRows(*runs, take, parallel);
                               }});
    return absl::OkStatus();
  }
  // To order single values takes as long as to make them, so that both are done at once: writing the indices leaves the
  // values to the write that follows. Values that are asked for without, or a second time, are made anew.
  const auto values = layout().width == 1 ? std::make_shared<std::string>() : nullptr;
  const auto write_indices = [this, selection, values, &parallel](const ByteSink& take) {
    if (values == nullptr) return WriteIndices(selection, take, parallel);
    values->clear();
    values->reserve(static_cast<size_t>(selection.num_kept * DTypeSize(layout().released_dtype())));
    AdviseHugePages(values->data(), values->capacity());
    return WriteIndicesMakingValues(*selection.runs, take, *values, parallel);
  };
  const auto write_values = [this, runs = selection.runs, values, &parallel](const ByteSink& take) {
    if (values == nullptr || values->empty()) return WriteValues(*runs, take, parallel);
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
