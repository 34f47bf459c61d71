#include "server/core/rounds/requirement_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace sheaf {

std::string CanonicalLabels(const google::protobuf::Map<std::string, std::string>& labels) {
  const std::map<std::string, std::string> sorted(labels.begin(), labels.end());
  std::string text;
  for (const auto& [key, value] : sorted) {
    if (!text.empty()) text += ',';
    text += fmt::format("{}={}", key, value);
  }
  return text;
}

bool Fulfils(const google::protobuf::Map<std::string, std::string>& labels, std::string_view requirement) {
  while (!requirement.empty()) {
    const std::string_view pair = requirement.substr(0, requirement.find(','));
    requirement.remove_prefix(std::min(requirement.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    const auto found = labels.find(std::string(pair.substr(0, equals)));
    if (found == labels.end() || found->second != pair.substr(equals + 1)) return false;
  }
  return true;
}

}  // namespace sheaf
