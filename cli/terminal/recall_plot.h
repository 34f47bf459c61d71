// RecallPlot: a curve over rounds, drawn with braille dots, with axes and the floor it has to beat.
//
//   out << DrawRecallPlot({.values = recall, .floor = 0.347, .floor_name = "popularity"}, {.width = 60, .height = 15});
//
//   0.55 ┤             ⢀⣀⠤⠤⠒⠒⠉
//        │      ⣀⠤⠒⠉
//   0.35 ┤⠄⠄⠄⠄⠄⠄⠄⠄⠄⠄⠄⠄⠄⠄⠄⠄⠄⠄⠄⠄⠄⠄ popularity 0.347
//        └┬────────────────────┬
//         1                   20  round
#pragma once

#include <string>
#include <vector>

namespace sheaf {

struct RecallCurve {
  // One per round, the first for round 1.
  std::vector<double> values;
  double floor = 0;
  std::string floor_name;
};

struct PlotSize {
  // Of the area inside the axes, in characters.
  int width = 60;
  int height = 16;
};

// Lines ended by newlines; empty if there are no values. The scale ends at round twentieths, or finer ones for a
// curve that is nearly flat.
std::string DrawRecallPlot(const RecallCurve& curve, const PlotSize& size);

}  // namespace sheaf
