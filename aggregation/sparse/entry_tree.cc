#include "aggregation/sparse/entry_tree.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "aggregation/output/operator.h"
#include "base/check.h"

// Two orders hold the counting up. A bucket is folded from its oldest entry on, and the way from the root to a block
// leads through the same buckets for all entries of a coordinate: so at a coordinate entries arrive in the order of
// their contributions, and to remember the newest contribution is enough to count each once. And everything that waits
// is of contributions from first_weight_ on, because all buckets are folded before the weights of older ones are
// dropped.

namespace sheaf {
namespace {

// Entries that wait at the root's children, and at those of a branch further down.
constexpr int64_t kRootBytes = int64_t{56} << 20;
constexpr int64_t kBranchBytes = int64_t{512} << 10;
// More would fit no cache when it is folded.
constexpr int64_t kBucketBytesMax = int64_t{1} << 20;
constexpr int64_t kFirstEntries = 32;
constexpr int64_t kLastDoubled = 256;
// A root that is a block folds this often.
constexpr int64_t kRootCapacity = 4096;
// A thin block of more coordinates is split.
constexpr int64_t kThinMax = 24 << 10;
// Children are no smaller than 2^14 coordinates: 128 KiB of doubles. There are at most 2^10.
constexpr int kChildBits = 14;
constexpr int kFanoutBits = 10;
constexpr int kBatch = 512;
// Once weights are kept of so many contributions, everything is folded.
constexpr size_t kWeightsMax = 1 << 16;
// So many entries are worth another thread, up to so many threads: each looks at all keys.
constexpr size_t kSharedMin = 8 << 10;
constexpr size_t kAppendPartsMax = 8;
// One key in so many is looked at before, to see where they go.
constexpr size_t kSampleStride = 61;
// For each thread: a part may have more to do than its size says.
constexpr int kFoldParts = 8;

constexpr size_t CeilDiv(size_t n, size_t by) { return (n + by - 1) / by; }

template <typename Wire>
Wire Load(const char* data, size_t i) {
  Wire value;
  std::memcpy(&value, data + i * sizeof value, sizeof value);
  return value;
}

// The value that waits for one that came over the wire.
template <typename Value, typename Wire>
Value Prepare(Wire value, float weight) {
  if constexpr (std::is_same_v<Value, Wire>) {
    return value;
  } else if constexpr (std::is_floating_point_v<Wire>) {
    return std::bit_cast<WideValue>(static_cast<double>(value) * static_cast<double>(weight));
  } else {
    return static_cast<WideValue>(static_cast<int64_t>(value));
  }
}

}  // namespace

template <typename Offset, typename Value, bool kCounted>
EntryTree<Offset, Value, kCounted>::EntryTree(const OutputLayout& layout)
    : layout_(layout),
      precision_(layout.dtype == v1::FLOAT64 ? 53
                 : layout.op->is_weighted()  ? 48
                                             : 24) {
  root_.range = static_cast<uint64_t>(layout.num_coordinates);
  root_.block = MakeBlock(root_.range);
}

template <typename Offset, typename Value, bool kCounted>
EntryTree<Offset, Value, kCounted>::~EntryTree() = default;

template <typename Offset, typename Value, bool kCounted>
void EntryTree<Offset, Value, kCounted>::Accumulate(CheckedValues values, ParallelFor& parallel) {
  if (weights_.size() >= kWeightsMax) {
    FoldAll(root_, root_bucket_);
    weights_.clear();
  }
  std::vector<Incoming> all = Number(values);
  size_t num_entries = 0;
  for (Incoming& from : all) {
    buffered_entries_ += static_cast<int64_t>(from.size());
    // The root may become a branch on the way.
    if (!root_.is_branch()) WithWire([&]<typename Wire>() { from = AppendToBlock<Wire>(from); });
    num_entries += from.size();
  }
  if (parallel.num_threads() > 1 && num_entries >= kSharedMin) return AppendInParts(all, num_entries, parallel);
  for (const Incoming& from : all) WithWire([&]<typename Wire>() { AppendToBranch<Wire>(from); });
}

template <typename Offset, typename Value, bool kCounted>
auto EntryTree<Offset, Value, kCounted>::Number(CheckedValues values) -> std::vector<Incoming> {
  const bool keeps_weights = layout_.op->divisor == Divisor::kTouchingWeight;
  if (keeps_weights && weights_.empty()) first_weight_ = num_folds_ + 1;
  std::vector<Incoming> all;
  all.reserve(values.size());
  for (const CheckedValue* const value : values) {
    const float weight = layout_.op->is_weighted() ? value->weight : 1.0f;
    all.push_back({.value = value, .weight = weight, .fold = ++num_folds_, .begin = 0, .end = value->keys.size()});
    // Each entry that waits will ask for its contribution's weight.
    if (keeps_weights) weights_.push_back(weight);
  }
  return all;
}

template <typename Offset, typename Value, bool kCounted>
template <typename Visit>
void EntryTree<Offset, Value, kCounted>::WithWire(const Visit& visit) const {
  if constexpr (std::is_same_v<Value, float>) {
    visit.template operator()<float>();
  } else {
    switch (layout_.dtype) {
      case v1::FLOAT32:
        return visit.template operator()<float>();
      case v1::FLOAT64:
        return visit.template operator()<double>();
      case v1::INT32:
        return visit.template operator()<int32_t>();
      default:
        return visit.template operator()<int64_t>();
    }
  }
}

template <typename Offset, typename Value, bool kCounted>
template <typename Wire>
auto EntryTree<Offset, Value, kCounted>::EntryOf(const Incoming& from, size_t i) const -> Entry {
  Entry entry;
  entry.offset = static_cast<Offset>(from.value->keys[i]);
  if constexpr (kCounted) entry.fold = from.fold;
  entry.value = Prepare<Value>(Load<Wire>(from.value->data.data(), i), from.weight);
  return entry;
}

template <typename Offset, typename Value, bool kCounted>
template <typename Wire>
auto EntryTree<Offset, Value, kCounted>::AppendToBlock(Incoming from) -> Incoming {
  for (; from.size() > 0; ++from.begin) {
    if (root_bucket_.next == root_bucket_.end) {
      MakeRoom(root_, root_bucket_, kRootCapacity);
      if (root_.is_branch()) break;
    }
    *root_bucket_.next++ = EntryOf<Wire>(from, from.begin);
  }
  return from;
}

template <typename Offset, typename Value, bool kCounted>
template <typename Wire>
void EntryTree<Offset, Value, kCounted>::AppendToBranch(const Incoming& from) {
  for (size_t i = from.begin; i < from.end; ++i) Append(root_, EntryOf<Wire>(from, i));
}

template <typename Offset, typename Value, bool kCounted>
template <typename Wire>
void EntryTree<Offset, Value, kCounted>::AppendToChildren(const Incoming& from, Children children) {
  const uint64_t first = uint64_t{children.begin} << root_.shift;
  const uint64_t range = uint64_t{children.end - children.begin} << root_.shift;
  const int64_t* const keys = from.value->keys.data();
  for (size_t begin = from.begin; begin < from.end; begin += kBatch) {
    const size_t end = std::min(from.end, begin + kBatch);
    // Written whether it goes to one of them or not: nothing could predict which ones do.
    size_t positions[kBatch];
    size_t n = 0;
    for (size_t i = begin; i < end; ++i) {
      positions[n] = i;
      n += static_cast<uint64_t>(keys[i]) - first < range ? 1 : 0;
    }
    for (size_t i = 0; i < n; ++i) Append(root_, EntryOf<Wire>(from, positions[i]));
  }
}

template <typename Offset, typename Value, bool kCounted>
void EntryTree<Offset, Value, kCounted>::AppendInParts(std::span<const Incoming> all, size_t num_entries,
                                                       ParallelFor& parallel) {
  std::vector<size_t> samples(root_.children.size());
  size_t next = 0;
  for (const Incoming& from : all) {
    for (; next < from.size(); next += kSampleStride)
      ++samples[static_cast<uint64_t>(from.value->keys[from.begin + next]) >> root_.shift];
    next -= from.size();
  }
  const size_t num_parts =
      std::min({static_cast<size_t>(parallel.num_threads()), kAppendPartsMax, num_entries / kSharedMin + 1});
  const std::vector<Children> parts = Deal(samples, num_parts);
  parallel.Run(static_cast<int>(parts.size()), [&](int part) {
    for (const Incoming& from : all) {
      WithWire([&]<typename Wire>() { AppendToChildren<Wire>(from, parts[static_cast<size_t>(part)]); });
    }
  });
}

template <typename Offset, typename Value, bool kCounted>
auto EntryTree<Offset, Value, kCounted>::Deal(std::span<const size_t> sizes, size_t num_parts)
    -> std::vector<Children> {
  size_t left = std::accumulate(sizes.begin(), sizes.end(), size_t{0});
  std::vector<Children> parts;
  Children part;
  size_t size = 0;
  for (size_t child = 0; child < sizes.size(); ++child) {
    part.end = child + 1;
    size += sizes[child];
    const size_t num_parts_left = num_parts - parts.size();
    if (part.end < sizes.size() && (num_parts_left == 1 || size < CeilDiv(left, num_parts_left))) continue;
    parts.push_back(part);
    part.begin = part.end;
    left -= std::exchange(size, 0);
  }
  return parts;
}

template <typename Offset, typename Value, bool kCounted>
void EntryTree<Offset, Value, kCounted>::MakeRoom(Node& node, Bucket& bucket, int64_t capacity) {
  // It is full. Folding leaves it empty.
  const int64_t size = bucket.end - node.entries;
  if (size >= capacity) return FoldBucket(node, bucket);
  // Small buckets double; one that is likely to fill goes to its full size, and to large pages.
  int64_t larger = std::max(kFirstEntries, 2 * size);
  std::unique_ptr<Entry[]> own;
  if (larger > kLastDoubled) larger = capacity;
  if (larger < capacity) own.reset(new Entry[static_cast<size_t>(larger)]);
  Entry* const entries = own == nullptr ? pool_.AllocateUnset<Entry>(larger = capacity) : own.get();
  std::copy(node.entries, bucket.next, entries);
  node.own_entries = std::move(own);
  node.entries = entries;
  bucket = {.next = entries + size, .end = entries + larger};
}

template <typename Offset, typename Value, bool kCounted>
void EntryTree<Offset, Value, kCounted>::FoldBucket(Node& node, Bucket& bucket) {
  const Entry* const begin = node.entries;
  const int64_t n = bucket.next - begin;
  // Nothing below appends to this bucket, so the entries stay where they are until all are folded; also where the node
  // is split at the end.
  bucket.next = node.entries;
  if (n == 0) return;
  bucket_folds_.fetch_add(1, std::memory_order_relaxed);
  if (!node.is_branch()) return FoldIntoBlock(node, begin, n);
  for (int64_t i = 0; i < n; ++i) Append(node, begin[i]);
}

template <typename Offset, typename Value, bool kCounted>
void EntryTree<Offset, Value, kCounted>::FoldIntoBlock(Node& node, const Entry* entries, int64_t n) {
  if (node.block == nullptr) node.block = MakeBlock(node.range);
  // What changes slots comes first: from here on they stay.
  SparseBlock<Offset>& block = *node.block;
  if (block.ShouldBeDense(n)) block.MakeDense();
  block.Reserve(n);
  for (int64_t begin = 0; begin < n; begin += kBatch) {
    const int count = static_cast<int>(std::min<int64_t>(kBatch, n - begin));
    Offset offsets[kBatch];
    uint32_t slots[kBatch];
    for (int i = 0; i < count; ++i) offsets[i] = entries[begin + i].offset;
    block.FindOrAdd(offsets, count, slots);
    FoldIntoCells(block.columns(), entries + begin, slots, count);
  }
  SplitIfLarge(node);
}

template <typename Offset, typename Value, bool kCounted>
void EntryTree<Offset, Value, kCounted>::SplitIfLarge(Node& node) {
  if (node.block == nullptr || node.block->is_dense() || node.block->num_touched() <= kThinMax) return;
  if (node.block->ShouldBeDense(0)) return node.block->MakeDense();
  Split(node, &node == &root_ ? kRootBytes : kBranchBytes);
}

template <typename Offset, typename Value, bool kCounted>
void EntryTree<Offset, Value, kCounted>::FoldIntoCells(SlotColumns& columns, const Entry* entries,
                                                       const uint32_t* slots, int n) {
  WideValue values[kBatch];
  for (int i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<Value, float>) {
      values[i] = std::bit_cast<WideValue>(static_cast<double>(entries[i].value));
    } else {
      values[i] = entries[i].value;
    }
  }
  columns.cells->AddScattered(slots, values, n, precision_);
  if constexpr (kCounted) {
    // The oldest of them.
    SHEAF_CHECK(columns.weights == nullptr || entries[0].fold >= first_weight_);
    uint32_t touched[kBatch];
    int num_touched = 0;
    for (int i = 0; i < n; ++i) {
      if (!columns.Touch(slots[i], entries[i].fold)) continue;
      if (columns.weights == nullptr) continue;
      values[num_touched] = std::bit_cast<WideValue>(static_cast<double>(weights_[entries[i].fold - first_weight_]));
      touched[num_touched++] = slots[i];
    }
    if (num_touched > 0) columns.weights->AddScattered(touched, values, num_touched, 24);
  }
}

