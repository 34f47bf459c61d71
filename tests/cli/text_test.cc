#include <catch2/catch.hpp>
#include <sstream>

#include "base/nearest.h"
#include "cli/terminal/human_text.h"
#include "cli/terminal/progress_line.h"
#include "cli/terminal/table.h"
#include "tests/cli/sample_messages.h"

namespace sheaf {
namespace {

TEST_CASE("Durations have three digits, then two units") {
  CHECK(HumanDuration(absl::ZeroDuration()) == "0s");
  CHECK(HumanDuration(absl::Microseconds(12)) == "12us");
  CHECK(HumanDuration(absl::Milliseconds(250)) == "250ms");
  CHECK(HumanDuration(absl::Microseconds(1234)) == "1.23ms");
  CHECK(HumanDuration(absl::Milliseconds(3810)) == "3.81s");
  CHECK(HumanDuration(absl::Seconds(59.99)) == "1m00s");
  CHECK(HumanDuration(absl::Seconds(72)) == "1m12s");
  CHECK(HumanDuration(absl::Minutes(125)) == "2h05m");
  CHECK(HumanDuration(absl::Hours(76)) == "3d04h");
  CHECK(HumanDuration(absl::InfiniteDuration()) == "forever");
  CHECK(HumanDuration(-absl::Seconds(2)) == "-2s");
}

TEST_CASE("Ages have one unit, and a clock that is behind shows none below zero") {
  CHECK(HumanAge(absl::Seconds(4.9)) == "4s");
  CHECK(HumanAge(absl::Minutes(59)) == "59m");
  CHECK(HumanAge(absl::Hours(25)) == "1d");
  CHECK(HumanAge(-absl::Seconds(3)) == "0s");
}

TEST_CASE("Bytes and counts are read at a glance") {
  CHECK(HumanBytes(0) == "0 B");
  CHECK(HumanBytes(999) == "999 B");
  CHECK(HumanBytes(1234) == "1.2 kB");
  CHECK(HumanBytes(999'600) == "1.0 MB");
  CHECK(HumanBytes(5'100'000) == "5.1 MB");
  CHECK(HumanBytes(113'884'000'000) == "114 GB");
  CHECK(HumanCount(7) == "7");
  CHECK(HumanCount(56942) == "56,942");
  CHECK(HumanCount(-1234567) == "-1,234,567");
}

TEST_CASE("Cells are aligned two blanks apart, and no line ends in blanks") {
  Table table({{"NAME"}, {"N", Align::kRight}, {"NOTE"}});
  table.AddRow({"a", "1", ""});
  table.AddRow({"größer", "100", "x"});
  CHECK(table.Render({}) ==
        "NAME      N  NOTE\n"
        "a         1\n"
        "größer  100  x\n");
  CHECK(table.Render({.headers = false, .indent = 2}) ==
        "  a         1\n"
        "  größer  100  x\n");
}

TEST_CASE("Colours do not disturb the columns") {
  Table table({{"S"}, {"N"}});
  table.AddRow({{"bad", Color::kRed}, "1"});
  CHECK(table.Render({.headers = false, .colors = true}) == "\x1b[31mbad\x1b[0m  1\n");
}

TEST_CASE("The nearest word is found through typos, swaps and beginnings") {
  const std::vector<std::string> verbs = {"create", "list", "describe", "watch", "wait"};
  CHECK(Nearest("lsit", verbs) == "list");
  CHECK(Nearest("desc", verbs) == "describe");
  CHECK(Nearest("wathc", verbs) == "watch");
  CHECK(Nearest("zzz", verbs).empty());
  CHECK(Nearest("x", verbs).empty());
}

TEST_CASE("A progress line on a terminal is redrawn in place") {
  std::ostringstream err;
  ProgressLine line(err, {.is_terminal = true, .width = 10});
  line.Update("one", absl::FromUnixSeconds(0));
  line.Update("one", absl::FromUnixSeconds(1));
  line.Update("longer than it", absl::FromUnixSeconds(2));
  line.Finish();
  CHECK(err.str() == "\r\x1b[Kone\r\x1b[Klonger th\n");
}

TEST_CASE("Elsewhere progress is plain lines, not too many, and the last one is always shown") {
  std::ostringstream err;
  ProgressLine line(err, {.plain_interval = absl::Seconds(2)});
  line.Update("one", absl::FromUnixSeconds(0));
  line.Update("two", absl::FromUnixSeconds(1));
  line.Update("three", absl::FromUnixSeconds(2));
  line.Update("four", absl::FromUnixSeconds(3));
  line.Finish();
  CHECK(err.str() == "one\nthree\nfour\n");
}

TEST_CASE("A round's progress is a bar, counts, bytes and the time") {
  CHECK(RoundProgressText(CollectingRound(), absl::FromUnixSeconds(1'769'860'800)) ==
        "[##########----------] 26/50  3 leased  20 queued  1 failed  5.1 MB up  1.2 MB down  00:04");
  CHECK(ProgressBar(0, 0, 4) == "[----]");
  CHECK(ProgressBar(9, 3, 4) == "[####]");
}

}  // namespace
}  // namespace sheaf
