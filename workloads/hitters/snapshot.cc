// The snapshot format of HittersDataset.
//
//   head     of snapshot.h, with the magic "SHEAFHIT"
//   body     names, clients
//            names x (length, bytes), in the order of their bytes
//            clients x (n, n name gaps, n counts)
#include "workloads/snapshot.h"

#include <fmt/format.h>

#include "base/checksum.h"
#include "base/status_macros.h"
#include "workloads/hitters/dataset.h"

namespace sheaf {
namespace {

constexpr std::string_view kMagic = "SHEAFHIT";
constexpr uint32_t kVersion = 1;
constexpr uint64_t kNamesMax = 1 << 28;
// What keyed sums take as a key.
constexpr uint64_t kNameBytesMax = 1024;
constexpr uint64_t kCountMax = uint64_t{1} << 40;

}  // namespace

std::string HittersDataset::Serialize() const {
  std::string body;
  PutVarint(names_.size(), body);
  PutVarint(num_clients(), body);
  for (const std::string& name : names_) {
    PutVarint(name.size(), body);
    body += name;
  }
  std::vector<uint32_t> names;
  for (int i = 0; i < num_clients(); ++i) {
    names.clear();
    for (const NameCount& entry : client(i)) names.push_back(entry.name);
    PutAscending(std::span<const uint32_t>(names), body);
    for (const NameCount& entry : client(i)) PutVarint(entry.count, body);
  }
  return SealSnapshot(kMagic, kVersion, body);
}

absl::StatusOr<HittersDataset> HittersDataset::ReadBody(std::string_view body) {
  SnapshotReader reader(body);
  HittersDataset dataset;
  const uint64_t num_names = reader.Count(kNamesMax);
  const uint64_t num_clients = reader.Count(body.size());
  std::vector<std::string>& names = dataset.names_;
  for (uint64_t i = 0; i < num_names; ++i) {
    names.emplace_back(reader.Text(kNameBytesMax));
    const bool is_next = i == 0 || names[i - 1] < names[i];
    if (!reader.ok() || names[i].empty() || !IsPlainText(names[i]) || !is_next) {
      return DamagedSnapshot(fmt::format("name {} is not text, or not in order", i));
    }
  }
  std::vector<uint32_t> touched;
  std::vector<NameCount> counts;
  for (uint64_t client = 0; client < num_clients; ++client) {
    reader.Ascending(num_names, touched);
    counts.clear();
    for (uint32_t name : touched) counts.push_back({name, static_cast<int64_t>(reader.Varint(kCountMax))});
    for (const NameCount& entry : counts) {
      if (entry.count == 0) return DamagedSnapshot(fmt::format("client {} counts a name zero times", client));
    }
    if (!reader.ok()) return DamagedSnapshot(fmt::format("the counts of client {} are malformed", client));
    dataset.AddClient(counts);
  }
  if (!reader.at_end()) return DamagedSnapshot("bytes follow its end");
  return dataset;
}

absl::StatusOr<HittersDataset> HittersDataset::Deserialize(std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::string_view body, OpenSnapshot(kMagic, kVersion, bytes));
  ASSIGN_OR_RETURN(HittersDataset dataset, ReadBody(body));
  dataset.digest_ = Sha256Hex(bytes);
  return dataset;
}

absl::Status HittersDataset::Save(const std::string& path) const { return SaveSnapshot(path, Serialize()); }

absl::StatusOr<HittersDataset> HittersDataset::Load(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadSnapshot(path));
  absl::StatusOr<HittersDataset> dataset = Deserialize(bytes);
  if (!dataset.ok()) return NamingSnapshot(path, dataset.status());
  return dataset;
}

}  // namespace sheaf
