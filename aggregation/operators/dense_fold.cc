#include "aggregation/operators/dense_fold.h"

#include "aggregation/cell_stream.h"
#include "aggregation/operators.h"
#include "aggregation/operators/weight_sum.h"
#include "aggregation/safetensors.h"

namespace sheaf {
namespace {

class DenseFold final : public OutputAccumulator {
 public:
  explicit DenseFold(const OutputLayout& output)
      : OutputAccumulator(output), cells_(MakeCells(output.cell_type(), {.size_hint = output.width})) {
    cells_->Resize(output.width);
  }

  int64_t memory_bytes() const override { return cells_->memory_bytes(); }

 protected:
  void DoAccumulate(const CheckedValue& value) override {
    const float weight = is_weighted() ? value.weight : 1.0f;
    cells_->Add(0, value.data.data(), layout().width, weight);
    if (is_weighted()) weight_.Add(weight);
  }

  void DoMerge(const OutputAccumulator& other) override {
    const auto& from = dynamic_cast<const DenseFold&>(other);
    cells_->AddFrom(0, *from.cells_, 0, layout().width);
    weight_.Merge(from.weight_);
  }

  void DoWrite(StateWriter& out) const override {
    if (is_weighted()) weight_.Write(out);
    CellStreamWriter cells(layout().cell_type(), out);
    cells.Append(*cells_, 0, layout().width);
    cells.Finish();
  }

  absl::Status DoRead(StateReader& in, StateOrigin origin) override {
    if (is_weighted()) RETURN_IF_ERROR(weight_.Read(in, origin, num_clients() > 0));
    return ReadCells(*cells_, layout().width, in, origin);
  }

  absl::Status DoReport(AggregateReport& report, v1::OutputSummary& summary) const override {
    NamedTensor tensor{.name = layout().name, .dtype = layout().released_dtype(), .shape = layout().shape, .data = {}};
    tensor.data.resize(static_cast<size_t>(layout().width * DTypeSize(tensor.dtype)));
    std::optional<double> divisor;
    if (layout().op->divisor != Divisor::kNone && num_clients() > 0) divisor = DivisorValue();
    const std::span<const double> divisors = divisor.has_value() ? std::span(&*divisor, 1) : std::span<const double>();
    const int64_t num_fitting = cells_->Round(0, layout().width, divisors, tensor.data.data());
    if (num_fitting < layout().width) return OutOfRange(0, num_fitting);
    report.tensors.push_back(std::move(tensor));
    summary.set_divisor_value(divisor.value_or(0));
    summary.set_touched(layout().width);
    summary.set_released(layout().width);
    return absl::OkStatus();
  }

 private:
  bool is_weighted() const { return layout().op->is_weighted(); }
  double DivisorValue() const { return is_weighted() ? weight_.value() : static_cast<double>(num_clients()); }

  std::unique_ptr<CellVector> cells_;
  WeightSum weight_;
};

}  // namespace

std::unique_ptr<OutputAccumulator> MakeDenseFold(const OutputLayout& layout) {
  return std::make_unique<DenseFold>(layout);
}

}  // namespace sheaf
