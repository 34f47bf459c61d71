#include "workloads/hitters/dataset.h"

#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/checksum.h"
#include "workloads/snapshot.h"

namespace sheaf {
namespace {

// In the order of the names' bytes.
using Counts = std::map<std::string_view, int64_t>;

void CountNames(const PackageStanza& package, Counts& counts) {
  for (std::string_view relation : package.relations) {
    for (std::string_view name : RelationNames(relation)) {
      // No package is called otherwise.
      if (IsPlainText(name)) ++counts[name];
    }
  }
}

// Of the clients, in the order in which the sorted packages name them first.
std::vector<Counts> CountByMaintainer(std::string_view index) {
  std::vector<PackageStanza> packages = ParsePackageIndex(index);
  SortUniquePackages(packages);
  std::unordered_map<std::string_view, size_t> clients;
  std::vector<Counts> counts;
  for (const PackageStanza& package : packages) {
    const size_t client = clients.try_emplace(package.maintainer, clients.size()).first->second;
    counts.resize(clients.size());
    CountNames(package, counts[client]);
  }
  std::erase_if(counts, [](const Counts& client) { return client.empty(); });
  return counts;
}

}  // namespace

absl::StatusOr<HittersDataset> HittersDataset::ParseAvailable(std::string_view index) {
  const std::vector<Counts> clients = CountByMaintainer(index);
  if (clients.empty()) {
    return absl::FailedPreconditionError(
        "the package index holds no package that depends on another, so there is nothing to count; run `sudo apt-get "
        "update`, then try again");
  }
  std::map<std::string_view, uint32_t> numbers;
  for (const Counts& client : clients) {
    for (const auto& [name, count] : client) numbers.emplace(name, 0);
  }
  HittersDataset dataset;
  for (auto& [name, number] : numbers) {
    number = static_cast<uint32_t>(dataset.names_.size());
    dataset.names_.emplace_back(name);
  }
  for (const Counts& client : clients) {
    std::vector<NameCount> counts;
    for (const auto& [name, count] : client) counts.push_back({numbers[name], count});
    dataset.AddClient(counts);
  }
  dataset.digest_ = Sha256Hex(dataset.Serialize());
  return dataset;
}

void HittersDataset::AddClient(std::span<const NameCount> counts) {
  counts_.insert(counts_.end(), counts.begin(), counts.end());
  client_begin_.push_back(counts_.size());
}

int64_t HittersDataset::num_occurrences() const {
  int64_t sum = 0;
  for (const NameCount& entry : counts_) sum += entry.count;
  return sum;
}

HittersDataset HittersDataset::Subset(const std::vector<int>& clients) const {
  std::set<uint32_t> kept;
  for (int i : clients) {
    for (const NameCount& entry : client(i)) kept.insert(entry.name);
  }
  HittersDataset subset;
  std::map<uint32_t, uint32_t> renumbered;
  for (uint32_t name : kept) {
    renumbered[name] = static_cast<uint32_t>(subset.names_.size());
    subset.names_.push_back(names_[name]);
  }
  for (int i : clients) {
    std::vector<NameCount> counts;
    for (const NameCount& entry : client(i)) counts.push_back({renumbered[entry.name], entry.count});
    subset.AddClient(counts);
  }
  subset.digest_ = Sha256Hex(subset.Serialize());
  return subset;
}

}  // namespace sheaf
