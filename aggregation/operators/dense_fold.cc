#include "aggregation/operators/dense_fold.h"

#include <algorithm>
#include <vector>

#include "aggregation/cell_stream.h"
#include "aggregation/operators.h"
#include "aggregation/operators/weight_sum.h"
#include "aggregation/safetensors.h"

namespace sheaf {
namespace {

// Elements are kept in stripes, which know nothing of each other: a pool of threads may fold them at once. Whole chunks
// of serialised cells.
constexpr int64_t kStripe = int64_t{1} << 18;
static_assert(kStripe % kCellChunk == 0);

class DenseFold final : public OutputAccumulator {
 public:
  explicit DenseFold(const OutputLayout& output) : OutputAccumulator(output) {
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
  void DoAccumulate(const CheckedValue& value) override {
    InlineFor one_by_one;
    DoAccumulateInParts(value, one_by_one);
  }

  void DoAccumulateInParts(const CheckedValue& value, ParallelFor& parallel) override {
    const float weight = is_weighted() ? value.weight : 1.0f;
    const int64_t stripe_bytes = kStripe * DTypeSize(layout().dtype);
    parallel.Run(static_cast<int>(stripes_.size()), [&](int i) {
      CellVector& stripe = *stripes_[static_cast<size_t>(i)];
      stripe.Add(0, value.data.data() + i * stripe_bytes, stripe.size(), weight);
    });
    if (is_weighted()) weight_.Add(weight);
  }

  void DoMerge(const OutputAccumulator& other) override {
    const auto& from = dynamic_cast<const DenseFold&>(other);
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
    if (is_weighted()) RETURN_IF_ERROR(weight_.Read(in, origin, num_clients() > 0));
    for (const auto& stripe : stripes_) RETURN_IF_ERROR(ReadCells(*stripe, stripe->size(), in, origin));
    return absl::OkStatus();
  }

  absl::Status DoReport(AggregateReport& report, v1::OutputSummary& summary) const override {
    NamedTensor tensor{.name = layout().name, .dtype = layout().released_dtype(), .shape = layout().shape, .data = {}};
    const int64_t value_bytes = DTypeSize(tensor.dtype);
    tensor.data.resize(static_cast<size_t>(layout().width * value_bytes));
    std::optional<double> divisor;
    if (layout().op->divisor != Divisor::kNone && num_clients() > 0) divisor = DivisorValue();
    const std::span<const double> divisors = divisor.has_value() ? std::span(&*divisor, 1) : std::span<const double>();
    int64_t at = 0;
    for (const auto& stripe : stripes_) {
      const int64_t num_fitting = stripe->Round(0, stripe->size(), divisors, tensor.data.data() + at * value_bytes);
      if (num_fitting < stripe->size()) return OutOfRange(0, at + num_fitting);
      at += stripe->size();
    }
    report.tensors.push_back(std::move(tensor));
    summary.set_divisor_value(divisor.value_or(0));
    summary.set_touched(layout().width);
    summary.set_released(layout().width);
    return absl::OkStatus();
  }

 private:
  bool is_weighted() const { return layout().op->is_weighted(); }
  double DivisorValue() const { return is_weighted() ? weight_.value() : static_cast<double>(num_clients()); }

  // kStripe elements each, but for the last.
  std::vector<std::unique_ptr<CellVector>> stripes_;
  WeightSum weight_;
};

}  // namespace

std::unique_ptr<OutputAccumulator> MakeDenseFold(const OutputLayout& layout) {
  return std::make_unique<DenseFold>(layout);
}

}  // namespace sheaf
