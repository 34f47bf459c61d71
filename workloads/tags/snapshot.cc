// The snapshot format of TagsDataset. All numbers but those of the head are LEB128 varints.
//
//   head     of snapshot.h, with the magic "SHEAFTAG"
//   body     features, labels, clients
//            labels x (length, bytes)
//            clients x (held out 0|1, examples, examples x (n, n feature gaps, m, m label gaps))
//
// A gap is the distance to the previous number, the first one counted from -1: sorted and unique numbers have gaps
// >= 1.
#include "workloads/snapshot.h"

#include <fmt/format.h>

#include <utility>

#include "base/status_macros.h"
#include "workloads/tags/dataset.h"

namespace sheaf {
namespace {

constexpr std::string_view kMagic = "SHEAFTAG";
constexpr uint32_t kVersion = 1;
constexpr uint64_t kFeaturesMax = 1 << 28;
constexpr uint64_t kStoredLabelsMax = 65535;
constexpr uint64_t kLabelNameBytesMax = 256;

absl::StatusOr<TagsDataset> ReadBody(std::string_view body) {
  SnapshotReader reader(body);
  const uint64_t num_features = reader.Varint(kFeaturesMax);
  const uint64_t num_labels = reader.Count(kStoredLabelsMax);
  const uint64_t num_clients = reader.Count(body.size());
  std::vector<std::string> label_names;
  for (uint64_t i = 0; i < num_labels; ++i) {
    label_names.emplace_back(reader.Text(kLabelNameBytesMax));
    if (!reader.ok() || !IsPlainText(label_names.back()))
      return DamagedSnapshot(fmt::format("label {} is not text", i));
  }
  TagsDataset::Builder builder(std::move(label_names));
  std::vector<uint32_t> features;
  std::vector<uint16_t> labels;
  for (uint64_t client = 0; client < num_clients; ++client) {
    const bool is_held_out = reader.Varint(1) == 1;
    for (uint64_t left = reader.Count(body.size()); left > 0 && reader.ok(); --left) {
      reader.Ascending(num_features, features);
      reader.Ascending(num_labels, labels);
      builder.AddExample(features, labels);
    }
    if (!reader.ok()) return DamagedSnapshot(fmt::format("the examples of client {} are malformed", client));
    builder.EndClient(is_held_out);
  }
  if (!reader.at_end()) return DamagedSnapshot("bytes follow its end");
  return std::move(builder).Build(static_cast<int>(num_features));
}

}  // namespace

std::string TagsDataset::Serialize() const {
  std::string body;
  PutVarint(num_features(), body);
  PutVarint(num_labels(), body);
  PutVarint(num_clients(), body);
  for (const std::string& name : label_names_) {
    PutVarint(name.size(), body);
    body += name;
  }
  for (int client = 0; client < num_clients(); ++client) {
    const auto [begin, end] = ClientExamples(client);
    PutVarint(held_out_[client], body);
    PutVarint(end - begin, body);
    for (int i = begin; i < end; ++i) {
      PutAscending(example(i).features, body);
      PutAscending(example(i).labels, body);
    }
  }
  return SealSnapshot(kMagic, kVersion, body);
}

absl::StatusOr<TagsDataset> TagsDataset::Deserialize(std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::string_view body, OpenSnapshot(kMagic, kVersion, bytes));
  return ReadBody(body);
}

absl::Status TagsDataset::Save(const std::string& path) const { return SaveSnapshot(path, Serialize()); }

absl::StatusOr<TagsDataset> TagsDataset::Load(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadSnapshot(path));
  absl::StatusOr<TagsDataset> dataset = Deserialize(bytes);
  if (!dataset.ok()) return NamingSnapshot(path, dataset.status());
  return dataset;
}

}  // namespace sheaf
