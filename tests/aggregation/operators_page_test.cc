// docs/reference/operators.md says what the table of operators says.
#include <catch2/catch.hpp>
#include <fstream>
#include <regex>
#include <sstream>

#include "aggregation/operators.h"

namespace sheaf {
namespace {

std::string Page() {
  std::ifstream file(SHEAF_SOURCE "/docs/reference/operators.md");
  std::stringstream text;
  text << file.rdbuf();
  REQUIRE(!text.str().empty());
  return text.str();
}

TEST_CASE("The page of operators says how much waits in the buckets of a sparse output") {
  std::ifstream file(SHEAF_SOURCE "/aggregation/sparse/entry_tree.cc");
  std::stringstream code;
  code << file.rdbuf();
  const std::string text = code.str();
  std::smatch match;
  REQUIRE(std::regex_search(text, match, std::regex(R"(kRootBytes = int64_t\{(\d+)\} << 20)")));
  const std::string expected = match[1];
  const std::string page = std::regex_replace(Page(), std::regex(R"(\s+)"), " ");
  const std::regex said(R"(at most (\d+) MiB at the root)");
  int num_said = 0;
  for (std::sregex_iterator it(page.begin(), page.end(), said), end; it != end; ++it, ++num_said) {
    CHECK((*it)[1] == expected);
  }
  // One for each operator of single values.
  CHECK(num_said == 8);
}

struct Section {
  std::string symbol;
  // Lines joined by single spaces.
  std::string text;
};

// "### `sum`" and what follows, in the order of the page.
std::vector<Section> Sections(const std::string& page) {
  std::vector<Section> sections;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("### `", 0) == 0) {
      sections.push_back({line.substr(5, line.size() - 6), ""});
    } else if (line.rfind('#', 0) == 0 && !sections.empty() && line.rfind("### ", 0) != 0) {
      break;
    } else if (!sections.empty()) {
      const size_t begin = std::min(line.find_first_not_of(' '), line.size());
      sections.back().text += line.substr(begin) + " ";
    }
  }
  return sections;
}

std::string Capitalised(std::string_view text) {
  std::string sentence(text);
  sentence[0] = static_cast<char>(std::toupper(sentence[0]));
  return sentence + ".";
}

std::string TakesText(const Operator& op) {
  const char* const dtypes = op.takes_integers() ? "FLOAT32, FLOAT64, INT32, INT64, UINT64." : "FLOAT32, FLOAT64.";
  const char* const operand = op.operand == Operand::kDense    ? "a dense tensor"
                              : op.operand == Operand::kSparse ? "a sparse tensor"
                                                               : "a keyed table";
  const char* const rows = op.default_index_dims == 1 ? " of row slices" : "";
  return std::string("- **Takes**: ") + operand + rows + " of " + dtypes;
}

TEST_CASE("The page of operators has a section for each row of the table, in its order, with its words and types") {
  const std::vector<Section> sections = Sections(Page());
  REQUIRE(sections.size() == Operators().size());
  for (size_t i = 0; i < sections.size(); ++i) {
    const Operator& op = Operators()[i];
    INFO(sections[i].text);
    REQUIRE(sections[i].symbol == op.symbol);
    // The table's sentence opens the section.
    CHECK(sections[i].text.rfind(" " + Capitalised(op.meaning) + " ", 0) == 0);
    CHECK(sections[i].text.find(TakesText(op)) != std::string::npos);
    size_t at = 0;
    for (const char* part : {"- **Takes**: ", "- **At a coordinate**: ", "- **Identity**: ", "- **Merge**: ",
                             "- **Cost**: ", "- **Edges**: "}) {
      const size_t found = sections[i].text.find(part, at);
      INFO(part);
      REQUIRE(found != std::string::npos);
      // And says something.
      CHECK(sections[i].text.find('.', found) != std::string::npos);
      at = found + 1;
    }
  }
}

}  // namespace
}  // namespace sheaf
