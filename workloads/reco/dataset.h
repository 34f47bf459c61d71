// RecoDataset: which package needs which others, from the Debian package index: baskets to complete.
//
//   ASSIGN_OR_RETURN(std::string index, ReadPackageIndex("apt-cache dumpavail"));
//   ASSIGN_OR_RETURN(RecoDataset dataset, RecoDataset::ParseAvailable(index));
//   RETURN_IF_ERROR(dataset.Save(path));                             // As TagsDataset: parse once, load many times.
//   ASSIGN_OR_RETURN(RecoDataset loaded, RecoDataset::Load(path));
//
// Client: a package. Items: the names of its dependencies. Packages with a few items and items of a few packages are
// left out: there is nothing to learn from them. A tenth of the clients is held out. Names become integers while the
// index is read; none is kept. The same index gives the same dataset on every machine. Immutable, hence thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "workloads/client_selector.h"
#include "workloads/tags/dataset.h"

namespace sheaf {

// The name that workers know it by: --data debian-needs=LOCATION.
inline constexpr char kNeedsData[] = "debian-needs";

struct RecoDatasetOptions {
  int items_per_client_min = 6;
  int clients_per_item_min = 3;
  // Share of the clients that is held out for evaluation, and the seed that picks them.
  double held_out = 0.1;
  uint64_t held_out_seed = 1;
};

class RecoDataset {
 public:
  // FAILED_PRECONDITION if no client is left, saying what to do.
  static absl::StatusOr<RecoDataset> ParseAvailable(std::string_view index, const RecoDatasetOptions& options = {});

  // A snapshot, in the format of TagsDataset's, of examples without labels. Errors as there; and FAILED_PRECONDITION
  // for a snapshot of another workload.
  absl::Status Save(const std::string& path) const { return data_.Save(path); }
  static absl::StatusOr<RecoDataset> Load(const std::string& path);

  int num_clients() const { return data_.num_clients(); }
  int num_items() const { return data_.num_features(); }
  // Sorted and unique.
  std::span<const uint32_t> items(int client) const {
    return data_.example(data_.ClientExamples(client).first).features;
  }
  bool is_held_out(int client) const { return data_.is_held_out(client); }
  std::vector<int> TrainingClients() const { return data_.TrainingClients(); }

  // "client:17", the data selector of a task, and back.
  absl::StatusOr<int> ParseSelector(std::string_view selector) const {
    return ParseClientSelector(selector, num_clients());
  }

  // A smaller problem for tests: only these clients, only the items that at least `min_clients` of them have.
  RecoDataset Subset(const std::vector<int>& clients, int min_clients) const {
    return RecoDataset(data_.Subset(clients, min_clients));
  }
  std::string Serialize() const { return data_.Serialize(); }

 private:
  explicit RecoDataset(TagsDataset data) : data_(std::move(data)) {}
  TagsDataset data_;
};

}  // namespace sheaf
