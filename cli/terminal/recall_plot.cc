#include "cli/terminal/recall_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

namespace sheaf {
namespace {

// A braille character is a block of 2 x 4 dots.
constexpr int kDotsAcross = 2;
constexpr int kDotsDown = 4;
constexpr char32_t kBrailleBlank = 0x2800;
// Distance between the dots of the floor's line.
constexpr int kFloorDotStep = 4;

class DotCanvas {
 public:
  explicit DotCanvas(const PlotSize& size)
      : size_(size), cells_(static_cast<size_t>(size.width) * static_cast<size_t>(size.height), 0) {}

  int columns() const { return size_.width * kDotsAcross; }
  int rows() const { return size_.height * kDotsDown; }

  // Row 0 is the lowest.
  void Set(int column, int row) {
    const int down = rows() - 1 - row;
    // Bits of the Unicode block: the lowest pair of dots was added later, hence the order.
    static constexpr uint8_t kBits[kDotsDown][kDotsAcross] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    cells_[CellAt(column / kDotsAcross, down / kDotsDown)] |= kBits[down % kDotsDown][column % kDotsAcross];
  }

  // Without blanks at its end.
  std::string Line(int line) const {
    std::string text;
    size_t visible = 0;
    for (int i = 0; i < size_.width; ++i) {
      const uint8_t dots = cells_[CellAt(i, line)];
      if (dots == 0) {
        text += ' ';
        continue;
      }
      const char32_t code = kBrailleBlank + dots;
      text += static_cast<char>(0xe0 | code >> 12);
      text += static_cast<char>(0x80 | (code >> 6 & 0x3f));
      text += static_cast<char>(0x80 | (code & 0x3f));
      visible = text.size();
    }
    text.resize(visible);
    return text;
  }

 private:
  size_t CellAt(int column, int line) const {
    return static_cast<size_t>(line) * static_cast<size_t>(size_.width) + static_cast<size_t>(column);
  }

  PlotSize size_;
  std::vector<uint8_t> cells_;
};

// The values that the bottom and the top of the area stand for.
struct Scale {
  double low = 0;
  double high = 1;

  int Row(double value, int rows) const {
    return std::clamp(static_cast<int>(std::lround((value - low) / (high - low) * (rows - 1))), 0, rows - 1);
  }
};

Scale ScaleFor(const RecallCurve& curve) {
  const auto [lowest, highest] = std::minmax_element(curve.values.begin(), curve.values.end());
  const double low = std::min(*lowest, curve.floor), high = std::max(*highest, curve.floor);
  const double step = high - low > 0.05 ? 0.05 : 0.01;
  Scale scale{.low = std::floor(low / step + 1e-9) * step, .high = std::ceil(high / step - 1e-9) * step};
  if (scale.high - scale.low < step / 2) scale.high += step;
  return scale;
}

int ColumnOf(size_t round, size_t num_rounds, int columns) {
  if (num_rounds == 1) return 0;
  return static_cast<int>(
      std::lround(static_cast<double>(round) * (columns - 1) / static_cast<double>(num_rounds - 1)));
}

void DrawCurve(const RecallCurve& curve, const Scale& scale, DotCanvas& canvas) {
  const size_t n = curve.values.size();
  int column = 0, row = scale.Row(curve.values[0], canvas.rows());
  canvas.Set(column, row);
  for (size_t i = 1; i < n; ++i) {
    const int to_column = ColumnOf(i, n, canvas.columns()), to_row = scale.Row(curve.values[i], canvas.rows());
    const int steps = std::max({std::abs(to_column - column), std::abs(to_row - row), 1});
    for (int step = 1; step <= steps; ++step) {
      canvas.Set(column + static_cast<int>(std::lround(static_cast<double>(to_column - column) * step / steps)),
                 row + static_cast<int>(std::lround(static_cast<double>(to_row - row) * step / steps)));
    }
    column = to_column;
    row = to_row;
  }
}

// Round values, by the line they stand at; not so many that neighbouring lines are labelled.
std::map<int, double> AxisLabels(const Scale& scale, int height) {
  std::map<int, double> labels;
  const double range = scale.high - scale.low;
  const double hundredths = std::lround(range * 100);
  double step = range;
  for (int candidate : {1, 2, 5, 10, 20, 50}) {
    const bool fits = std::fmod(hundredths, candidate) == 0 && hundredths / candidate * 2 <= height - 1;
    if (fits) {
      step = candidate / 100.0;
      break;
    }
  }
  for (int i = 0; i <= std::lround(range / step); ++i) {
    const int above = static_cast<int>(std::lround(i * step / range * (height - 1)));
    labels[height - 1 - above] = scale.low + i * step;
  }
  return labels;
}

std::string RoundAxis(size_t num_rounds, int width) {
  const std::string last = fmt::format("{}", num_rounds);
  std::string ticks = "       └┬", labels = "        1";
  if (num_rounds > 1) {
    for (int i = 0; i < width - 2; ++i) ticks += "─";
    ticks += "┬";
    labels += std::string(static_cast<size_t>(width) - 1 - last.size(), ' ') + last;
  }
  return ticks + "\n" + labels + "  round\n";
}

}  // namespace

std::string DrawRecallPlot(const RecallCurve& curve, const PlotSize& size) {
  if (curve.values.empty()) return "";
  const Scale scale = ScaleFor(curve);
  DotCanvas canvas(size);
  const int floor_row = scale.Row(curve.floor, canvas.rows());
  for (int column = 0; column < canvas.columns(); column += kFloorDotStep) canvas.Set(column, floor_row);
  DrawCurve(curve, scale, canvas);

  const int floor_line = size.height - 1 - floor_row / kDotsDown;
  const std::map<int, double> labels = AxisLabels(scale, size.height);
  std::string text;
  for (int line = 0; line < size.height; ++line) {
    const auto label = labels.find(line);
    std::string row = label != labels.end() ? fmt::format("  {:.2f} ┤", label->second) : std::string("       │");
    row += canvas.Line(line);
    if (line == floor_line) row += fmt::format(" {} {:.3f}", curve.floor_name, curve.floor);
    text += row + "\n";
  }
  return text + RoundAxis(curve.values.size(), size.width);
}

}  // namespace sheaf
