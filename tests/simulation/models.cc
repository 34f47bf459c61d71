#include "tests/simulation/models.h"

#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <string_view>

#include "aggregation/wire/safetensors.h"
#include "aggregation/wire/safetensors_patch.h"
#include "base/check.h"
#include "base/checksum.h"

namespace sheaf::simulation {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr int kNumbers = 3;
constexpr int kPatches = 2;

template <typename Values>
std::string_view AsBytes(const Values& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])};
}

std::string WholeOf(const std::array<float, 4>& rows, float scale) {
  const std::array<float, 1> scales = {scale};
  return EncodeSafetensors(
      std::vector<TensorView>{{.name = "w", .dtype = v1::FLOAT32, .shape = {4, 1}, .data = AsBytes(rows)},
                              {.name = "scale", .dtype = v1::FLOAT32, .shape = {}, .data = AsBytes(scales)}},
      {});
}

std::map<std::string, SimBroadcast> MakeAll() {
  std::map<std::string, SimBroadcast> all;
  for (int model = 0; model < 2 * kNumbers; ++model) {
    auto number = static_cast<float>(model);
    std::array<float, 4> rows = {number, number, number, number};
    SimBroadcast broadcast;
    broadcast.file = broadcast.whole = WholeOf(rows, number);
    for (int patches = 0;; ++patches) {
      broadcast.digest = Sha256Hex(broadcast.file);
      all[broadcast.digest] = broadcast;
      if (patches == kPatches) break;
      // A row that the patch before has as well, one that it has not, and all of another tensor.
      const std::array<int64_t, 2> moved = {patches, patches + 1};
      const std::array<float, 2> values = {number + 10, number + 20 + static_cast<float>(patches)};
      for (size_t i = 0; i < moved.size(); ++i) rows[static_cast<size_t>(moved[i])] = values[i];
      number += 100;
      const std::array<float, 1> scales = {number};
      const std::vector<TensorChange> changes = {
          {.tensor = "w", .rows = moved, .dtype = v1::FLOAT32, .shape = {2, 1}, .data = AsBytes(values)},
          {.tensor = "scale", .dtype = v1::FLOAT32, .shape = {}, .data = AsBytes(scales)}};
      broadcast.bases.push_back(broadcast.digest);
      broadcast.file = EncodeSafetensorsPatch(broadcast.digest, changes);
      broadcast.whole = WholeOf(rows, number);
    }
  }
  return all;
}

const std::map<std::string, SimBroadcast>& All() {
  static const std::map<std::string, SimBroadcast>* const all = new std::map(MakeAll());
  return *all;
}

}  // namespace

const SimBroadcast& BroadcastOf(const ModelName& model) {
  const auto number = static_cast<float>(model.number + (model.population == "red" ? 0 : kNumbers));
  const std::string whole = Sha256Hex(WholeOf({number, number, number, number}, number));
  for (const auto& [digest, broadcast] : All()) {
    const std::string& root = broadcast.bases.empty() ? digest : broadcast.bases.front();
    if (root == whole && static_cast<int>(broadcast.bases.size()) == model.num_patches) return broadcast;
  }
  SHEAF_CHECK(false, "there is no model {} with {} patches", model.number, model.num_patches);
}

const SimBroadcast* FindBroadcast(const std::string& digest) {
  const auto found = All().find(digest);
  return found == All().end() ? nullptr : &found->second;
}

}  // namespace sheaf::simulation
