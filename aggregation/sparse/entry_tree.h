// EntryTree: a SparseStore of single values.
//
//                      root: [0, D)
//            /          |            \               up to 1024 children, each a range of 2^shift coordinates and a
//        bucket      bucket         bucket           bucket of entries that wait
//           |           |              |
//         block       [branch]       block           a block once its bucket was folded; a branch again when a block
//                     /  |  \                        grows too large for the cache without becoming dense
//
// An entry is appended to its bucket: writing along a thousand streams is what the cache can do. A full bucket is
// folded into its block, whose values are all in the cache then. A tree starts as one block and splits as it grows, so
// a small output costs little; what waits is bounded, whatever the number of contributions.
//
// Several threads share the root's children: each looks at all entries, and appends those that go to children of its
// own. So what comes to a coordinate comes in the order of the contributions, however many threads there are.
//
//   Offset    uint32_t for spaces of up to 2^32 coordinates, otherwise uint64_t
//   Value     float for unweighted FLOAT32, otherwise WideValue
//   kCounted  entries know their contribution: touches are counted
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "aggregation/output/output_layout.h"
#include "aggregation/sparse/sparse_store.h"

namespace sheaf {

template <typename Offset, typename Value, bool kCounted>
class EntryTree final : public SparseStore {
 public:
  explicit EntryTree(const OutputLayout& layout);
  ~EntryTree() override;

  void Accumulate(CheckedValues values, ParallelFor& parallel) override;
  void Expect(int64_t num_coordinates) override;
  Place FindOrAdd(int64_t key) override;
  void ForEachRun(const std::function<void(const SlotRun&)>& visit) override;
  std::unique_ptr<const SlotRuns> Runs(int64_t run_max, ParallelFor& parallel) override;
  int64_t num_touched() override;
  // Entries wait in buckets.
  std::optional<int64_t> known_touched() const override { return std::nullopt; }
  v1::FoldCounters counters() const override;
  int64_t memory_bytes() const override;
  int most_bins() const override;

 private:
  struct Plain {
    Offset offset;
    Value value;
  };
  struct Counted {
    Offset offset;
    uint32_t fold;
    Value value;
  };
  using Entry = std::conditional_t<kCounted, Counted, Plain>;

  // Where the next entry goes, and where that ends. Apart from the nodes: what every entry looks up shall be small.
  struct Bucket {
    Entry* next = nullptr;
    Entry* end = nullptr;
  };
  // A block, or a branch: children and their buckets.
  struct Node {
    uint64_t range = 0;
    // What waits to be folded into this node is in [entries, its bucket's next).
    Entry* entries = nullptr;
    // Null once the entries are the pool's.
    std::unique_ptr<Entry[]> own_entries;
    std::unique_ptr<SparseBlock<Offset>> block;
    std::vector<Node> children;
    std::vector<Bucket> buckets;
    int shift = 0;
    // How many entries a child may let wait.
    int64_t child_capacity = 0;

    bool is_branch() const { return !children.empty(); }
  };

  // Some entries of one contribution, as they came: [begin, end).
  struct Incoming {
    const CheckedValue* value = nullptr;
    float weight = 1;
    // The number of the contribution.
    uint32_t fold = 0;
    size_t begin = 0;
    size_t end = 0;

    size_t size() const { return end - begin; }
  };
  // Of the root: [begin, end).
  struct Children {
    size_t begin = 0;
    size_t end = 0;
  };

  // All there is of each, numbered; weights are kept.
  std::vector<Incoming> Number(CheckedValues values);
  // Calls visit.template operator()<Wire>() for the type that values came as.
  template <typename Visit>
  void WithWire(const Visit& visit) const;
  template <typename Wire>
  Entry EntryOf(const Incoming& from, size_t i) const;
  // Appends to the root while it is a block; returns what is left.
  template <typename Wire>
  Incoming AppendToBlock(Incoming from);
  template <typename Wire>
  void AppendToBranch(const Incoming& from);
  // The same of those entries that go to these children.
  template <typename Wire>
  void AppendToChildren(const Incoming& from, Children children);
  void AppendInParts(std::span<const Incoming> all, size_t num_entries, ParallelFor& parallel);
  // Parts of about the same size, given those of the children.
  static std::vector<Children> Deal(std::span<const size_t> sizes, size_t num_parts);
  // Appends an entry of this branch to the bucket of the child it goes to.
  void Append(Node& branch, Entry entry) {
    const uint64_t child = static_cast<uint64_t>(entry.offset) >> branch.shift;
    entry.offset = static_cast<Offset>(entry.offset & ((uint64_t{1} << branch.shift) - 1));
    Bucket& bucket = branch.buckets[child];
    if (bucket.next == bucket.end) [[unlikely]]
      MakeRoom(branch.children[child], bucket, branch.child_capacity);
    // Where this stream goes on: there are too many for the processor to foresee.
    __builtin_prefetch(bucket.next + 64 / sizeof(Entry), 1);
    *bucket.next++ = entry;
  }
  // Makes room for an entry: grows the bucket, or folds it.
  void MakeRoom(Node& node, Bucket& bucket, int64_t capacity);
  std::unique_ptr<SparseBlock<Offset>> MakeBlock(uint64_t range) {
    return std::make_unique<SparseBlock<Offset>>(layout_, range, /*is_scattered=*/true, &pool_);
  }
  // Folds what waits for this node.
  void FoldBucket(Node& node, Bucket& bucket);
  void FoldIntoBlock(Node& node, const Entry* entries, int64_t n);
  void FoldIntoCells(SlotColumns& columns, const Entry* entries, const uint32_t* slots, int n);
  // Folds what waits for this node and below.
  void FoldAll(Node& node, Bucket& bucket);
  // Folds everything that waits.
  void FoldAll(ParallelFor& parallel);
  // A block that is thin and no longer fits the cache.
  void SplitIfLarge(Node& node);
  void Split(Node& node, int64_t waiting_bytes);
  template <typename Visit>
  static void ForEachBlock(const Node& node, uint64_t base, const Visit& visit);
  class BlockRuns;

  const OutputLayout& layout_;
  // Significant bits of the floats that come.
  int precision_;
  // Of dense blocks and full-grown buckets.
  ZeroedPool pool_;
  Node root_;
  Bucket root_bucket_;
  uint32_t num_folds_ = 0;
  // Weights of contributions whose entries may wait: of number first_weight_, and so on.
  std::vector<float> weights_;
  uint32_t first_weight_ = 1;
  int64_t buffered_entries_ = 0;
  std::atomic<int64_t> bucket_folds_ = 0;
};

}  // namespace sheaf
