#include "aggregation/operators/dense_sum.h"

#include "aggregation/operators.h"
#include "aggregation/operators/weight_sum.h"
#include "aggregation/safetensors.h"

namespace sheaf {
namespace {

class DenseSum final : public OutputAccumulator {
 public:
  explicit DenseSum(const OutputLayout& output)
      : OutputAccumulator(output), sums_(MakeSumVector(output.dtype, output.width)) {
    sums_->Resize(output.width);
  }

  int64_t memory_bytes() const override { return sums_->memory_bytes(); }

 protected:
  void DoAccumulate(const CheckedValue& value) override {
    const float weight = is_weighted() ? value.weight : 1.0f;
    sums_->Add(0, value.data.data(), layout().width, weight);
    if (is_weighted()) weight_.Add(weight);
  }

  void DoMerge(const OutputAccumulator& other) override {
    const auto& from = dynamic_cast<const DenseSum&>(other);
    sums_->AddFrom(0, *from.sums_, 0, layout().width);
    weight_.Merge(from.weight_);
  }

  void DoWrite(StateWriter& out) const override {
    if (is_weighted()) weight_.Write(out);
    const ElementRun all{0, layout().width};
    sums_->Write({&all, 1}, out);
  }

  absl::Status DoRead(StateReader& in, StateOrigin origin) override {
    if (is_weighted()) RETURN_IF_ERROR(weight_.Read(in, origin, num_clients() > 0));
    return sums_->Read(in, origin);
  }

  absl::Status DoReport(AggregateReport& report, v1::OutputSummary& summary) const override {
    NamedTensor tensor{.name = layout().name, .dtype = layout().dtype, .shape = layout().shape, .data = {}};
    tensor.data.resize(static_cast<size_t>(layout().width * DTypeSize(layout().dtype)));
    std::optional<double> divisor;
    if (layout().op->divisor != Divisor::kNone && num_clients() > 0) divisor = DivisorValue();
    const int64_t num_fitting = sums_->Round(0, layout().width, divisor, tensor.data.data());
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

  std::unique_ptr<SumVector> sums_;
  WeightSum weight_;
};

}  // namespace

std::unique_ptr<OutputAccumulator> MakeDenseSum(const OutputLayout& layout) {
  return std::make_unique<DenseSum>(layout);
}

}  // namespace sheaf
