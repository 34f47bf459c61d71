// Holds `mean_of_squares` to the laws of operators; and shows that they find one that breaks them.
#include "mean_of_squares.h"

#include <cmath>
#include <cstdio>

#include "aggregation/exact/fixed_point.h"
#include "tests/conformance/operator_suite.h"

using namespace sheaf;

// The slow and obvious way, from the contributions alone.
absl::StatusOr<AggregateReport> MeanOfSquaresOracle(const OperatorTrial& trial) {
  const v1::OutputSpec& output = trial.spec.outputs(0);
  const int64_t n = static_cast<int64_t>(trial.contributions.size());
  AggregateReport report;
  report.num_contributions = report.num_clients = n;
  NamedTensor mean{.name = output.name(), .dtype = output.dtype(), .shape = {output.dense_shape(0)}};
  for (int64_t i = 0; i < output.dense_shape(0); ++i) {
    FixedPoint sum;  // 2624 bits: no rounding.
    for (const v1::Contribution& contribution : trial.contributions) {
      const double element = ElementAt(output.dtype(), contribution.outputs(0).dense().data().data(), i);
      sum.AddProduct(element * element, 1);
    }
    FixedPoint count;
    count.AddProduct(static_cast<double>(n), 1);
    const double wide = n == 0 ? 0 : sum.QuotientToDouble(count);
    const float narrow = static_cast<float>(wide);
    if (output.dtype() == v1::FLOAT32) mean.data.append(reinterpret_cast<const char*>(&narrow), 4);
    if (output.dtype() == v1::FLOAT64) mean.data.append(reinterpret_cast<const char*>(&wide), 8);
  }
  report.tensors = {mean};
  v1::OutputSummary& summary = report.outputs.emplace_back();
  summary.set_name(output.name());
  summary.set_operator_(output.operator_());
  summary.set_divisor(std::string(DivisorText(Divisor::kCount)));
  summary.set_divisor_value(static_cast<double>(n));
  summary.set_touched(output.dense_shape(0));
  summary.set_released(output.dense_shape(0));
  return report;
}

// Up to six contributions of up to eight elements, large, small and of both signs.
OperatorTrial RandomTrial(const Operator& op, Random& random) {
  OperatorTrial trial;
  v1::OutputSpec& output = *trial.spec.add_outputs();
  output.set_name("w");
  output.set_operator_(std::string(op.symbol));
  output.set_dtype(random.Chance(0.5) ? v1::FLOAT32 : v1::FLOAT64);
  output.add_dense_shape(static_cast<int64_t>(random.Below(9)));
  for (uint64_t n = random.Below(7); n > 0; --n) {
    v1::OutputValue& value = *trial.contributions.emplace_back().add_outputs();
    value.set_name("w");
    v1::Tensor& tensor = *value.mutable_dense();
    tensor.set_dtype(output.dtype());
    tensor.add_shape(output.dense_shape(0));
    for (int64_t i = 0; i < output.dense_shape(0); ++i) {
      const double wide = std::ldexp(random.Fraction() - 0.5, static_cast<int>(random.Below(200)) - 100);
      const float narrow = static_cast<float>(wide);
      if (output.dtype() == v1::FLOAT32) tensor.mutable_data()->append(reinterpret_cast<const char*>(&narrow), 4);
      if (output.dtype() == v1::FLOAT64) tensor.mutable_data()->append(reinterpret_cast<const char*>(&wide), 8);
    }
  }
  return trial;
}

absl::Status CheckLaws(const Operator& op) {
  const OperatorSuite suite{.operators = {&op, 1}, .oracle = MeanOfSquaresOracle};
  return suite.CheckMany(2000, [&op](Random& random) { return RandomTrial(op, random); });
}

int main() {
  const absl::Status status = CheckLaws(kMeanOfSquares);
  std::printf("mean_of_squares: %s\n", status.ToString().c_str());

  // The same in plain doubles, whose addition is not associative: this one must be found out.
  Operator plain = kMeanOfSquares;
  plain.symbol = "plain_mean_of_squares";
  plain.create = [](const OutputLayout& layout) -> std::unique_ptr<OutputAccumulator> {
    return std::make_unique<MeanOfSquares>(layout, v1::F64);
  };
  const std::string broken = CheckLaws(plain).ToString();
  std::printf("plain_mean_of_squares: %s\n", broken.substr(0, broken.find('\n')).c_str());

  const bool is_found_out = broken.find(" shows: ") != std::string::npos;
  return status.ok() && is_found_out ? 0 : 1;
}
