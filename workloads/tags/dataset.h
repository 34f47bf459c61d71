// TagsDataset: the Debian package index as a multi-label learning problem, split by maintainer.
//
//   ASSIGN_OR_RETURN(std::string index, ReadPackageIndex("apt-cache dumpavail"));
//   ASSIGN_OR_RETURN(TagsDataset dataset, TagsDataset::ParseAvailable(index));
//   RETURN_IF_ERROR(dataset.Save(path));                             // Once; then, in each of many processes,
//   ASSIGN_OR_RETURN(TagsDataset loaded, TagsDataset::Load(path));   // some milliseconds.
//
// Client: a maintainer. Example: a package with debtags. Features: the words of its name and short description, and
// the names of its dependencies. Labels: those of its tags that are among the most frequent ones. A tenth of the
// clients is held out.
//
// A maintainer becomes an integer while the index is read; neither names and addresses nor any other text but the tags'
// is kept. The same index gives the same dataset on every machine, whatever its locale and the order of its stanzas.
// Immutable, hence thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "workloads/package_index.h"

namespace sheaf {

// The name that workers know it by: --data debian-index=LOCATION.
inline constexpr char kDebianIndexData[] = "debian-index";

struct TagsDatasetOptions {
  // How many of the most frequent tags are labels.
  int num_labels = 500;
  // Share of the clients that is held out for evaluation, and the seed that picks them.
  double held_out = 0.1;
  uint64_t held_out_seed = 1;
};

class TagsDataset {
 public:
  class Builder;

  // Both sorted and unique.
  struct Example {
    std::span<const uint32_t> features;
    std::span<const uint16_t> labels;
  };

  // `index`: stanzas as `apt-cache dumpavail` prints them. Packages without tags are left out.
  // FAILED_PRECONDITION if no package is left, saying what to do. Takes about a second for Debian main.
  static absl::StatusOr<TagsDataset> ParseAvailable(std::string_view index, const TagsDatasetOptions& options = {});

  // The snapshot format: versioned, checksummed, compact, the same bytes for the same dataset.
  std::string Serialize() const;
  // `bytes` are untrusted. DATA_LOSS if they are damaged or not a snapshot; FAILED_PRECONDITION if they are of a newer
  // version.
  static absl::StatusOr<TagsDataset> Deserialize(std::string_view bytes);
  // To and from a file, naming it in errors. Save replaces the file in one step.
  absl::Status Save(const std::string& path) const;
  static absl::StatusOr<TagsDataset> Load(const std::string& path);

  int num_clients() const { return static_cast<int>(held_out_.size()); }
  int num_examples() const { return static_cast<int>(feature_begin_.size()) - 1; }
  int num_features() const { return num_features_; }
  int num_labels() const { return static_cast<int>(label_names_.size()); }
  const std::string& label_name(int label) const { return label_names_[label]; }

  Example example(int i) const;
  // The examples of one client are consecutive: [first, second).
  std::pair<int, int> ClientExamples(int client) const { return {client_begin_[client], client_begin_[client + 1]}; }
  bool is_held_out(int client) const { return held_out_[client] != 0; }
  // Clients that are not held out, ascending.
  std::vector<int> TrainingClients() const;

  // A smaller problem for tests: only these clients, only the features that at least `min_examples` of their examples
  // have, both numbered afresh.
  TagsDataset Subset(const std::vector<int>& clients, int min_examples) const;

 private:
  TagsDataset() = default;

  int num_features_ = 0;
  std::vector<std::string> label_names_;
  // One per client.
  std::vector<uint8_t> held_out_;
  // Offsets: of a client's examples (num_clients + 1), of an example's features and labels (num_examples + 1).
  std::vector<int32_t> client_begin_;
  std::vector<int32_t> feature_begin_;
  std::vector<int32_t> label_begin_;
  std::vector<uint32_t> features_;
  std::vector<uint16_t> labels_;
};

// Puts a dataset together, client by client. For the parser, the snapshot reader and tests.
//
//   TagsDataset::Builder builder({"role::program", "game::strategy"});
//   builder.AddExample(features, labels);
//   builder.EndClient(/*is_held_out=*/false);
//   TagsDataset built = std::move(builder).Build(num_features);
//
// Not thread-safe.
class TagsDataset::Builder {
 public:
  explicit Builder(std::vector<std::string> label_names);

  // Both sorted, unique, and below the numbers of features and labels.
  void AddExample(std::span<const uint32_t> features, std::span<const uint16_t> labels);
  // The examples added since the last call are those of the next client.
  void EndClient(bool is_held_out);
  TagsDataset Build(int num_features) &&;

 private:
  TagsDataset dataset_;
};

// "client:17", the data selector of a task, and back. INVALID_ARGUMENT if `selector` is not one or names no client of
// the dataset.
std::string TagsSelector(int client);
absl::StatusOr<int> ParseTagsSelector(std::string_view selector, const TagsDataset& dataset);

}  // namespace sheaf
