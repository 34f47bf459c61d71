// docs/reference/limits.md has the rows of the limits, word for word. After one has changed,
//
//   build/release/bin/server_config_test "[.write-limits]"
//
// writes them into the page.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>

#include "server/config.h"
#include "server/core/limits/fixed_limits.h"
#include "server/core/limits/limits.h"

namespace sheaf {
namespace {

constexpr char kPage[] = SHEAF_SOURCE "/docs/reference/limits.md";

std::string Page() {
  std::ifstream file(kPage);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

std::string TableOfLimits() {
  const std::map<std::string, int64_t> defaults = Limits().ByName();
  Invocation invocation;
  const Settings settings = SettingsOf(invocation);
  std::string table = "| Limit | Default | Setting | Why, and what happens |\n|---|---|---|---|\n";
  for (const LimitRow& row : LimitRows()) {
    const Setting* setting = FindSetting(settings.all(), row.name);
    table += fmt::format("| `{}` | {} | {} | {}{}{} |\n", row.public_name(), defaults.at(row.public_name()),
                         setting == nullptr ? "" : fmt::format("`{}`", setting->flag()), row.what,
                         row.beyond.empty() ? "" : " ", row.beyond);
  }
  return table;
}

std::string TableOfFixedLimits() {
  std::string table = "| What | Most | Beyond it |\n|---|---|---|\n";
  for (const FixedLimit& limit : FixedLimits()) {
    table += fmt::format("| {} | {} | {} |\n", limit.what, limit.most, limit.answer);
  }
  return table;
}

// The page with `table` in the place of the one that begins with the same line.
std::string WithTable(const std::string& page, const std::string& table) {
  const size_t begin = page.find(table.substr(0, table.find('\n')));
  REQUIRE(begin != std::string::npos);
  const size_t end = page.find("\n\n", begin) + 1;
  return page.substr(0, begin) + table + page.substr(end);
}

std::string Rewritten() { return WithTable(WithTable(Page(), TableOfLimits()), TableOfFixedLimits()); }

TEST_CASE("The page of the limits has each of them, with its default, its setting and its reason, and no other") {
  INFO("server_config_test \"[.write-limits]\" writes the page");
  CHECK(Rewritten() == Page());
}

TEST_CASE("Write the limits into their page", "[.write-limits]") {
  const std::string page = Rewritten();
  std::ofstream(kPage) << page;
}

}  // namespace
}  // namespace sheaf
