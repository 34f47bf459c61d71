#include "aggregation/operators/keyed_accumulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "aggregation/cells/cell_stream.h"
#include "aggregation/operators/row_release.h"
#include "aggregation/sparse/slot_index.h"
#include "aggregation/wire/tensor.h"
#include "base/key_hash.h"
#include "base/ordered_for.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// Integers in the order of unsigned ones.
constexpr uint64_t kSignBit = uint64_t{1} << 63;
// Rows whose slots are looked up together.
constexpr size_t kBatch = 256;
// Rows of one released piece take so many bytes, about; and all pieces that wait for one before them.
constexpr size_t kTablePieceBytes = 64 << 10;
constexpr size_t kTableWaitingBytes = 16 << 20;

// The keys there are, and the slots of their rows.
class KeySet {
 public:
  explicit KeySet(v1::KeyType type) : is_string_(type == v1::STRING_KEYS) {}

  bool is_string() const { return is_string_; }
  int64_t size() const { return is_string_ ? static_cast<int64_t>(strings_.size()) : integers_.size(); }
  uint32_t FindOrAdd(int64_t key) { return integers_.FindOrAdd(static_cast<uint64_t>(key) ^ kSignBit); }
  uint32_t FindOrAdd(std::string_view key) {
    const auto found = slots_.find(key);
    if (found != slots_.end()) return found->second;
    const uint32_t slot = static_cast<uint32_t>(strings_.size());
    const auto added = slots_.emplace(std::string(key), slot).first;
    strings_.push_back(&added->first);
    string_bytes_ += static_cast<int64_t>(key.size());
    return slot;
  }
  int64_t integer(uint32_t slot) const { return static_cast<int64_t>(integers_.key(slot) ^ kSignBit); }
  const std::string& string(uint32_t slot) const { return *strings_[slot]; }

  std::vector<uint32_t> SlotsInOrder() const {
    std::vector<uint32_t> slots(static_cast<size_t>(size()));
    std::iota(slots.begin(), slots.end(), 0);
    std::sort(slots.begin(), slots.end(), [this](uint32_t a, uint32_t b) {
      return is_string_ ? string(a) < string(b) : integers_.key(a) < integers_.key(b);
    });
    return slots;
  }
  int64_t memory_bytes() const {
    return integers_.memory_bytes() + string_bytes_ +
           static_cast<int64_t>(slots_.capacity() * (sizeof(std::string) + 9) + strings_.capacity() * sizeof(void*));
  }

 private:
  const bool is_string_;
  SlotIndex<uint64_t> integers_;
  // Nodes of their own: `strings_` points at them.
  absl::node_hash_map<std::string, uint32_t, KeyHash, std::equal_to<>> slots_;
  std::vector<const std::string*> strings_;
  int64_t string_bytes_ = 0;
};

class KeyedAccumulator final : public OutputAccumulator {
 public:
  explicit KeyedAccumulator(const OutputLayout& output)
      : OutputAccumulator(output), keys_(output.key_type), columns_(layout(), /*is_scattered=*/false, nullptr) {}

  int64_t memory_bytes() const override { return keys_.memory_bytes() + columns_.memory_bytes(); }
  int most_bins() const override { return columns_.cells->most_bins(); }

 protected:
  void DoAccumulate(CheckedValues values, ParallelFor&) override {
    for (const CheckedValue* const value : values) AddRows(*value);
  }

  void DoMerge(const OutputAccumulator& other) override {
    const auto& from = dynamic_cast<const KeyedAccumulator&>(other);
    for (uint32_t slot = 0; slot < from.keys_.size(); ++slot) {
      const uint32_t to = keys_.is_string() ? Place(from.keys_.string(slot)) : Place(from.keys_.integer(slot));
      columns_.AddFrom(to, from.columns_, slot);
    }
  }

  void DoWrite(StateWriter& out) const override {
    const std::vector<uint32_t> slots = keys_.SlotsInOrder();
    out.Put<int64_t>(keys_.size());
    for (const uint32_t slot : slots) {
      if (keys_.is_string()) {
        out.PutString(keys_.string(slot));
      } else {
        out.Put(keys_.integer(slot));
      }
      if (columns_.is_counted) out.Put(columns_.contributors[slot]);
    }
    CellStreamWriter cells(layout().cell_type(), out);
    for (const uint32_t slot : slots) cells.Append(*columns_.cells, slot * layout().width, layout().width);
    cells.Finish();
  }

