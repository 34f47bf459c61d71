#include "workloads/tags/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "base/random.h"
#include "workloads/client_selector.h"
#include "workloads/package_index.h"

namespace sheaf {
namespace {

constexpr int kLabelsMax = 65535;

// Gives strings numbers in order of appearance; Sorted() renumbers them in order of the strings, so that the numbers do
// not depend on the order of the input.
class Numbering {
 public:
  uint32_t Number(std::string text) {
    return numbers_.try_emplace(std::move(text), static_cast<uint32_t>(numbers_.size())).first->second;
  }
  // new_number[old_number].
  std::vector<uint32_t> Sorted() const {
    std::vector<std::pair<std::string_view, uint32_t>> entries(numbers_.begin(), numbers_.end());
    std::sort(entries.begin(), entries.end());
    std::vector<uint32_t> renumbered(entries.size());
    for (size_t i = 0; i < entries.size(); ++i) renumbered[entries[i].second] = static_cast<uint32_t>(i);
    return renumbered;
  }
  int size() const { return static_cast<int>(numbers_.size()); }

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
};

template <typename T>
void SortUnique(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

std::vector<PackageStanza> TaggedPackages(std::string_view index) {
  std::vector<PackageStanza> packages = ParsePackageIndex(index);
  std::erase_if(packages, [](const PackageStanza& package) { return package.tags.empty(); });
  SortUniquePackages(packages);
  return packages;
}

// The most frequent tags, most frequent first; equally frequent ones by name.
std::vector<std::string> FrequentTags(const std::vector<PackageStanza>& packages, int num_labels) {
  std::map<std::string_view, int> counts;
  for (const PackageStanza& package : packages) {
    std::vector<std::string_view> tags = TagNames(package.tags);
    SortUnique(tags);
    for (std::string_view tag : tags) ++counts[tag];
  }
  std::vector<std::pair<int, std::string_view>> ranking;
  for (const auto& [tag, count] : counts) ranking.emplace_back(-count, tag);
  std::sort(ranking.begin(), ranking.end());
  ranking.resize(std::min<size_t>(ranking.size(), std::min(num_labels, kLabelsMax)));
  std::vector<std::string> tags;
  for (const auto& [count, tag] : ranking) tags.emplace_back(tag);
  return tags;
}

struct RawExample {
  std::vector<uint32_t> features;
  std::vector<uint16_t> labels;
};

// True for the clients that a seeded shuffle puts first.
std::vector<bool> PickHeldOut(int num_clients, const TagsDatasetOptions& options) {
  std::vector<int> order(num_clients);
  std::iota(order.begin(), order.end(), 0);
  SeededRandom random(options.held_out_seed);
  for (int i = num_clients - 1; i > 0; --i) std::swap(order[i], order[random.Below(i + 1)]);
  std::vector<bool> held_out(num_clients);
  const int num_held_out = static_cast<int>(num_clients * options.held_out);
  for (int i = 0; i < num_held_out; ++i) held_out[order[i]] = true;
  return held_out;
}

}  // namespace

TagsDataset::Builder::Builder(std::vector<std::string> label_names) {
  dataset_.label_names_ = std::move(label_names);
  dataset_.client_begin_ = dataset_.feature_begin_ = dataset_.label_begin_ = {0};
}

void TagsDataset::Builder::AddExample(std::span<const uint32_t> features, std::span<const uint16_t> labels) {
  dataset_.features_.insert(dataset_.features_.end(), features.begin(), features.end());
  dataset_.labels_.insert(dataset_.labels_.end(), labels.begin(), labels.end());
  dataset_.feature_begin_.push_back(static_cast<int32_t>(dataset_.features_.size()));
  dataset_.label_begin_.push_back(static_cast<int32_t>(dataset_.labels_.size()));
}

void TagsDataset::Builder::EndClient(bool is_held_out) {
  dataset_.client_begin_.push_back(dataset_.num_examples());
  dataset_.held_out_.push_back(is_held_out ? 1 : 0);
}

TagsDataset TagsDataset::Builder::Build(int num_features) && {
  dataset_.num_features_ = num_features;
  return std::move(dataset_);
}

absl::StatusOr<TagsDataset> TagsDataset::ParseAvailable(std::string_view index, const TagsDatasetOptions& options) {
  const std::vector<PackageStanza> packages = TaggedPackages(index);
  if (packages.empty()) {
    return absl::FailedPreconditionError(
        "the package index holds no package with tags, so there is nothing to learn from; run `sudo apt-get update`, "
        "then try again");
  }
  std::vector<std::string> label_names = FrequentTags(packages, options.num_labels);
  std::unordered_map<std::string_view, uint16_t> labels;
  for (size_t i = 0; i < label_names.size(); ++i) labels[label_names[i]] = static_cast<uint16_t>(i);

  Numbering features;
  std::unordered_map<std::string_view, int> clients;
  std::vector<std::vector<RawExample>> examples;
  for (const PackageStanza& package : packages) {
    RawExample example;
    for (std::string_view text : {package.package, package.description}) {
      for (const std::string& word : Words(text)) example.features.push_back(features.Number("word " + word));
    }
    for (std::string_view relation : package.relations) {
      for (std::string_view name : RelationNames(relation)) {
        example.features.push_back(features.Number(fmt::format("needs {}", name)));
      }
    }
    for (std::string_view tag : TagNames(package.tags)) {
      const auto label = labels.find(tag);
      if (label != labels.end()) example.labels.push_back(label->second);
    }
    SortUnique(example.labels);
    const int client = clients.try_emplace(package.maintainer, static_cast<int>(clients.size())).first->second;
    examples.resize(clients.size());
    examples[client].push_back(std::move(example));
  }

  const std::vector<uint32_t> renumbered = features.Sorted();
  const std::vector<bool> held_out = PickHeldOut(static_cast<int>(examples.size()), options);
  Builder builder(std::move(label_names));
  for (size_t client = 0; client < examples.size(); ++client) {
    for (RawExample& example : examples[client]) {
      for (uint32_t& feature : example.features) feature = renumbered[feature];
      SortUnique(example.features);
      builder.AddExample(example.features, example.labels);
    }
    builder.EndClient(held_out[client]);
  }
  return std::move(builder).Build(features.size());
}

TagsDataset::Example TagsDataset::example(int i) const {
  return {std::span(features_).subspan(feature_begin_[i], feature_begin_[i + 1] - feature_begin_[i]),
          std::span(labels_).subspan(label_begin_[i], label_begin_[i + 1] - label_begin_[i])};
}

std::vector<int> TagsDataset::TrainingClients() const {
  std::vector<int> clients;
  for (int client = 0; client < num_clients(); ++client) {
    if (!is_held_out(client)) clients.push_back(client);
  }
  return clients;
}

TagsDataset TagsDataset::Subset(const std::vector<int>& clients, int min_examples) const {
  std::vector<int> counts(num_features_);
  for (int client : clients) {
    const auto [begin, end] = ClientExamples(client);
    for (int i = begin; i < end; ++i) {
      for (uint32_t feature : example(i).features) ++counts[feature];
    }
  }
  std::vector<uint32_t> renumbered(num_features_);
  uint32_t num_kept = 0;
  for (int feature = 0; feature < num_features_; ++feature) {
    if (counts[feature] >= min_examples) renumbered[feature] = num_kept++;
  }
  Builder builder(label_names_);
  for (int client : clients) {
    const auto [begin, end] = ClientExamples(client);
    for (int i = begin; i < end; ++i) {
      std::vector<uint32_t> kept;
      for (uint32_t feature : example(i).features) {
        if (counts[feature] >= min_examples) kept.push_back(renumbered[feature]);
      }
      builder.AddExample(kept, example(i).labels);
    }
    builder.EndClient(is_held_out(client));
  }
  return std::move(builder).Build(static_cast<int>(num_kept));
}

std::string TagsSelector(int client) { return ClientSelector(client); }

absl::StatusOr<int> ParseTagsSelector(std::string_view selector, const TagsDataset& dataset) {
  return ParseClientSelector(selector, dataset.num_clients());
}

}  // namespace sheaf