template <typename Offset, typename Value, bool kCounted>
void EntryTree<Offset, Value, kCounted>::FoldAll(Node& node, Bucket& bucket) {
  FoldBucket(node, bucket);
  for (size_t i = 0; i < node.children.size(); ++i) FoldAll(node.children[i], node.buckets[i]);
}

template <typename Offset, typename Value, bool kCounted>
void EntryTree<Offset, Value, kCounted>::FoldAll(ParallelFor& parallel) {
  FoldBucket(root_, root_bucket_);
  std::vector<size_t> sizes;
  for (size_t child = 0; child < root_.children.size(); ++child)
    sizes.push_back(static_cast<size_t>(root_.buckets[child].next - root_.children[child].entries));
  const std::vector<Children> parts = Deal(sizes, static_cast<size_t>(kFoldParts * parallel.num_threads()));
  parallel.Run(static_cast<int>(parts.size()), [&](int i) {
    const Children& part = parts[static_cast<size_t>(i)];
    for (size_t child = part.begin; child < part.end; ++child) FoldAll(root_.children[child], root_.buckets[child]);
  });
}

template <typename Offset, typename Value, bool kCounted>
void EntryTree<Offset, Value, kCounted>::Split(Node& node, int64_t waiting_bytes) {
  node.shift = std::max(kChildBits, static_cast<int>(std::bit_width(node.range - 1)) - kFanoutBits);
  const uint64_t child_range = uint64_t{1} << node.shift;
  const size_t num_children = ((node.range - 1) >> node.shift) + 1;
  node.children = std::vector<Node>(num_children);
  node.buckets.resize(num_children);
  for (Node& child : node.children) child.range = child_range;
  node.children.back().range = node.range - child_range * (num_children - 1);
  const int64_t bucket_bytes = std::min(kBucketBytesMax, waiting_bytes / static_cast<int64_t>(num_children));
  node.child_capacity = std::max<int64_t>(kFirstEntries, bucket_bytes / static_cast<int64_t>(sizeof(Entry)));
  // A coordinate takes all with it: its values, its contributors, and which contribution was the newest, without which
  // entries of that one which still come would count again.
  const std::unique_ptr<SparseBlock<Offset>> block = std::move(node.block);
  RawVector<int64_t> offsets;
  RawVector<uint32_t> slots;
  block->Sorted(0, offsets, slots);
  for (size_t i = 0; i < offsets.size(); ++i) {
    Node& child = node.children[static_cast<uint64_t>(offsets[i]) >> node.shift];
    if (child.block == nullptr) child.block = MakeBlock(child.range);
    const Offset offset = static_cast<Offset>(static_cast<uint64_t>(offsets[i]) & (child_range - 1));
    uint32_t slot = 0;
    child.block->FindOrAdd(&offset, 1, &slot);
    child.block->columns().AddFrom(slot, block->columns(), slots[i]);
    if (block->columns().is_counted)
      child.block->columns().newest_folds[slot] = block->columns().newest_folds[slots[i]];
  }
}