  absl::Status DoRead(StateReader& in, StateOrigin origin) override {
    ASSIGN_OR_RETURN(const int64_t num_keys, in.Get<int64_t>());
    int64_t num_cells = 0;
    if (!in.Has(num_keys, sizeof(int64_t)) || __builtin_mul_overflow(num_keys, layout().width, &num_cells)) {
      return StateReader::Missing();
    }
    if (num_keys > 0 && num_clients() == 0) return absl::DataLossError("the state has keys that nobody touched");
    for (int64_t i = 0; i < num_keys; ++i) RETURN_IF_ERROR(ReadKey(i, in));
    if (!in.Has(num_cells / kCellChunk, 1)) return StateReader::Missing();
    columns_.Resize(num_keys);
    return ReadCells(*columns_.cells, num_cells, in, origin);
  }

  absl::Status DoRelease(AggregateRelease& release, v1::OutputSummary& summary, ParallelFor& parallel) const override {
    ASSIGN_OR_RETURN(const Selection selection, Select(parallel));
    summary.set_touched(keys_.size());
    summary.set_released(selection.num_rows());
    const std::string& name = layout().name;
    if (keys_.is_string()) {
      release.tensors.push_back(
          {name + ".keys", v1::UINT8, {selection.key_bytes}, [this, selection](const ByteSink& take) {
             return WriteKeys(selection, take);
           }});
      release.tensors.push_back(
          {name + ".key_offsets", v1::INT64, {selection.num_rows() + 1}, [this, selection](const ByteSink& take) {
             return WriteOffsets(selection, take);
           }});
    } else {
      release.tensors.push_back(
          {name + ".keys", v1::INT64, {selection.num_rows()}, [this, selection](const ByteSink& take) {
             return WriteKeys(selection, take);
           }});
    }
    std::vector<int64_t> shape = layout().shape;
    shape.insert(shape.begin(), selection.num_rows());
    release.tensors.push_back(
        {name + ".values", layout().released_dtype(), shape, [this, selection, &parallel](const ByteSink& take) {
           return ForEachRun(*selection.slots, parallel, [&](const Piece& piece) { return take(piece.rows.rows()); });
         }});
    return absl::OkStatus();
  }

 private:
  // What is released: the slots of its keys, in order.
  struct Selection {
    std::shared_ptr<const std::vector<uint32_t>> slots;
    // Of string keys, all together.
    int64_t key_bytes = 0;

    int64_t num_rows() const { return static_cast<int64_t>(slots->size()); }
  };

  struct Piece {
    std::span<const uint32_t> slots;
    RowRelease rows;
  };
  // Calls give(piece) for runs of slots, in order: few rows at once, or all where rows are single values, which are
  // best rounded together. Several pieces are made at once. OUT_OF_RANGE if a sum does not fit.
  absl::Status ForEachRun(std::span<const uint32_t> slots, ParallelFor& parallel,
                          const std::function<absl::Status(Piece& piece)>& give) const {
    const auto row_bytes = static_cast<size_t>(layout().width * DTypeSize(layout().released_dtype()));
    const size_t run =
        layout().width == 1 ? std::max<size_t>(slots.size(), 1) : kTablePieceBytes / std::max<size_t>(row_bytes, 1) + 1;
    const size_t waiting_max = std::clamp<size_t>(kTableWaitingBytes / std::max<size_t>(run * row_bytes, 1), 2, 128);
    return OrderedFor<Piece>(
        parallel,
        {.num_parts = static_cast<int64_t>((slots.size() + run - 1) / run),
         .waiting_max = static_cast<int>(waiting_max)},
        [this] { return std::make_unique<Piece>(Piece{.slots = {}, .rows = RowRelease(layout(), std::nullopt)}); },
        [&](int64_t i, Piece& piece) {
          const size_t begin = static_cast<size_t>(i) * run;
          piece.slots = slots.subspan(begin, std::min(run, slots.size() - begin));
          const auto misfit = piece.rows.Take(columns_, piece.slots);
          return misfit ? Misfit(piece.slots[misfit->position]) : absl::OkStatus();
        },
        give);
  }

  absl::StatusOr<Selection> Select(ParallelFor& parallel) const {
    std::vector<uint32_t> slots = keys_.SlotsInOrder();
    if (layout().min_contributors > 1 || layout().drop_zeros) {
      std::vector<uint32_t> kept;
      RETURN_IF_ERROR(ForEachRun(slots, parallel, [&kept](const Piece& piece) {
        for (const uint32_t position : piece.rows.kept()) kept.push_back(piece.slots[position]);
        return absl::OkStatus();
      }));
      slots = std::move(kept);
    }
    Selection selection;
    if (keys_.is_string()) {
      for (const uint32_t slot : slots) selection.key_bytes += static_cast<int64_t>(keys_.string(slot).size());
    }
    selection.slots = std::make_shared<const std::vector<uint32_t>>(std::move(slots));
    return selection;
  }

