// One tensor folded into a running sum, again and again; beside it what any such fold costs at least.
#include <benchmark/benchmark.h>

#include <cstring>
#include <utility>
#include <vector>

#include "aggregation/round_accumulator.h"
#include "bench/aggregation/inputs.h"
#include "bench/aggregation/threads.h"

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

void ValidateDense(benchmark::State& state, v1::Numerics numerics) {
  const int64_t n = state.range(0);
  const RoundAccumulator sum = RoundAccumulator::Create(MakeSpec("sum", {n}, numerics)).value();
  v1::Contribution contribution = MakeDenseInput(n);
  for (auto _ : state) {
    contribution = sum.validator()->Validate(std::move(contribution), Threads()).value().Take();
  }
  state.SetItemsProcessed(state.iterations() * n);
}

void ValidateDenseExact(benchmark::State& state) { ValidateDense(state, v1::EXACT); }
void ValidateDenseF64(benchmark::State& state) { ValidateDense(state, v1::F64); }

// A mean is released: its sum divided and rounded; and beside it the sum itself.
void ReleaseDense(benchmark::State& state, const char* op, v1::Numerics numerics = v1::EXACT) {
  const int64_t n = state.range(0);
  RoundAccumulator sum = RoundAccumulator::Create(MakeSpec(op, {n}, numerics)).value();
  const ValidContribution valid = sum.Validate(MakeDenseInput(n)).value();
  for (int i = 0; i < 3; ++i) sum.Accumulate(valid);
  const AggregateRelease release = std::move(sum).Release(Threads()).value();
  for (auto _ : state) {
    for (const ReleasedTensor& tensor : release.tensors) {
      const absl::Status written = tensor.write(Take);
      if (!written.ok()) state.SkipWithError(written.ToString().c_str());
    }
  }
  state.SetItemsProcessed(state.iterations() * n);
}

void ReleaseDenseMean(benchmark::State& state) { ReleaseDense(state, "mean"); }
void ReleaseDenseExact(benchmark::State& state) { ReleaseDense(state, "sum"); }
void ReleaseDenseF64(benchmark::State& state) { ReleaseDense(state, "sum", v1::F64); }

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
// By several threads, beside each other: by the wall clock.
#define SHEAF_MEASURE(function) BENCHMARK(function)->UseRealTime()
SHEAF_MEASURE(ValidateDenseExact)->Arg(kSmall)->Arg(kLarge);
SHEAF_MEASURE(ValidateDenseF64)->Arg(kSmall)->Arg(kLarge);
SHEAF_MEASURE(ReleaseDenseExact)->Arg(kSmall)->Arg(kMiddle)->Arg(kLarge);
SHEAF_MEASURE(ReleaseDenseMean)->Arg(kMiddle);
SHEAF_MEASURE(ReleaseDenseF64)->Arg(kSmall)->Arg(kLarge);
BENCHMARK(YardstickPlainDouble)->Arg(kSmall)->Arg(kMiddle)->Arg(kLarge);
BENCHMARK(YardstickMemcpy)->Arg(kSmall)->Arg(kMiddle)->Arg(kLarge);

}  // namespace
}  // namespace sheaf
