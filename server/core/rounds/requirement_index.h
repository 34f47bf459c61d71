// RequirementIndex: the distinct requirements of a round's tasks, and which of them a worker fulfils, found from the
// worker's labels. A round may have a requirement for each of its tasks; a worker has a handful of labels.
//
//   RequirementIndex index({"", "client=17", "gpu=yes,zone=eu"});   // As TaskStore::ListRequirements gives them.
//   const RequirementIndex::Match match = index.FulfilledBy(labels, {.candidates_max = 4096, .first = 0});
//   for (int32_t number : match.numbers) LogInfo("{}", index.texts()[static_cast<size_t>(number)]);
//
// A requirement is a set of labels that must all be there. Each is filed under one of them, the one that the fewest
// requirements of the round have; a worker's labels are looked up, and what is filed there is compared in full. So a
// look costs O(labels * log(requirements) + candidates), where the candidates are the requirements whose rarest label
// the worker carries: those it fulfils, and few others. Somebody who makes labels and requirements for the purpose can
// make them many: more than `candidates_max` are not looked at in one call.
//
// Immutable; thread-safe.
#pragma once

#include <google/protobuf/map.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sheaf {

class RequirementIndex {
 public:
  using Labels = google::protobuf::Map<std::string, std::string>;

  RequirementIndex() = default;
  // CanonicalLabels texts, sorted, each once.
  explicit RequirementIndex(std::vector<std::string> texts);

  const std::vector<std::string>& texts() const { return texts_; }
  size_t size() const { return texts_.size(); }

  struct Look {
    int64_t candidates_max = 0;
    // Where to begin among more candidates than that: any number. Another one finds others.
    uint64_t first = 0;
  };
  struct Match {
    // Of the requirements that the labels fulfil, ascending.
    std::vector<int32_t> numbers;
    int64_t num_candidates = 0;
    // False if there were more candidates than could be looked at.
    bool is_complete = true;
  };
  Match FulfilledBy(const Labels& labels, const Look& look) const;

 private:
  std::vector<std::string> texts_;
  // Hash of the label that a requirement is filed under, and the requirement's number; sorted.
  std::vector<std::pair<uint64_t, int32_t>> filed_;
};

}  // namespace sheaf
