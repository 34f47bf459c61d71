// Makes tests/data/debian-index-sample.snapshot from this machine's package index; see README.md beside it.
//
//   make_tags_sample [OUTPUT]
#include <cstdio>
#include <utility>

#include "base/random.h"
#include "workloads/tags/dataset.h"

namespace {

using namespace sheaf;

constexpr size_t kBytesMax = 400'000;
// A feature that only one package has teaches nothing about another.
constexpr int kExamplesPerFeatureMin = 2;

// As many clients, in a fixed random order, as fit into kBytesMax.
TagsDataset LargestSample(const TagsDataset& dataset) {
  std::vector<int> clients;
  for (int client = 0; client < dataset.num_clients(); ++client) clients.push_back(client);
  // Not the seed that held out clients: the same shuffle would put all of those first.
  SeededRandom random(20230610);
  for (size_t i = clients.size(); i > 1; --i) std::swap(clients[i - 1], clients[random.Below(i)]);
  TagsDataset sample = dataset.Subset(clients, kExamplesPerFeatureMin);
  while (sample.Serialize().size() > kBytesMax) {
    clients.resize(clients.size() * 9 / 10);
    sample = dataset.Subset(clients, kExamplesPerFeatureMin);
  }
  return sample;
}

absl::Status MakeSample(const std::string& path) {
  const absl::StatusOr<std::string> index = ReadPackageIndex();
  if (!index.ok()) return index.status();
  const absl::StatusOr<TagsDataset> dataset = TagsDataset::ParseAvailable(*index);
  if (!dataset.ok()) return dataset.status();
  const TagsDataset sample = LargestSample(*dataset);
  std::printf("%s: %d clients, %d examples, %d features, %d labels\n", path.c_str(), sample.num_clients(),
              sample.num_examples(), sample.num_features(), sample.num_labels());
  return sample.Save(path);
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = MakeSample(argc > 1 ? argv[1] : "debian-index-sample.snapshot");
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
