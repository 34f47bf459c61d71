// One tensor folded into a running sum, again and again; beside it what any such fold costs at least.
#include <benchmark/benchmark.h>

#include <cstring>
#include <utility>
#include <vector>

#include "aggregation/round_accumulator.h"
#include "bench/aggregation/inputs.h"

namespace sheaf {
namespace {

void FoldDense(benchmark::State& state, v1::Numerics numerics) {
  const int64_t n = state.range(0);
  RoundAccumulator sum = RoundAccumulator::Create(MakeSpec("sum", {n}, numerics)).value();
  const ValidContribution valid = sum.Validate(MakeDenseInput(n)).value();
  sum.Accumulate(valid);
  for (auto _ : state) sum.Accumulate(valid);
  state.SetItemsProcessed(state.iterations() * n);
}

// A mean is released: its sum divided and rounded; and beside it the sum itself.
void ReleaseDense(benchmark::State& state, const char* op) {
  const int64_t n = state.range(0);
  RoundAccumulator sum = RoundAccumulator::Create(MakeSpec(op, {n}, v1::EXACT)).value();
  const ValidContribution valid = sum.Validate(MakeDenseInput(n)).value();
  for (int i = 0; i < 3; ++i) sum.Accumulate(valid);
  const AggregateRelease release = std::move(sum).Release().value();
  for (auto _ : state) {
    for (const ReleasedTensor& tensor : release.tensors) {
      const absl::Status written = tensor.write([](std::string_view piece) {
        benchmark::DoNotOptimize(piece.data());
        return absl::OkStatus();
      });
      if (!written.ok()) state.SkipWithError(written.ToString().c_str());
    }
  }
  state.SetItemsProcessed(state.iterations() * n);
}

void ReleaseDenseSum(benchmark::State& state) { ReleaseDense(state, "sum"); }
void ReleaseDenseMean(benchmark::State& state) { ReleaseDense(state, "mean"); }

void DenseExact(benchmark::State& state) { FoldDense(state, v1::EXACT); }
void DenseF64(benchmark::State& state) { FoldDense(state, v1::F64); }

__attribute__((optimize("O3"), target_clones("arch=x86-64-v3", "default"))) void AddFloats(double* __restrict sums,
                                                                                           const float* __restrict from,
                                                                                           int64_t n) {
  for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(from[i]);
}

void YardstickPlainDouble(benchmark::State& state) {
  const int64_t n = state.range(0);
  const v1::Contribution contribution = MakeDenseInput(n);
  std::vector<float> values(static_cast<size_t>(n));
  std::memcpy(values.data(), contribution.outputs(0).dense().data().data(), values.size() * sizeof(float));
  std::vector<double> sums(static_cast<size_t>(n));
  for (auto _ : state) {
    AddFloats(sums.data(), values.data(), n);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * n);
}

void YardstickMemcpy(benchmark::State& state) {
  const size_t n = static_cast<size_t>(state.range(0));
  const std::vector<float> from(n, 1.0f);
  std::vector<float> to(n);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), n * sizeof(float));
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

constexpr int64_t kSmall = 4096, kMiddle = 1'000'000, kLarge = 16'000'000;
BENCHMARK(DenseExact)->Arg(kSmall)->Arg(kMiddle)->Arg(kLarge);
BENCHMARK(DenseF64)->Arg(kSmall)->Arg(kMiddle)->Arg(kLarge);
BENCHMARK(ReleaseDenseSum)->Arg(kMiddle);
BENCHMARK(ReleaseDenseMean)->Arg(kMiddle);
BENCHMARK(YardstickPlainDouble)->Arg(kSmall)->Arg(kMiddle)->Arg(kLarge);
BENCHMARK(YardstickMemcpy)->Arg(kSmall)->Arg(kMiddle)->Arg(kLarge);

}  // namespace
}  // namespace sheaf