template <typename Offset, typename Value, bool kCounted>
void EntryTree<Offset, Value, kCounted>::Expect(int64_t num_coordinates) {
  FoldAll(root_, root_bucket_);
  if (num_coordinates > kThinMax && !root_.is_branch() && !root_.block->is_dense()) Split(root_, kRootBytes);
}

template <typename Offset, typename Value, bool kCounted>
SparseStore::Place EntryTree<Offset, Value, kCounted>::FindOrAdd(int64_t key) {
  Node* node = &root_;
  uint64_t offset = static_cast<uint64_t>(key);
  for (;;) {
    SplitIfLarge(*node);
    if (!node->is_branch()) break;
    Node& child = node->children[offset >> node->shift];
    offset &= (uint64_t{1} << node->shift) - 1;
    node = &child;
  }
  if (node->block == nullptr) node->block = MakeBlock(node->range);
  const Offset narrow = static_cast<Offset>(offset);
  uint32_t slot = 0;
  node->block->FindOrAdd(&narrow, 1, &slot);
  return {&node->block->columns(), slot};
}

template <typename Offset, typename Value, bool kCounted>
template <typename Visit>
void EntryTree<Offset, Value, kCounted>::ForEachBlock(const Node& node, uint64_t base, const Visit& visit) {
  if (node.block != nullptr) visit(*node.block, base);
  for (const Node& child : node.children) {
    ForEachBlock(child, base, visit);
    base += uint64_t{1} << node.shift;
  }
}

