#include "cli/terminal/recall_plot.h"

#include <catch2/catch.hpp>

namespace sheaf {
namespace {

TEST_CASE("A curve is drawn over its floor, with axes") {
  const std::string plot =
      DrawRecallPlot({.values = {0.41, 0.45, 0.5, 0.52, 0.53, 0.535, 0.54}, .floor = 0.347, .floor_name = "popularity"},
                     {.width = 20, .height = 6});
  CHECK("\n" + plot == R"(
  0.55 ┤         ⢀⣀⡠⠤⠤⠤⠒⠒⠒⠒⠒
       │     ⡠⠔⠊⠉⠁
       │ ⢀⡠⠔⠉
       │⠊⠁
       │⡀ ⡀ ⡀ ⡀ ⡀ ⡀ ⡀ ⡀ ⡀ ⡀ popularity 0.347
  0.30 ┤
       └┬──────────────────┬
        1                  7  round
)");
}

TEST_CASE("A curve of one round, and a flat one, can be drawn") {
  CHECK_FALSE(DrawRecallPlot({.values = {0.4}, .floor = 0.4, .floor_name = "x"}, {}).empty());
  CHECK_FALSE(DrawRecallPlot({.values = {0.4, 0.4}, .floor = 0.4, .floor_name = "x"}, {}).empty());
  CHECK(DrawRecallPlot({.values = {}, .floor = 0.4, .floor_name = "x"}, {}).empty());
}

TEST_CASE("No line of a plot ends in blanks") {
  const std::string plot = DrawRecallPlot({.values = {0.1, 0.9, 0.1}, .floor = 0.5, .floor_name = "x"}, {});
  CHECK(plot.find(" \n") == std::string::npos);
}

}  // namespace
}  // namespace sheaf
