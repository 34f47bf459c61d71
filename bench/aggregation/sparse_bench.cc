// Whole rounds of sparse contributions, from the bytes that workers send to the released, sorted result: Validate of
// each, Accumulate of as many as a server folds together, and Release, in pieces. Beside them, numeric libraries that
// are handed the same entries all at once.
#include <benchmark/benchmark.h>

#include <Eigen/SparseCore>
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "aggregation/round_accumulator.h"
#include "aggregation/wire/safetensors.h"
#include "base/check.h"
#include "base/clock.h"
#include "bench/aggregation/inputs.h"
#include "bench/aggregation/threads.h"

namespace sheaf {
namespace {

constexpr SparseShape kEntries{.dimension = 10'000'000, .num_contributions = 100, .entries = 100'000};
constexpr SparseShape kZipf{.dimension = 10'000'000, .num_contributions = 100, .entries = 100'000, .is_zipf = true};
constexpr SparseShape kHuge{.dimension = 1'000'000'000, .num_contributions = 100, .entries = 100'000};
constexpr SparseShape kRows{.dimension = 1'000'000, .num_contributions = 1000, .entries = 1000, .width = 64};

// Times what `work` does, by the wall clock.
template <typename Work>
void Time(benchmark::State& state, int64_t items, Work work) {
  const SystemClock clock;
  for (auto _ : state) {
    const absl::Time begin = clock.Now();
    work();
    state.SetIterationTime(absl::ToDoubleSeconds(clock.Now() - begin));
  }
  state.SetItemsProcessed(state.iterations() * items);
}

v1::AggregateSpec SpecOf(const std::string& op, const SparseShape& shape, v1::Numerics numerics, int index_dims = 0) {
  std::vector<int64_t> dense_shape = {shape.dimension};
  if (shape.width > 1) dense_shape.push_back(shape.width);
  v1::AggregateSpec spec = MakeSpec(op, dense_shape, numerics);
  spec.mutable_outputs(0)->set_index_dims(index_dims);
  return spec;
}

// As FoldStrand: so many bytes that wait are folded together.
constexpr int64_t kBatchBytes = 4 << 20;

void FoldSparse(benchmark::State& state, const std::string& op, const SparseShape& shape, v1::Numerics numerics,
                int index_dims = 0) {
  const SparseInput& input = MakeSparseInput(shape);
  const v1::AggregateSpec spec = SpecOf(op, shape, numerics, index_dims);
  const SystemClock clock;
  for (auto _ : state) {
    RoundAccumulator sum = RoundAccumulator::Create(spec).value();
    absl::Duration spent;
    for (size_t done = 0; done < input.contributions.size();) {
      std::vector<v1::Contribution> received;
      for (int64_t bytes = 0; done < input.contributions.size(); ++done) {
        const v1::Contribution& next = input.contributions[done];
        bytes += static_cast<int64_t>(next.ByteSizeLong());
        if (bytes > kBatchBytes && !received.empty()) break;
        received.push_back(next);
      }
      const absl::Time begin = clock.Now();
      std::vector<std::optional<ValidContribution>> valid(received.size());
      Threads().Run(static_cast<int>(received.size()), [&](int i) {
        const auto one = static_cast<size_t>(i);
        valid[one] = sum.validator()->Validate(std::move(received[one])).value();
      });
      std::vector<const ValidContribution*> batch;
      for (const auto& one : valid) batch.push_back(&*one);
      sum.Accumulate(batch, Threads());
      spent += clock.Now() - begin;
    }
    const double memory = static_cast<double>(sum.memory_bytes());
    const absl::Time begin = clock.Now();
    const AggregateRelease release = std::move(sum).Release(Threads()).value();
    const absl::Status written = WriteSafetensors(release.tensors, {}, Copy);
    spent += clock.Now() - begin;
    SHEAF_CHECK(written.ok(), "{}", written.ToString());
    state.SetIterationTime(absl::ToDoubleSeconds(spent));
    const double released = static_cast<double>(release.outputs[0].released());
    state.counters["union"] = released;
    state.counters["bytes_per_coordinate"] = memory / released;
  }
  state.SetItemsProcessed(state.iterations() * input.num_entries());
}

void SparseF64(benchmark::State& state) { FoldSparse(state, "sparse_sum", kEntries, v1::F64); }
void SparseExact(benchmark::State& state) { FoldSparse(state, "sparse_sum", kEntries, v1::EXACT); }
void SparseCoordinateMeanExact(benchmark::State& state) { FoldSparse(state, "coordinate_mean", kEntries, v1::EXACT); }
void SparseZipfF64(benchmark::State& state) { FoldSparse(state, "sparse_sum", kZipf, v1::F64); }
void SparseZipfExact(benchmark::State& state) { FoldSparse(state, "sparse_sum", kZipf, v1::EXACT); }
void SparseHugeF64(benchmark::State& state) { FoldSparse(state, "sparse_sum", kHuge, v1::F64); }
void SparseHugeExact(benchmark::State& state) { FoldSparse(state, "sparse_sum", kHuge, v1::EXACT); }
void RowsF32(benchmark::State& state) { FoldSparse(state, "slices_sum", kRows, v1::F32); }
void RowsF64(benchmark::State& state) { FoldSparse(state, "slices_sum", kRows, v1::F64); }
void RowsExact(benchmark::State& state) { FoldSparse(state, "slices_sum", kRows, v1::EXACT); }
void RowsToDenseF32(benchmark::State& state) { FoldSparse(state, "sparse_sum_to_dense", kRows, v1::F32, 1); }
void RowsToDenseF64(benchmark::State& state) { FoldSparse(state, "sparse_sum_to_dense", kRows, v1::F64, 1); }
void RowsToDenseExact(benchmark::State& state) { FoldSparse(state, "sparse_sum_to_dense", kRows, v1::EXACT, 1); }

// All that releasing takes, once every contribution is folded.
void ReleaseSparse(benchmark::State& state, const std::string& op, const SparseShape& shape, v1::Numerics numerics) {
  const SparseInput& input = MakeSparseInput(shape);
  const SystemClock clock;
  int64_t released = 0;
  for (auto _ : state) {
    RoundAccumulator sum = RoundAccumulator::Create(SpecOf(op, shape, numerics)).value();
    for (const v1::Contribution& contribution : input.contributions) sum.Accumulate(sum.Validate(contribution).value());
    const absl::Time begin = clock.Now();
    const AggregateRelease release = std::move(sum).Release(Threads()).value();
    const absl::Status written = WriteSafetensors(release.tensors, {}, Take);
    state.SetIterationTime(absl::ToDoubleSeconds(clock.Now() - begin));
    SHEAF_CHECK(written.ok(), "{}", written.ToString());
    released += release.outputs[0].released();
  }
  state.SetItemsProcessed(released);
}

void ReleaseSparseExact(benchmark::State& state) { ReleaseSparse(state, "sparse_sum", kEntries, v1::EXACT); }
void ReleaseRowsF32(benchmark::State& state) { ReleaseSparse(state, "slices_sum", kRows, v1::F32); }
void ReleaseRowsF64(benchmark::State& state) { ReleaseSparse(state, "slices_sum", kRows, v1::F64); }
void ReleaseRowsExact(benchmark::State& state) { ReleaseSparse(state, "slices_sum", kRows, v1::EXACT); }

// One large contribution.
void ValidateSparse(benchmark::State& state, const std::string& op, const SparseShape& shape) {
  v1::Contribution contribution = MakeSparseInput(shape).contributions.front();
  const RoundAccumulator sum = RoundAccumulator::Create(SpecOf(op, shape, v1::EXACT)).value();
  const SystemClock clock;
  for (auto _ : state) {
    const absl::Time begin = clock.Now();
    contribution = sum.validator()->Validate(std::move(contribution), Threads()).value().Take();
    state.SetIterationTime(absl::ToDoubleSeconds(clock.Now() - begin));
  }
  state.SetItemsProcessed(state.iterations() * shape.entries);
}

constexpr SparseShape kLargeEntries{.dimension = 10'000'000, .num_contributions = 1, .entries = 4'000'000};
constexpr SparseShape kLargeRows{.dimension = 1'000'000, .num_contributions = 1, .entries = 250'000, .width = 64};
constexpr SparseShape kSmallEntries{.dimension = 10'000'000, .num_contributions = 1, .entries = 1'000};
void ValidateEntries(benchmark::State& state) { ValidateSparse(state, "sparse_sum", kLargeEntries); }
void ValidateRows(benchmark::State& state) { ValidateSparse(state, "slices_sum", kLargeRows); }
void ValidateFewEntries(benchmark::State& state) { ValidateSparse(state, "sparse_sum", kSmallEntries); }

using Pairs = std::vector<std::pair<int64_t, double>>;

void SumInHashMap(benchmark::State& state, const SparseShape& shape) {
  const SparseInput& input = MakeSparseInput(shape);
  Time(state, input.num_entries(), [&input] {
    absl::flat_hash_map<int64_t, double> sums;
    for (size_t i = 0; i < input.indices.size(); ++i) sums[input.indices[i]] += static_cast<double>(input.values[i]);
    Pairs sorted(sums.begin(), sums.end());
    std::sort(sorted.begin(), sorted.end());
    benchmark::DoNotOptimize(sorted.data());
  });
}
void YardstickHashMap(benchmark::State& state) { SumInHashMap(state, kEntries); }
void YardstickHashMapZipf(benchmark::State& state) { SumInHashMap(state, kZipf); }
void YardstickHashMapHuge(benchmark::State& state) { SumInHashMap(state, kHuge); }

void YardstickEigenTriplets(benchmark::State& state) {
  const SparseInput& input = MakeSparseInput(kEntries);
  std::vector<Eigen::Triplet<double, int64_t>> triplets;
  for (size_t i = 0; i < input.indices.size(); ++i) {
    triplets.emplace_back(input.indices[i], 0, static_cast<double>(input.values[i]));
  }
  Time(state, input.num_entries(), [&triplets] {
    Eigen::SparseMatrix<double, Eigen::ColMajor, int64_t> sum(kEntries.dimension, 1);
    sum.setFromTriplets(triplets.begin(), triplets.end());
    benchmark::DoNotOptimize(sum.valuePtr());
  });
}

// What summing sparse tensors two by two amounts to, as with tf.sparse.add: each contribution, sorted, is merged into
// the sum so far. Of the first ten contributions: the time per entry grows with their number.
void YardstickPairwiseMerge(benchmark::State& state) {
  const SparseInput& input = MakeSparseInput(kEntries);
  constexpr int64_t kContributions = 10;
  Time(state, kContributions * kEntries.entries, [&input] {
    Pairs sum;
    for (int64_t c = 0; c < kContributions; ++c) {
      Pairs next;
      for (int64_t i = c * kEntries.entries; i < (c + 1) * kEntries.entries; ++i) {
        next.emplace_back(input.indices[static_cast<size_t>(i)], input.values[static_cast<size_t>(i)]);
      }
      std::sort(next.begin(), next.end());
      Pairs merged;
      merged.reserve(sum.size() + next.size());
      for (size_t a = 0, b = 0; a < sum.size() || b < next.size();) {
        if (b == next.size() || (a < sum.size() && sum[a].first < next[b].first)) {
          merged.push_back(sum[a++]);
        } else if (a == sum.size() || next[b].first < sum[a].first) {
          merged.push_back(next[b++]);
        } else {
          merged.emplace_back(sum[a].first, sum[a].second + next[b].second), ++a, ++b;
        }
      }
      sum.swap(merged);
    }
    benchmark::DoNotOptimize(sum.data());
  });
}

#define SHEAF_MEASURE(function) BENCHMARK(function)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(1)
SHEAF_MEASURE(SparseF64);
SHEAF_MEASURE(SparseExact);
SHEAF_MEASURE(SparseCoordinateMeanExact);
SHEAF_MEASURE(YardstickHashMap);
SHEAF_MEASURE(YardstickEigenTriplets);
SHEAF_MEASURE(YardstickPairwiseMerge);
SHEAF_MEASURE(SparseZipfF64);
SHEAF_MEASURE(SparseZipfExact);
SHEAF_MEASURE(YardstickHashMapZipf);
SHEAF_MEASURE(SparseHugeF64);
SHEAF_MEASURE(SparseHugeExact);
SHEAF_MEASURE(YardstickHashMapHuge);
SHEAF_MEASURE(RowsF32);
SHEAF_MEASURE(RowsF64);
SHEAF_MEASURE(RowsExact);
SHEAF_MEASURE(RowsToDenseF32);
SHEAF_MEASURE(RowsToDenseF64);
SHEAF_MEASURE(RowsToDenseExact);
SHEAF_MEASURE(ReleaseSparseExact);
SHEAF_MEASURE(ReleaseRowsF32);
SHEAF_MEASURE(ReleaseRowsF64);
SHEAF_MEASURE(ReleaseRowsExact);
BENCHMARK(ValidateEntries)->UseManualTime();
BENCHMARK(ValidateRows)->UseManualTime();
BENCHMARK(ValidateFewEntries)->UseManualTime();

}  // namespace
}  // namespace sheaf
