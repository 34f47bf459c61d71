#include "aggregation/operators/dense_accumulator.h"

#include <algorithm>
#include <vector>

#include "aggregation/cells/cell_stream.h"
#include "aggregation/cells/make_cells.h"
#include "aggregation/exact/exact_block.h"
#include "aggregation/operators/weight_sum.h"
#include "aggregation/wire/tensor.h"
#include "base/ordered_for.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// Elements are kept in stripes, which know nothing of each other: a pool of threads may fold them at once. Whole chunks
// of serialised cells.
constexpr int64_t kStripe = int64_t{1} << 18;
static_assert(kStripe % kCellChunk == 0 && kStripe % ExactBlock::kRunMax == 0);
// Elements of one released piece; and pieces that wait for one before them: 16 MiB at most.
constexpr int64_t kPiece = int64_t{1} << 14;
constexpr int kPiecesMax = 128;
static_assert(kStripe % kPiece == 0);

class DenseAccumulator final : public OutputAccumulator {
 public:
  explicit DenseAccumulator(const OutputLayout& output) : OutputAccumulator(output) {
    for (int64_t at = 0; at == 0 || at < output.width; at += kStripe) {
      const int64_t size = std::min(kStripe, output.width - at);
      stripes_.push_back(MakeCells(output.cell_type(), {.size_hint = size}));
      stripes_.back()->Resize(size);
    }
  }

  int64_t memory_bytes() const override {
    int64_t bytes = 0;
    for (const auto& stripe : stripes_) bytes += stripe->memory_bytes();
    return bytes;
  }

 protected:
  void DoAccumulate(CheckedValues values, ParallelFor& parallel) override {
    parallel.Run(static_cast<int>(stripes_.size()), [&](int i) {
      for (const CheckedValue* const value : values) AddStripe(*value, i);
    });
    if (!is_weighted()) return;
    for (const CheckedValue* const value : values) weight_.Add(value->weight);
  }

  void DoMerge(const OutputAccumulator& other) override {
    const auto& from = dynamic_cast<const DenseAccumulator&>(other);
    for (size_t i = 0; i < stripes_.size(); ++i) stripes_[i]->AddFrom(0, *from.stripes_[i], 0, stripes_[i]->size());
    weight_.Merge(from.weight_);
  }

  void DoWrite(StateWriter& out) const override {
    if (is_weighted()) weight_.Write(out);
    CellStreamWriter cells(layout().cell_type(), out);
    for (const auto& stripe : stripes_) cells.Append(*stripe, 0, stripe->size());
    cells.Finish();
  }

  absl::Status DoRead(StateReader& in, StateOrigin origin) override {
    if (is_weighted()) RETURN_IF_ERROR(weight_.Read(in, origin));
    for (const auto& stripe : stripes_) RETURN_IF_ERROR(ReadCells(*stripe, stripe->size(), in, origin));
    return absl::OkStatus();
  }

  absl::Status DoRelease(AggregateRelease& release, v1::OutputSummary& summary, ParallelFor& parallel) const override {
    std::optional<ExactDivisor> divisor;
    if (layout().op->divisor != Divisor::kNone && num_clients() > 0) {
      divisor = is_weighted() ? weight_.divisor() : ExactDivisor::OfCount(num_clients());
    }
    release.tensors.push_back(
        {layout().name, layout().released_dtype(), layout().shape,
         [this, divisor, &parallel](const ByteSink& take) { return WriteElements(divisor, take, parallel); }});
    summary.set_divisor_value(divisor.has_value() ? divisor->upper : 0);
    summary.set_touched(layout().width);
    summary.set_released(layout().width);
    return absl::OkStatus();
  }

 private:
  bool is_weighted() const { return layout().op->is_weighted(); }
  void AddStripe(const CheckedValue& value, int i) {
    CellVector& stripe = *stripes_[static_cast<size_t>(i)];
    const float weight = is_weighted() ? value.weight : 1.0f;
    const char* const values = value.data.data() + i * kStripe * DTypeSize(layout().dtype);
    if (value.ranges.empty()) return stripe.Add(0, values, stripe.size(), weight);
    stripe.AddScanned(0, values, stripe.size(), weight,
                      value.ranges.subspan(static_cast<size_t>(i * (kStripe / ExactBlock::kRunMax))));
  }
  absl::Status WriteElements(std::optional<ExactDivisor> divisor, const ByteSink& take, ParallelFor& parallel) const {
    const auto value_bytes = static_cast<size_t>(DTypeSize(layout().released_dtype()));
    const ExactDivisors divisors = divisor.has_value() ? ExactDivisors(*divisor) : ExactDivisors();
    using Piece = std::vector<char>;
    return OrderedFor<Piece>(
        parallel, {.num_parts = (layout().width + kPiece - 1) / kPiece, .waiting_max = kPiecesMax},
        [] { return std::make_unique<Piece>(); },
        [&](int64_t i, Piece& piece) {
          const int64_t first = i * kPiece, n = std::min(kPiece, layout().width - first);
          piece.resize(static_cast<size_t>(n) * value_bytes);
          const CellVector& stripe = *stripes_[static_cast<size_t>(first / kStripe)];
          const int64_t num_rounded = stripe.Round(first % kStripe, n, divisors, piece.data());
          const int64_t num_fitting = layout().NumFitting(piece.data(), num_rounded);
          return num_fitting < n ? OutOfRange(0, first + num_fitting) : absl::OkStatus();
        },
        [&](const Piece& piece) {
          return take({piece.data(), piece.size()});
        });
  }

  // kStripe elements each, but for the last.
  std::vector<std::unique_ptr<CellVector>> stripes_;
  WeightSum weight_;
};

}  // namespace

std::unique_ptr<OutputAccumulator> MakeDenseAccumulator(const OutputLayout& layout) {
  return std::make_unique<DenseAccumulator>(layout);
}

}  // namespace sheaf