  // Gathers small pieces of bytes.
  struct Gathered {
    const ByteSink& take;
    std::string bytes;
    absl::Status Append(std::string_view piece) {
      bytes += piece;
      return bytes.size() < kTablePieceBytes ? absl::OkStatus() : Flush();
    }
    absl::Status Append(int64_t number) { return Append({reinterpret_cast<const char*>(&number), sizeof number}); }
    absl::Status Flush() {
      if (bytes.empty()) return absl::OkStatus();
      absl::Status taken = take(bytes);
      bytes.clear();
      return taken;
    }
  };

  absl::Status WriteKeys(const Selection& selection, const ByteSink& take) const {
    Gathered gathered{take, {}};
    for (const uint32_t slot : *selection.slots) {
      RETURN_IF_ERROR(keys_.is_string() ? gathered.Append(keys_.string(slot)) : gathered.Append(keys_.integer(slot)));
    }
    return gathered.Flush();
  }

  absl::Status WriteOffsets(const Selection& selection, const ByteSink& take) const {
    Gathered gathered{take, {}};
    int64_t offset = 0;
    RETURN_IF_ERROR(gathered.Append(offset));
    for (const uint32_t slot : *selection.slots) {
      RETURN_IF_ERROR(gathered.Append(offset += static_cast<int64_t>(keys_.string(slot).size())));
    }
    return gathered.Flush();
  }

  void AddRows(const CheckedValue& value) {
    const int64_t row_bytes = layout().width * DTypeSize(layout().dtype);
    ++num_folds_;
    const size_t n = keys_.is_string() ? static_cast<size_t>(value.string_keys->size()) : value.keys.size();
    for (size_t begin = 0; begin < n; begin += kBatch) {
      const size_t end = std::min(begin + kBatch, n);
      uint32_t slots[kBatch];
      for (size_t row = begin; row < end; ++row) {
        slots[row - begin] =
            keys_.is_string() ? Place(value.string_keys->Get(static_cast<int>(row))) : Place(value.keys[row]);
      }
      const std::span<const uint32_t> rows(slots, end - begin);
      columns_.cells->AddRows({.rows = rows,
                               .width = layout().width,
                               .values = value.data.data() + static_cast<int64_t>(begin) * row_bytes,
                               .row_bytes = row_bytes},
                              1);
      if (!columns_.is_counted) continue;
      for (const uint32_t slot : rows) columns_.Touch(slot, num_folds_);
    }
  }

  template <typename Key>
  uint32_t Place(const Key& key) {
    const uint32_t slot = keys_.FindOrAdd(key);
    if (keys_.size() > columns_.num_slots) columns_.Resize(keys_.size());
    return slot;
  }

  absl::Status ReadKey(int64_t i, StateReader& in) {
    // In ascending order, so no key twice.
    bool is_legal = true;
    if (keys_.is_string()) {
      ASSIGN_OR_RETURN(const std::string_view key, in.GetString());
      is_legal = static_cast<int64_t>(key.size()) <= kKeyBytesMax &&
                 (i == 0 || keys_.string(static_cast<uint32_t>(i - 1)) < key) && Place(key) == i;
    } else {
      ASSIGN_OR_RETURN(const int64_t key, in.Get<int64_t>());
      is_legal = (i == 0 || keys_.integer(static_cast<uint32_t>(i - 1)) < key) && Place(key) == i;
    }
    if (!is_legal) return absl::DataLossError("the state's keys are malformed");
    if (!columns_.is_counted) return absl::OkStatus();
    ASSIGN_OR_RETURN(const int64_t contributors, in.Get<int64_t>());
    if (contributors < 1 || contributors > num_clients()) {
      return absl::DataLossError("the state's numbers of contributors are malformed");
    }
    columns_.contributors[static_cast<size_t>(i)] = contributors;
    return absl::OkStatus();
  }

  absl::Status Misfit(uint32_t slot) const {
    const std::string key =
        keys_.is_string() ? fmt::format("'{}'", KeyText(keys_.string(slot))) : std::to_string(keys_.integer(slot));
    return layout().Misfit(fmt::format("{}[{}]", layout().name, key));
  }

  KeySet keys_;
  SlotColumns columns_;
  uint32_t num_folds_ = 0;
};

}  // namespace

std::unique_ptr<OutputAccumulator> MakeKeyedAccumulator(const OutputLayout& layout) {
  return std::make_unique<KeyedAccumulator>(layout);
}

}  // namespace sheaf
