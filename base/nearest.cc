#include "base/nearest.h"

#include <algorithm>

namespace sheaf {

int EditDistance(std::string_view a, std::string_view b) {
  const size_t columns = b.size() + 1;
  std::vector<int> distance((a.size() + 1) * columns);
  const auto at = [&](size_t i, size_t j) -> int& { return distance[i * columns + j]; };
  for (size_t i = 0; i <= a.size(); ++i) at(i, 0) = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) at(0, j) = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replace = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({replace, at(i - 1, j) + 1, at(i, j - 1) + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return at(a.size(), b.size());
}

std::string Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  // Half of the word may be wrong, but never more than three letters.
  int best_distance = std::min(4, static_cast<int>(word.size()) / 2 + 1);
  for (const std::string& candidate : candidates) {
    // Part of a word is close, too: "desc" means "describe".
    const bool is_prefix = word.size() >= 2 && candidate.substr(0, word.size()) == word;
    const int distance = is_prefix ? 0 : EditDistance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace sheaf
