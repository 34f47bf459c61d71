// Makes tests/data/debian-dependencies-sample.snapshot from this machine's package index; see README.md beside it.
//
//   make_hitters_sample [OUTPUT]
#include <cstdio>
#include <utility>

#include "base/random.h"
#include "workloads/hitters/dataset.h"

namespace {

using namespace sheaf;

constexpr size_t kBytesMax = 150'000;

// As many clients, in a fixed random order, as fit into kBytesMax.
HittersDataset LargestSample(const HittersDataset& dataset) {
  std::vector<int> clients;
  for (int client = 0; client < dataset.num_clients(); ++client) clients.push_back(client);
  SeededRandom random(20230610);
  for (size_t i = clients.size(); i > 1; --i) std::swap(clients[i - 1], clients[random.Below(i)]);
  HittersDataset sample = dataset.Subset(clients);
  while (sample.Serialize().size() > kBytesMax) {
    clients.resize(clients.size() * 9 / 10);
    sample = dataset.Subset(clients);
  }
  return sample;
}

absl::Status MakeSample(const std::string& path) {
  const absl::StatusOr<std::string> index = ReadPackageIndex();
  if (!index.ok()) return index.status();
  const absl::StatusOr<HittersDataset> dataset = HittersDataset::ParseAvailable(*index);
  if (!dataset.ok()) return dataset.status();
  const HittersDataset sample = LargestSample(*dataset);
  std::printf("%s: %d clients, %d names, %lld occurrences\n", path.c_str(), sample.num_clients(), sample.num_names(),
              static_cast<long long>(sample.num_occurrences()));
  return sample.Save(path);
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = MakeSample(argc > 1 ? argv[1] : "debian-dependencies-sample.snapshot");
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
