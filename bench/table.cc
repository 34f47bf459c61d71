#include "bench/table.h"

#include <fmt/format.h>

namespace sheaf::bench {

std::string Table::Markdown() const {
  std::string text = "| what | measured | against the echo of the same run | target |\n|---|---|---|---|\n";
  for (const Row& row : rows_)
    text += fmt::format("| {} | {} | {} | {} |\n", row.what, row.figure, row.ratio, row.target);
  return text;
}

}  // namespace sheaf::bench