template <typename Offset, typename Value, bool kCounted>
void EntryTree<Offset, Value, kCounted>::ForEachRun(const std::function<void(const SlotRun&)>& visit) {
  InlineFor one_by_one;
  const std::unique_ptr<const SlotRuns> runs = Runs(kThinMax, one_by_one);
  SlotRuns::Room room;
  for (int64_t i = 0; i < runs->size(); ++i) visit(runs->Read(i, room));
}

// A run is a block, which is put in order when it is read.
template <typename Offset, typename Value, bool kCounted>
class EntryTree<Offset, Value, kCounted>::BlockRuns final : public SlotRuns {
 public:
  void Append(const SparseBlock<Offset>& block, uint64_t base) {
    runs_.push_back({.block = &block, .base = base, .num_before = num_coordinates_});
    const int64_t n = block.num_touched();
    num_coordinates_ += n;
    longest_ = std::max(longest_, n);
  }

  int64_t size() const override { return static_cast<int64_t>(runs_.size()); }
  int64_t longest() const override { return longest_; }
  SlotRun Read(int64_t i, Room& room) const override {
    const Run& run = runs_[static_cast<size_t>(i)];
    run.block->Sorted(run.base, room.keys, room.slots);
    return {.keys = room.keys, .slots = room.slots, .columns = &run.block->columns(), .num_before = run.num_before};
  }

