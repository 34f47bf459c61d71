// HittersDataset: which names each maintainer's packages depend on, and how often, from the Debian package index.
//
//   ASSIGN_OR_RETURN(std::string index, ReadPackageIndex());
//   ASSIGN_OR_RETURN(HittersDataset dataset, HittersDataset::ParseAvailable(index));
//   RETURN_IF_ERROR(dataset.Save(path));
//   for (const NameCount& entry : dataset.client(17)) fmt::print("{} {}\n", entry.count, dataset.name(entry.name));
//
// Client: a maintainer one of whose packages depends on something. Each name in a Depends, Pre-Depends, Recommends or
// Suggests field counts one; of alternatives, the first. A maintainer becomes an integer while the index is read; no
// other text but the names of dependencies is kept. The same index gives the same dataset on every machine, whatever
// the order of its stanzas. Immutable, hence thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "workloads/package_index.h"

namespace sheaf {

// The name that workers know it by: --data debian-dependencies=LOCATION.
inline constexpr char kDependenciesData[] = "debian-dependencies";

struct NameCount {
  uint32_t name = 0;
  int64_t count = 0;
};

class HittersDataset {
 public:
  // FAILED_PRECONDITION if no package depends on anything, saying what to do.
  static absl::StatusOr<HittersDataset> ParseAvailable(std::string_view index);

  // The snapshot format: versioned, checksummed, compact, the same bytes for the same dataset.
  std::string Serialize() const;
  // `bytes` are untrusted. DATA_LOSS if they are damaged or not a snapshot of this kind; FAILED_PRECONDITION if they
  // are of another version.
  static absl::StatusOr<HittersDataset> Deserialize(std::string_view bytes);
  // To and from a file, naming it in errors. Save replaces the file in one step.
  absl::Status Save(const std::string& path) const;
  static absl::StatusOr<HittersDataset> Load(const std::string& path);

  int num_clients() const { return static_cast<int>(client_begin_.size()) - 1; }
  // Different ones; sorted by their bytes.
  int num_names() const { return static_cast<int>(names_.size()); }
  const std::string& name(uint32_t i) const { return names_[i]; }
  // Ascending by name, each name once, counts above 0.
  std::span<const NameCount> client(int i) const {
    return std::span(counts_).subspan(client_begin_[i], client_begin_[i + 1] - client_begin_[i]);
  }
  // Over all clients.
  int64_t num_occurrences() const;
  // SHA-256 of the snapshot: tells whether two processes count the same.
  const std::string& digest() const { return digest_; }

  // A smaller dataset for tests: only these clients and their names, both numbered afresh.
  HittersDataset Subset(const std::vector<int>& clients) const;

 private:
  HittersDataset() = default;
  static absl::StatusOr<HittersDataset> ReadBody(std::string_view body);
  void AddClient(std::span<const NameCount> counts);

  std::vector<std::string> names_;
  // Offsets into counts_, num_clients + 1.
  std::vector<size_t> client_begin_ = {0};
  std::vector<NameCount> counts_;
  std::string digest_;
};

}  // namespace sheaf
