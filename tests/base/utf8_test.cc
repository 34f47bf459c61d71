#include "base/utf8.h"

#include <catch2/catch.hpp>

namespace sheaf {
namespace {

TEST_CASE("Text is cut between characters") {
  CHECK(CutUtf8("abc", 10) == "abc");
  CHECK(CutUtf8("abc", 2) == "ab");
  CHECK(CutUtf8("a\xe2\x82\xac", 3) == "a");
  CHECK(CutUtf8("a\xe2\x82\xac", 4) == "a\xe2\x82\xac");
  CHECK(CutUtf8("\xf0\x9f\x92\xa5x", 4) == "\xf0\x9f\x92\xa5");
  CHECK(CutUtf8("\xf0\x9f\x92\xa5x", 3).empty());
  CHECK(CutUtf8("", 3).empty());
}

TEST_CASE("What is no character becomes a question mark") {
  CHECK(CutUtf8("a\xff\xfe z", 10) == "a?? z");
  CHECK_FALSE(IsUtf8("a\xff\xfe z"));
  CHECK(IsUtf8("a\xe2\x82\xac"));
  CHECK(IsUtf8(""));
  CHECK(CutUtf8("\xe2\x82", 10) == "??");
  CHECK(CutUtf8("\xc0\x80", 10) == "??");
  CHECK(CutUtf8("\xed\xa0\x80", 10) == "???");
  CHECK(CutUtf8("\xf4\x90\x80\x80", 10) == "????");
  CHECK(CutUtf8("\xf5\x80\x80\x80", 10) == "????");
  CHECK(CutUtf8("\x80", 10) == "?");
}

}  // namespace
}  // namespace sheaf
