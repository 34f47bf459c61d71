#include "aggregation/exact_sum.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "aggregation/exact_kernels.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr uint8_t kNan = 1, kPlusInfinity = 2, kMinusInfinity = 4, kAllFlags = 7;
// Serialised sums come in chunks of this many elements, whatever the blocks in memory.
constexpr int kChunk = ExactBlock::kSizeMax;
// So far from the last bin that carries of any number of partial aggregates stay inside.
constexpr int kBinMaxOfPartial = ExactBlock::kBinMax - 2;

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

// Calls visit(block, offset in block, offset in run, count) for each piece of a run that lies in one block.
template <typename Visit>
void ForEachPiece(int64_t at, int64_t count, int block_size, Visit visit) {
  for (int64_t done = 0; done < count;) {
    const int64_t block = (at + done) / block_size;
    const int offset = static_cast<int>((at + done) % block_size);
    const int piece = static_cast<int>(std::min<int64_t>(block_size - offset, count - done));
    visit(block, offset, done, piece);
    done += piece;
  }
}

void WriteChunk(ExactBlock& chunk, int count, StateWriter& out) {
  chunk.Normalise();
  out.Put<uint16_t>(static_cast<uint16_t>(chunk.bins().size()));
  for (const ExactBlock::Bin& bin : chunk.bins()) {
    out.Put<int16_t>(static_cast<int16_t>(bin.index));
    int32_t digits[kChunk];
    for (int i = 0; i < count; ++i) digits[i] = static_cast<int32_t>(bin.digits[i]);
    out.PutArray(digits, count);
  }
}

}  // namespace

ExactSum::ExactSum(v1::DType dtype, int block_size) : dtype_(dtype), block_size_(block_size) {
  SHEAF_CHECK(dtype == v1::FLOAT32 || dtype == v1::FLOAT64);
  SHEAF_CHECK(0 < block_size && block_size <= ExactBlock::kSizeMax);
}

void ExactSum::Resize(int64_t size) {
  SHEAF_CHECK(size >= size_);
  size_ = size;
  blocks_.resize(static_cast<size_t>((size + block_size_ - 1) / block_size_));
}

ExactBlock& ExactSum::BlockAt(int64_t block) {
  BlockPointer& pointer = blocks_[static_cast<size_t>(block)];
  if (pointer == nullptr) pointer = std::make_unique<ExactBlock>(block_size_);
  return *pointer;
}

void ExactSum::Add(int64_t at, const char* values, int64_t count, float weight) {
  const bool is_finite = dtype_ == v1::FLOAT32 ? AllFinite32(values, count) : AllFinite64(values, count);
  is_finite ? AddFinite(at, values, count, weight) : AddAny(at, values, count, weight);
}

void ExactSum::AddFinite(int64_t at, const char* values, int64_t count, float weight) {
  ForEachPiece(at, count, block_size_, [&](int64_t block, int offset, int64_t done, int piece) {
    if (dtype_ == v1::FLOAT32) {
      BlockAt(block).AddFloats(offset, values + 4 * done, piece, weight);
    } else {
      BlockAt(block).AddDoubles(offset, values + 8 * done, piece, weight);
    }
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
        AddFinite(at + i, raw, 1, weight);
      }
    }
  };
  dtype_ == v1::FLOAT32 ? add(0.0f) : add(0.0);
}

void ExactSum::AddFrom(int64_t at, const SumVector& other_sums, int64_t other_at, int64_t count) {
  const auto& other = dynamic_cast<const ExactSum&>(other_sums);
  ForEachPiece(other_at, count, other.block_size_,
               [&](int64_t other_block, int other_offset, int64_t other_done, int n) {
                 const ExactBlock* from = other.blocks_[static_cast<size_t>(other_block)].get();
                 if (from == nullptr) return;
                 ForEachPiece(at + other_done, n, block_size_, [&](int64_t block, int offset, int64_t done, int piece) {
                   BlockAt(block).AddBlock(offset, *from, other_offset + static_cast<int>(done), piece);
                 });
               });
  if (other.non_finite_.empty()) return;
  for (int64_t i = 0; i < count; ++i) {
    const auto found = other.non_finite_.find(other_at + i);
    if (found != other.non_finite_.end()) non_finite_[at + i] |= found->second;
  }
}

void ExactSum::Write(std::span<const ElementRun> order, StateWriter& out) const {
  ExactBlock chunk(kChunk);
  int filled = 0;
  for (const ElementRun& run : order) {
    ForEachPiece(run.at, run.count, block_size_, [&](int64_t block, int offset, int64_t, int n) {
      const ExactBlock* from = blocks_[static_cast<size_t>(block)].get();
      while (n > 0) {
        const int piece = std::min(n, kChunk - filled);
        if (from != nullptr) chunk.AddBlock(filled, *from, offset, piece);
        offset += piece, n -= piece, filled += piece;
        if (filled == kChunk) {
          WriteChunk(chunk, filled, out);
          chunk = ExactBlock(kChunk);
          filled = 0;
        }
      }
    });
  }
  if (filled > 0) WriteChunk(chunk, filled, out);
  WriteFlags(order, out);
}

