// `mean_of_squares`: element by element, the sum of the squares of all contributions divided by their number. An
// operator of our own, on Sheaf's exact cells.
//
// Each square is rounded to a double, which is exact for FLOAT32; their sum is exact under any numerics. Identity:
// zeros. Merge: element-wise. Cost: 24 bytes of state per element. A mean of no contributions is released as zeros.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "aggregation/cells/cell_stream.h"
#include "aggregation/cells/make_cells.h"
#include "aggregation/output/operator.h"
#include "aggregation/output/output_accumulator.h"

// An element of a contribution: bytes of FLOAT32 or FLOAT64, little-endian, anywhere in memory.
inline double ElementAt(sheaf::v1::DType dtype, const char* data, int64_t i) {
  float narrow;
  double wide;
  if (dtype == sheaf::v1::FLOAT32) return std::memcpy(&narrow, data + 4 * i, 4), narrow;
  return std::memcpy(&wide, data + 8 * i, 8), wide;
}

class MeanOfSquares final : public sheaf::OutputAccumulator {
 public:
  // How the squares are added up; whatever the round's own numerics are.
  MeanOfSquares(const sheaf::OutputLayout& output, sheaf::v1::Numerics numerics)
      : OutputAccumulator(output),
        type_{.reduction = sheaf::Reduction::kSum, .dtype = sheaf::v1::FLOAT64, .numerics = numerics},
        sums_(sheaf::MakeCells(type_, {.size_hint = output.width})) {
    sums_->Resize(output.width);
  }

  int64_t memory_bytes() const override { return sums_->memory_bytes(); }

 protected:
  // Of one contribution each. Cannot fail: shape, dtype and finiteness were checked before.
  void DoAccumulate(sheaf::CheckedValues values, sheaf::ParallelFor&) override {
    std::vector<double> squares(static_cast<size_t>(layout().width));
    for (const sheaf::CheckedValue* const value : values) {
      for (int64_t i = 0; i < layout().width; ++i) {
        const double element = ElementAt(layout().dtype, value->data.data(), i);
        squares[static_cast<size_t>(i)] = element * element;
      }
      sums_->Add(0, reinterpret_cast<const char*>(squares.data()), layout().width, 1);
    }
  }

  void DoMerge(const sheaf::OutputAccumulator& other) override {
    sums_->AddFrom(0, *dynamic_cast<const MeanOfSquares&>(other).sums_, 0, layout().width);
  }

  // Canonical: equal sums, equal bytes. The base class adds the number of clients, the output's name and a checksum.
  void DoWrite(sheaf::StateWriter& out) const override {
    sheaf::CellStreamWriter cells(type_, out);
    cells.Append(*sums_, 0, layout().width);
    cells.Finish();
  }

  // The bytes may come from anybody: DATA_LOSS if DoWrite cannot have written them.
  absl::Status DoRead(sheaf::StateReader& in, sheaf::StateOrigin origin) override {
    return sheaf::ReadCells(*sums_, layout().width, in, origin);
  }

  absl::Status DoRelease(sheaf::AggregateRelease& release, sheaf::v1::OutputSummary& summary,
                         sheaf::ParallelFor&) const override {
    const auto divisor = sheaf::ExactDivisor::OfCount(std::max<int64_t>(num_clients(), 1));
    std::vector<double> means(static_cast<size_t>(layout().width));
    sums_->Round(0, layout().width, divisor, reinterpret_cast<char*>(means.data()));
    sheaf::NamedTensor tensor{.name = layout().name, .dtype = layout().dtype, .shape = layout().shape, .data = {}};
    for (const double mean : means) {
      const float narrow = static_cast<float>(mean);
      if (layout().dtype == sheaf::v1::FLOAT32) tensor.data.append(reinterpret_cast<const char*>(&narrow), 4);
      if (layout().dtype == sheaf::v1::FLOAT64) tensor.data.append(reinterpret_cast<const char*>(&mean), 8);
    }
    release.tensors.push_back(sheaf::ReleaseWhole(std::move(tensor)));
    summary.set_divisor_value(static_cast<double>(num_clients()));
    summary.set_touched(layout().width);
    summary.set_released(layout().width);
    return absl::OkStatus();
  }

 private:
  const sheaf::CellType type_;
  std::unique_ptr<sheaf::CellVector> sums_;
};

inline constexpr sheaf::Operator kMeanOfSquares = {
    .symbol = "mean_of_squares",
    .operand = sheaf::Operand::kDense,
    .reduction = sheaf::Reduction::kSum,
    // Fills in OutputSummary.divisor; and a mean takes FLOAT32 and FLOAT64 only.
    .divisor = sheaf::Divisor::kCount,
    .releases_dense = true,
    .default_index_dims = sheaf::kAllDims,
    .create = [](const sheaf::OutputLayout& layout) -> std::unique_ptr<sheaf::OutputAccumulator> {
      return std::make_unique<MeanOfSquares>(layout, sheaf::v1::EXACT);
    },
    .meaning = "element by element, the mean of the squares of all contributions",
};
