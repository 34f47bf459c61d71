#include "storage/ids.h"

#include <catch2/catch.hpp>

namespace sheaf {
namespace {

TEST_CASE("A task id reads back from its text") {
  TaskId id{RoundId("r-7k2m9q4x"), 17};
  CHECK(id.ToString() == "r-7k2m9q4x/17");
  CHECK(TaskId::Parse("r-7k2m9q4x/17") == id);
  CHECK(TaskId::Parse("a/b/0") == TaskId{RoundId("a/b"), 0});
}

TEST_CASE("What is no task id is refused") {
  for (const char* text : {"", "r", "/1", "r/", "r/-1", "r/x", "r/1x", "r/01", "r/ 1", "r/2147483648", "r/+1"}) {
    INFO(text);
    CHECK_FALSE(TaskId::Parse(text).has_value());
  }
}

}  // namespace
}  // namespace sheaf