void ExactSum::WriteFlags(std::span<const ElementRun> order, StateWriter& out) const {
  std::vector<std::pair<int64_t, uint8_t>> flags;
  int64_t base = 0;
  for (const ElementRun& run : order) {
    if (non_finite_.empty()) break;
    for (int64_t i = 0; i < run.count; ++i) {
      const auto found = non_finite_.find(run.at + i);
      if (found != non_finite_.end()) flags.emplace_back(base + i, found->second);
    }
    base += run.count;
  }
  out.Put<int64_t>(static_cast<int64_t>(flags.size()));
  for (const auto& [element, flag] : flags) {
    out.Put<int64_t>(element);
    out.Put<uint8_t>(flag);
  }
}

absl::Status ExactSum::Read(StateReader& in, StateOrigin origin) {
  RETURN_IF_ERROR(ReadDigits(in, origin == StateOrigin::kPartialAggregate ? kBinMaxOfPartial : ExactBlock::kBinMax));
  return ReadFlags(in);
}

absl::Status ExactSum::ReadDigits(StateReader& in, int bin_max) {
  for (int64_t at = 0; at < size_; at += kChunk) {
    const int count = static_cast<int>(std::min<int64_t>(kChunk, size_ - at));
    ASSIGN_OR_RETURN(const uint16_t num_bins, in.Get<uint16_t>());
    int last_index = ExactBlock::kBinMin - 1;
    for (int b = 0; b < num_bins; ++b) {
      ASSIGN_OR_RETURN(const int16_t index, in.Get<int16_t>());
      int32_t digits[kChunk];
      RETURN_IF_ERROR(in.GetArray(digits, count));
      const bool is_zero = std::all_of(digits, digits + count, [](int32_t digit) { return digit == 0; });
      if (index <= last_index || index > bin_max || is_zero)
        return absl::DataLossError("the state's digits are malformed");
      last_index = index;
      ForEachPiece(at, count, block_size_, [&](int64_t block, int offset, int64_t done, int piece) {
        BlockAt(block).AddDigits(offset, index, digits + done, piece);
      });
    }
  }
  return absl::OkStatus();
}

absl::Status ExactSum::ReadFlags(StateReader& in) {
  ASSIGN_OR_RETURN(const int64_t n, in.Get<int64_t>());
  if (!in.Has(n, sizeof(int64_t) + 1)) return StateReader::Missing();
  int64_t last = -1;
  for (int64_t i = 0; i < n; ++i) {
    ASSIGN_OR_RETURN(const int64_t element, in.Get<int64_t>());
    ASSIGN_OR_RETURN(const uint8_t flags, in.Get<uint8_t>());
    if (element <= last || element >= size_ || flags == 0 || flags > kAllFlags) {
      return absl::DataLossError("the state's list of NaN and infinities is malformed");
    }
    last = element;
    non_finite_[element] = flags;
  }
  return absl::OkStatus();
}

template <typename Float>
Float ExactSum::RoundOne(int64_t at) const {
  if (!non_finite_.empty()) {
    const auto found = non_finite_.find(at);
    if (found != non_finite_.end()) return static_cast<Float>(FromFlags(found->second));
  }
  const ExactBlock* block = blocks_[static_cast<size_t>(at / block_size_)].get();
  if (block == nullptr) return 0;
  const int offset = static_cast<int>(at % block_size_);
  if constexpr (sizeof(Float) == 4) {
    return block->RoundToFloat(offset);
  } else {
    return block->RoundToDouble(offset);
  }
}

template <typename Float>
void ExactSum::RoundTo(int64_t at, int64_t count, std::optional<double> divisor, char* values) const {
  for (int64_t i = 0; i < count; ++i) {
    const Float value =
        divisor.has_value() ? static_cast<Float>(RoundOne<double>(at + i) / *divisor) : RoundOne<Float>(at + i);
    std::memcpy(values + i * static_cast<int64_t>(sizeof(Float)), &value, sizeof(Float));
  }
}

int64_t ExactSum::Round(int64_t at, int64_t count, std::optional<double> divisor, char* values) const {
  dtype_ == v1::FLOAT32 ? RoundTo<float>(at, count, divisor, values) : RoundTo<double>(at, count, divisor, values);
  return count;
}

double ExactSum::RoundToDouble(int64_t at) const { return RoundOne<double>(at); }

int64_t ExactSum::memory_bytes() const {
  int64_t bytes = static_cast<int64_t>(sizeof *this + blocks_.size() * sizeof(BlockPointer) + non_finite_.size() * 24);
  for (const BlockPointer& block : blocks_) bytes += block == nullptr ? 0 : block->memory_bytes();
  return bytes;
}

}  // namespace sheaf