 private:
  struct Run {
    const SparseBlock<Offset>* block;
    uint64_t base;
    int64_t num_before;
  };

  std::vector<Run> runs_;
  int64_t num_coordinates_ = 0;
  int64_t longest_ = 0;
};

template <typename Offset, typename Value, bool kCounted>
std::unique_ptr<const SlotRuns> EntryTree<Offset, Value, kCounted>::Runs(int64_t, ParallelFor& parallel) {
  FoldAll(parallel);
  auto runs = std::make_unique<BlockRuns>();
  ForEachBlock(root_, 0, [&](const SparseBlock<Offset>& block, uint64_t base) { runs->Append(block, base); });
  return runs;
}

template <typename Offset, typename Value, bool kCounted>
int64_t EntryTree<Offset, Value, kCounted>::num_touched() {
  FoldAll(root_, root_bucket_);
  int64_t n = 0;
  ForEachBlock(root_, 0, [&n](const SparseBlock<Offset>& block, uint64_t) { n += block.num_touched(); });
  return n;
}

template <typename Offset, typename Value, bool kCounted>
v1::FoldCounters EntryTree<Offset, Value, kCounted>::counters() const {
  int64_t dense_blocks = 0;
  int64_t thin_blocks = 0;
  ForEachBlock(root_, 0,
               [&](const SparseBlock<Offset>& block, uint64_t) { ++(block.is_dense() ? dense_blocks : thin_blocks); });
  v1::FoldCounters counters;
  counters.set_dense_blocks(dense_blocks);
  counters.set_thin_blocks(thin_blocks);
  counters.set_buffered_entries(buffered_entries_);
  counters.set_bucket_folds(bucket_folds_.load(std::memory_order_relaxed));
  return counters;
}

template <typename Offset, typename Value, bool kCounted>
int64_t EntryTree<Offset, Value, kCounted>::memory_bytes() const {
  int64_t bytes = static_cast<int64_t>(sizeof *this + weights_.capacity() * sizeof(float)) + pool_.unused_bytes() +
                  (root_bucket_.end - root_.entries) * static_cast<int64_t>(sizeof(Entry));
  const auto add = [&bytes](const auto& self, const Node& node) -> void {
    bytes += static_cast<int64_t>(node.children.capacity() * sizeof(Node) + node.buckets.capacity() * sizeof(Bucket));
    for (size_t i = 0; i < node.children.size(); ++i) {
      bytes += (node.buckets[i].end - node.children[i].entries) * static_cast<int64_t>(sizeof(Entry));
    }
    if (node.block != nullptr) bytes += node.block->memory_bytes();
    for (const Node& child : node.children) self(self, child);
  };
  add(add, root_);
  return bytes;
}

template <typename Offset, typename Value, bool kCounted>
int EntryTree<Offset, Value, kCounted>::most_bins() const {
  int bins = 0;
  ForEachBlock(root_, 0, [&bins](const SparseBlock<Offset>& block, uint64_t) {
    bins = std::max(bins, block.columns().cells->most_bins());
  });
  return bins;
}

template class EntryTree<uint32_t, float, false>;
template class EntryTree<uint32_t, WideValue, false>;
template class EntryTree<uint32_t, WideValue, true>;
template class EntryTree<uint64_t, WideValue, false>;
template class EntryTree<uint64_t, WideValue, true>;

}  // namespace sheaf
