#include "cli/terminal/table.h"

#include <algorithm>

#include "base/check.h"

namespace sheaf {
namespace {

std::string_view EscapeSequence(Color color) {
  switch (color) {
    case Color::kNone:
      return "";
    case Color::kBold:
      return "\x1b[1m";
    case Color::kDim:
      return "\x1b[2m";
    case Color::kRed:
      return "\x1b[31m";
    case Color::kGreen:
      return "\x1b[32m";
    case Color::kYellow:
      return "\x1b[33m";
    case Color::kBlue:
      return "\x1b[34m";
  }
  return "";
}

std::string RenderLine(const std::vector<Cell>& cells, const std::vector<Column>& columns,
                       const std::vector<size_t>& widths, const TableStyle& style) {
  std::string line(static_cast<size_t>(style.indent), ' ');
  // Blanks are owed until a visible cell needs them, so that none ends the line.
  size_t owed = 0;
  for (size_t i = 0; i < cells.size(); ++i) {
    const size_t padding = widths[i] - TextWidth(cells[i].text);
    const bool right = columns[i].align == Align::kRight;
    if (right) owed += padding;
    if (!cells[i].text.empty()) {
      line.append(owed, ' ');
      line += Paint(cells[i].text, cells[i].color, style.colors);
      owed = 0;
    }
    if (!right) owed += padding;
    owed += 2;
  }
  return line + "\n";
}

}  // namespace

std::string Paint(std::string_view text, Color color, bool colors) {
  if (!colors || color == Color::kNone || text.empty()) return std::string(text);
  return std::string(EscapeSequence(color)).append(text).append("\x1b[0m");
}

size_t TextWidth(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string Printable(std::string_view text) {
  std::string clean(text);
  std::replace_if(
      clean.begin(), clean.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return clean;
}

void Table::AddRow(std::vector<Cell> cells) {
  SHEAF_CHECK(cells.size() == columns_.size(), "{} cells for {} columns", cells.size(), columns_.size());
  for (Cell& cell : cells) cell.text = Printable(cell.text);
  rows_.push_back(std::move(cells));
}

std::string Table::Render(const TableStyle& style) const {
  std::vector<size_t> widths(columns_.size(), 0);
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (style.headers) widths[i] = TextWidth(columns_[i].name);
    for (const auto& row : rows_) widths[i] = std::max(widths[i], TextWidth(row[i].text));
  }
  std::string text;
  if (style.headers) {
    std::vector<Cell> names;
    for (const Column& column : columns_) names.emplace_back(column.name, Color::kBold);
    text += RenderLine(names, columns_, widths, style);
  }
  for (const auto& row : rows_) text += RenderLine(row, columns_, widths, style);
  return text;
}

}  // namespace sheaf
