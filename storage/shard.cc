#include "storage/shard.h"

#include <fmt/format.h>

#include <charconv>

namespace sheaf {

std::string NamePrefix(char kind, Shard shard) {
  return shard == kHomeShard ? fmt::format("{}-", kind) : fmt::format("{}{}-", kind, shard);
}

Shard ShardOf(std::string_view name) {
  const std::string_view number = name.substr(0, name.find('-'));
  if (number.size() < 2 || number.size() == name.size()) return kHomeShard;
  int shard = 0;
  const auto [end, error] = std::from_chars(number.data() + 1, number.data() + number.size(), shard);
  const bool is_shard = error == std::errc() && end == number.data() + number.size() && number[1] != '0';
  return is_shard && shard >= 1 && shard < kNumShards ? shard : kHomeShard;
}

}  // namespace sheaf
