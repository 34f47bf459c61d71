#include "aggregation/cells/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "aggregation/exact/exact_kernels.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr uint8_t kNan = 1, kPlusInfinity = 2, kMinusInfinity = 4, kAllFlags = 7;
constexpr int kRun = ExactBlock::kRunMax;
static_assert(kCellChunk <= kRun);
// Bins of a state, in units of 32 bits. A checkpoint may have all but the last, into which it carries. Partial
// aggregates stay two bins, 2^64, below that: what any number of them that a round can count adds up to is still a
// checkpoint. Honest sums end far below: see ExactBlock::kExponentMax.
constexpr int kBinMax = ExactBlock::kExponentMax / ExactBlock::kDigitBits - 1;
constexpr int kBinMin = ExactBlock::kExponentMin / ExactBlock::kDigitBits;
constexpr int kBinMaxOfPartial = kBinMax - 2;

template <typename Float>
uint8_t FlagOf(Float value) {
  if (std::isnan(value)) return kNan;
  if (std::isinf(value)) return value > 0 ? kPlusInfinity : kMinusInfinity;
  return 0;
}

double FromFlags(uint8_t flags) {
  if (flags == kPlusInfinity) return std::numeric_limits<double>::infinity();
  if (flags == kMinusInfinity) return -std::numeric_limits<double>::infinity();
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

// Cell `at` is element at % block_size_ of block at / block_size_, or of the one block.
//
// Calls visit(block, offset in block, offset in run, count) for each piece of a run that lies in one block.
template <typename Visit>
void ExactSum::ForEachPiece(int64_t at, int64_t count, Visit visit) const {
  for (int64_t done = 0; done < count;) {
    const int64_t block = is_one_block() ? 0 : (at + done) / block_size_;
    const int64_t offset = is_one_block() ? at + done : (at + done) % block_size_;
    const int64_t room = is_one_block() ? kRun : block_size_ - offset;
    const int piece = static_cast<int>(std::min(room, count - done));
    visit(block, static_cast<int>(offset), done, piece);
    done += piece;
  }
}

ExactSum::ExactSum(v1::DType dtype, int block_size, ZeroedPool* pool)
    : dtype_(dtype), block_size_(block_size), shared_pool_(pool) {
  SHEAF_CHECK(dtype == v1::FLOAT32 || dtype == v1::FLOAT64);
  SHEAF_CHECK(0 <= block_size && block_size <= kRun);
}

void ExactSum::Resize(int64_t size) {
  SHEAF_CHECK(size >= size_);
  size_ = size;
  if (!is_one_block()) {
    blocks_.resize(static_cast<size_t>((size + block_size_ - 1) / block_size_));
    return;
  }
  if (size == 0) return;
  if (blocks_.empty()) blocks_.push_back(std::make_unique<ExactBlock>(static_cast<int>(size), shared_pool_));
  ExactBlock& block = *blocks_.front();
  if (size > block.size()) block.Grow(static_cast<int>(std::max(size, int64_t{block.size()} * 5 / 4)));
}

ExactBlock& ExactSum::BlockAt(int64_t block) {
  std::unique_ptr<ExactBlock>& pointer = blocks_[static_cast<size_t>(block)];
  if (pointer == nullptr) pointer = std::make_unique<ExactBlock>(block_size_, &pool_);
  return *pointer;
}

void ExactSum::Add(int64_t at, const char* values, int64_t count, float weight) {
  ForEachPiece(at, count, [&](int64_t block, int offset, int64_t done, int piece) {
    const char* const from = values + done * (dtype_ == v1::FLOAT32 ? 4 : 8);
    const bool is_finite = dtype_ == v1::FLOAT32 ? BlockAt(block).AddFloats(offset, from, piece, weight)
                                                 : BlockAt(block).AddDoubles(offset, from, piece, weight);
    if (!is_finite) AddAny(at + done, from, piece, weight);
  });
}

void ExactSum::AddScanned(int64_t at, const char* values, int64_t count, float weight,
                          std::span<const FloatRange> ranges) {
  const bool is_by_run = block_size_ == kRun || (block_size_ == count && at == 0);
  if (dtype_ != v1::FLOAT32 || !is_by_run) return Add(at, values, count, weight);
  ForEachPiece(at, count, [&](int64_t block, int offset, int64_t done, int piece) {
    const char* const from = values + done * static_cast<int64_t>(sizeof(float));
    const bool is_finite =
        BlockAt(block).AddFloats(offset, from, piece, weight, ranges[static_cast<size_t>(done / kRun)]);
    if (!is_finite) AddAny(at + done, from, piece, weight);
  });
}

void ExactSum::Prefetch(int64_t at, int64_t count) const {
  ForEachPiece(at, count, [this](int64_t block, int offset, int64_t, int piece) {
    const ExactBlock* const cells = blocks_[static_cast<size_t>(block)].get();
    if (cells != nullptr) cells->Prefetch(offset, piece);
  });
}

void ExactSum::AddAny(int64_t at, const char* values, int64_t count, float weight) {
  const auto add = [&](auto zero) {
    using Float = decltype(zero);
    for (int64_t i = 0; i < count; ++i) {
      const char* const raw = values + i * static_cast<int64_t>(sizeof(Float));
      Float value;
      std::memcpy(&value, raw, sizeof value);
      if (const uint8_t flag = FlagOf(value); flag != 0) {
        non_finite_[at + i] |= flag;
      } else {
        Add(at + i, raw, 1, weight);
      }
    }
  };
  dtype_ == v1::FLOAT32 ? add(0.0f) : add(0.0);
}

void ExactSum::AddScattered(const uint32_t* cells, const WideValue* values, int count, int precision) {
  SHEAF_CHECK(is_one_block());
  for (int done = 0; done < count; done += kRun) {
    const int n = std::min(kRun, count - done);
    double wide[kRun];
    std::memcpy(wide, values + done, static_cast<size_t>(n) * sizeof(double));
    if (blocks_.front()->AddScattered(cells + done, wide, n, precision)) continue;
    // Some are not finite, and nothing was added: one by one.
    for (int i = 0; i < n; ++i) {
      const uint8_t flag = FlagOf(wide[i]);
      if (flag != 0) non_finite_[cells[done + i]] |= flag;
      if (flag == 0) blocks_.front()->AddScattered(cells + done + i, wide + i, 1, precision);
    }
  }
}

void ExactSum::AddFrom(int64_t at, const CellVector& other_cells, int64_t other_at, int64_t count) {
  const auto& other = dynamic_cast<const ExactSum&>(other_cells);
  other.ForEachPiece(other_at, count, [&](int64_t other_block, int other_offset, int64_t other_done, int n) {
    const ExactBlock* from = other.blocks_[static_cast<size_t>(other_block)].get();
    if (from == nullptr) return;
    ForEachPiece(at + other_done, n, [&](int64_t block, int offset, int64_t done, int piece) {
      BlockAt(block).AddBlock(offset, *from, other_offset + static_cast<int>(done), piece);
    });
  });
  if (other.non_finite_.empty()) return;
  for (int64_t i = 0; i < count; ++i) {
    const auto found = other.non_finite_.find(other_at + i);
    if (found != other.non_finite_.end()) non_finite_[at + i] |= found->second;
  }
}

void ExactSum::AddBlock(int64_t at, const ExactBlock& from, int from_at, int count) {
  ForEachPiece(at, count, [&](int64_t block, int offset, int64_t done, int piece) {
    BlockAt(block).AddBlock(offset, from, from_at + static_cast<int>(done), piece);
  });
}

void ExactSum::Clear() {
  for (const auto& block : blocks_) {
    if (block != nullptr) block->Clear();
  }
  non_finite_.clear();
}

void ExactSum::WriteChunk(int64_t at, int count, StateWriter& out) const {
  SHEAF_CHECK(count <= kCellChunk);
  ExactBlock chunk = ExactBlock::WithCanonicalBins(count);
  ForEachPiece(at, count, [&](int64_t block, int offset, int64_t done, int piece) {
    const ExactBlock* from = blocks_[static_cast<size_t>(block)].get();
    if (from != nullptr) chunk.AddBlock(static_cast<int>(done), *from, offset, piece);
  });
  // From here on equal sums are equal digits, so that equal states are equal bytes.
  chunk.Normalise();
  absl::InlinedVector<const ExactBlock::Bin*, 4> nonzero;
  for (const ExactBlock::Bin& bin : chunk.bins()) {
    if (std::any_of(bin.digits, bin.digits + count, [](int64_t digit) { return digit != 0; })) nonzero.push_back(&bin);
  }
  out.Put<uint16_t>(static_cast<uint16_t>(nonzero.size()));
  for (const ExactBlock::Bin* bin : nonzero) {
    // What ReadDigits holds others to.
    SHEAF_CHECK(bin->exponent % ExactBlock::kDigitBits == 0 && FitInt32(bin->digits, count));
    out.Put<int16_t>(static_cast<int16_t>(bin->exponent / ExactBlock::kDigitBits));
    int32_t digits[kCellChunk];
    NarrowDigits(bin->digits, count, digits);
    out.PutArray(digits, count);
  }
  std::vector<std::pair<uint16_t, uint8_t>> flags;
  for (int i = 0; i < count && !non_finite_.empty(); ++i) {
    const auto found = non_finite_.find(at + i);
    if (found != non_finite_.end()) flags.emplace_back(static_cast<uint16_t>(i), found->second);
  }
  out.Put<uint16_t>(static_cast<uint16_t>(flags.size()));
  for (const auto& [cell, of_cell] : flags) {
    out.Put<uint16_t>(cell);
    out.Put<uint8_t>(of_cell);
  }
}

absl::Status ExactSum::ReadChunk(int64_t at, int count, StateReader& in, StateOrigin origin) {
  RETURN_IF_ERROR(ReadDigits(at, count, in, origin.source == StateSource::kCheckpoint ? kBinMax : kBinMaxOfPartial));
  RETURN_IF_ERROR(ReadFlags(at, count, in));
  if (origin.source != StateSource::kFinitePartialAggregate || non_finite_.empty()) return absl::OkStatus();
  return absl::DataLossError("the state holds NaN or infinities; this output takes finite values only");
}

absl::Status ExactSum::ReadDigits(int64_t at, int count, StateReader& in, int bin_max) {
  ASSIGN_OR_RETURN(const uint16_t num_bins, in.Get<uint16_t>());
  int last_index = kBinMin - 1;
  for (int b = 0; b < num_bins; ++b) {
    ASSIGN_OR_RETURN(const int16_t index, in.Get<int16_t>());
    int32_t digits[kCellChunk];
    RETURN_IF_ERROR(in.GetArray(digits, count));
    // Ascending, inside the range, and not empty: the one way WriteChunk writes them. Any 32 bits are a digit.
    const bool is_zero = std::all_of(digits, digits + count, [](int32_t digit) { return digit == 0; });
    if (index <= last_index || index > bin_max || is_zero)
      return absl::DataLossError("the state's digits are malformed");
    last_index = index;
    ForEachPiece(at, count, [&](int64_t block, int offset, int64_t done, int piece) {
      BlockAt(block).AddDigits(offset, index * ExactBlock::kDigitBits, digits + done, piece);
    });
  }
  return absl::OkStatus();
}

absl::Status ExactSum::ReadFlags(int64_t at, int count, StateReader& in) {
  ASSIGN_OR_RETURN(const uint16_t n, in.Get<uint16_t>());
  int last = -1;
  for (int i = 0; i < n; ++i) {
    ASSIGN_OR_RETURN(const uint16_t cell, in.Get<uint16_t>());
    ASSIGN_OR_RETURN(const uint8_t flags, in.Get<uint8_t>());
    if (cell <= last || cell >= count || flags == 0 || flags > kAllFlags) {
      return absl::DataLossError("the state's list of NaN and infinities is malformed");
    }
    last = cell;
    non_finite_[at + cell] = flags;
  }
  return absl::OkStatus();
}

template <typename Float>
void ExactSum::RoundTo(int64_t at, int64_t count, const ExactDivisors& divisors, char* values) const {
  ForEachPiece(at, count, [&](int64_t block, int offset, int64_t done, int piece) {
    Float sums[kRun];
    const ExactBlock* const from = blocks_[static_cast<size_t>(block)].get();
    if (from == nullptr) {
      std::fill_n(sums, piece, Float{0});
    } else if (divisors.empty()) {
      from->Round(offset, piece, sums);
    } else {
      from->Divide(offset, piece, divisors.Part(done, piece), sums);
    }
    std::memcpy(values + done * static_cast<int64_t>(sizeof(Float)), sums, static_cast<size_t>(piece) * sizeof(Float));
  });
  if (non_finite_.empty()) return;
  for (int64_t i = 0; i < count; ++i) {
    const auto found = non_finite_.find(at + i);
    if (found == non_finite_.end()) continue;
    const Float value = static_cast<Float>(FromFlags(found->second));
    std::memcpy(values + i * static_cast<int64_t>(sizeof(Float)), &value, sizeof(Float));
  }
}

int64_t ExactSum::Round(int64_t at, int64_t count, const ExactDivisors& divisors, char* values) const {
  dtype_ == v1::FLOAT32 ? RoundTo<float>(at, count, divisors, values) : RoundTo<double>(at, count, divisors, values);
  return count;
}

void ExactSum::ToDivisors(int64_t at, int64_t count, ExactDivisorColumns& divisors) const {
  divisors.upper.assign(static_cast<size_t>(count), 0);
  divisors.lower.assign(static_cast<size_t>(count), 0);
  divisors.whole.clear();
  ForEachPiece(at, count, [&](int64_t block, int offset, int64_t done, int piece) {
    const ExactBlock* const from = blocks_[static_cast<size_t>(block)].get();
    if (from != nullptr) from->ToDivisors(offset, piece, done, divisors);
  });
}

int ExactSum::most_bins() const {
  size_t bins = 0;
  for (const auto& block : blocks_) {
    if (block != nullptr) bins = std::max(bins, block->bins().size());
  }
  return static_cast<int>(bins);
}

int64_t ExactSum::memory_bytes() const {
  int64_t bytes = static_cast<int64_t>(sizeof *this + blocks_.size() * sizeof(blocks_[0]) + non_finite_.size() * 24) +
                  pool_.allocated_bytes();
  for (const auto& block : blocks_) {
    if (block == nullptr) continue;
    bytes += is_one_block() ? block->memory_bytes()
                            : static_cast<int64_t>(sizeof(ExactBlock) + block->bins().size() * sizeof(ExactBlock::Bin));
  }
  return bytes;
}

}  // namespace sheaf
