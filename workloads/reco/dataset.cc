#include "workloads/reco/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "base/random.h"
#include "base/status_macros.h"
#include "workloads/package_index.h"

namespace sheaf {
namespace {

// What each package needs, by name: sorted and unique. Packages in the order of their names.
using NamedBasket = std::vector<std::string_view>;

std::vector<NamedBasket> NamedBaskets(std::string_view index) {
  std::vector<PackageStanza> packages = ParsePackageIndex(index);
  SortUniquePackages(packages);
  std::vector<NamedBasket> baskets;
  for (const PackageStanza& package : packages) {
    std::vector<std::string_view>& names = baskets.emplace_back();
    for (std::string_view relation : package.relations) {
      const std::vector<std::string_view> more = RelationNames(relation);
      names.insert(names.end(), more.begin(), more.end());
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
  }
  return baskets;
}

// The items that enough baskets have, numbered in order of their names.
std::unordered_map<std::string_view, uint32_t> NumberItems(const std::vector<NamedBasket>& baskets, int num_min) {
  std::map<std::string_view, int> counts;
  for (const NamedBasket& basket : baskets) {
    for (std::string_view item : basket) ++counts[item];
  }
  std::unordered_map<std::string_view, uint32_t> numbers;
  for (const auto& [item, count] : counts) {
    if (count >= num_min) numbers.emplace(item, static_cast<uint32_t>(numbers.size()));
  }
  return numbers;
}

// True for the clients that a seeded shuffle puts first.
std::vector<bool> PickHeldOut(size_t num_clients, const RecoDatasetOptions& options) {
  std::vector<size_t> order(num_clients);
  std::iota(order.begin(), order.end(), 0);
  SeededRandom random(options.held_out_seed);
  for (size_t i = num_clients; i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
  std::vector<bool> held_out(num_clients);
  const auto num_held_out = static_cast<size_t>(static_cast<double>(num_clients) * options.held_out);
  for (size_t i = 0; i < num_held_out; ++i) held_out[order[i]] = true;
  return held_out;
}

}  // namespace

absl::StatusOr<RecoDataset> RecoDataset::ParseAvailable(std::string_view index, const RecoDatasetOptions& options) {
  const std::vector<NamedBasket> named = NamedBaskets(index);
  const std::unordered_map<std::string_view, uint32_t> numbers = NumberItems(named, options.clients_per_item_min);
  std::vector<std::vector<uint32_t>> clients;
  for (const NamedBasket& basket : named) {
    std::vector<uint32_t> items;
    for (std::string_view item : basket) {
      if (const auto found = numbers.find(item); found != numbers.end()) items.push_back(found->second);
    }
    if (static_cast<int>(items.size()) >= options.items_per_client_min) clients.push_back(std::move(items));
  }
  if (clients.empty()) {
    return absl::FailedPreconditionError(
        "the package index holds no package with enough dependencies, so there is nothing to learn from; run `sudo "
        "apt-get update`, then try again");
  }
  const std::vector<bool> held_out = PickHeldOut(clients.size(), options);
  TagsDataset::Builder builder({});
  for (size_t client = 0; client < clients.size(); ++client) {
    builder.AddExample(clients[client], {});
    builder.EndClient(held_out[client]);
  }
  return RecoDataset(std::move(builder).Build(static_cast<int>(numbers.size())));
}

absl::StatusOr<RecoDataset> RecoDataset::Load(const std::string& path) {
  ASSIGN_OR_RETURN(TagsDataset data, TagsDataset::Load(path));
  bool is_ours = data.num_labels() == 0 && data.num_examples() == data.num_clients();
  for (int client = 0; is_ours && client < data.num_clients(); ++client) {
    is_ours = data.ClientExamples(client) == std::pair(client, client + 1);
  }
  if (!is_ours) {
    return absl::FailedPreconditionError(
        fmt::format("{} is no snapshot of dependencies, but perhaps one of packages with tags; make it anew", path));
  }
  return RecoDataset(std::move(data));
}

}  // namespace sheaf
