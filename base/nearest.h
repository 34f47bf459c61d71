// Nearest: what somebody who mistyped a word probably meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sheaf {

// Fewest insertions, deletions, replacements and swaps of neighbours that turn one into the other.
int EditDistance(std::string_view a, std::string_view b);

// The candidate closest to `word`, or "" if none is close enough to be meant.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace sheaf
