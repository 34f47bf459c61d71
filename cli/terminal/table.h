// Table: columns for people. Cells are aligned, two blanks apart; no line ends in blanks.
//
//   Table table({{"ROUND"}, {"STATE"}, {"TASKS", Align::kRight}});
//   table.AddRow({"r-7k2m9q4x", {"FAILED", Color::kRed}, HumanCount(50)});
//   out << table.Render({.headers = true, .colors = false});
//
// Control characters in a cell are shown as '?': what a worker calls itself cannot move the cursor.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sheaf {

enum class Color { kNone, kBold, kDim, kRed, kGreen, kYellow, kBlue };
enum class Align { kLeft, kRight };

// `text` between the escape sequences of `color`; `text` itself if colours are off.
std::string Paint(std::string_view text, Color color, bool colors);
// Columns that `text` takes on a terminal, for UTF-8 of narrow characters.
size_t TextWidth(std::string_view text);
// Control characters replaced by '?'.
std::string Printable(std::string_view text);

struct Column {
  std::string name;
  Align align = Align::kLeft;
};

struct Cell {
  Cell(std::string cell_text, Color cell_color = Color::kNone) : text(std::move(cell_text)), color(cell_color) {}
  Cell(const char* cell_text, Color cell_color = Color::kNone) : text(cell_text), color(cell_color) {}

  std::string text;
  Color color;
};

struct TableStyle {
  bool headers = true;
  bool colors = false;
  // Blanks before every line.
  int indent = 0;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell per column.
  void AddRow(std::vector<Cell> cells);
  bool empty() const { return rows_.empty(); }
  // A line per row, each ended by a newline.
  std::string Render(const TableStyle& style) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace sheaf
