#include "server/http/file_part.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

namespace sheaf {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

constexpr char kETag[] = "\"abc\"";

FilePart Part(const Fields& fields, int64_t size_bytes = 100, HttpMethod method = HttpMethod::kGet) {
  HttpRequest request;
  request.method = method;
  for (const auto& [name, value] : fields) request.headers.Add(name, value);
  return PartOf(request, kETag, size_bytes);
}

TEST_CASE("A range is what RFC 9110 says that it is, and what it does not know is ignored") {
  struct Row {
    std::string range;
    int status;
    int64_t offset;
    int64_t length;
  };
  for (const Row& row : {
           Row{"bytes=0-0", 206, 0, 1},
           Row{"bytes=0-", 206, 0, 100},
           Row{"bytes=10-19", 206, 10, 10},
           Row{"bytes= 10-19 ", 206, 10, 10},
           Row{"bytes=99-", 206, 99, 1},
           Row{"bytes=90-1000", 206, 90, 10},
           Row{"bytes=0-99999999999999999999999999", 206, 0, 100},
           Row{"bytes=-1", 206, 99, 1},
           Row{"bytes=-100", 206, 0, 100},
           Row{"bytes=-1000", 206, 0, 100},
           Row{"bytes=-99999999999999999999999999", 206, 0, 100},
           Row{"bytes=100-", 416, 0, 0},
           Row{"bytes=99999999999999999999999999-", 416, 0, 0},
           Row{"bytes=-0", 416, 0, 0},
           Row{"bytes=20-10", 200, 0, 100},
           Row{"bytes=0-1,3-4", 200, 0, 100},
           Row{"bytes=-", 200, 0, 100},
           Row{"bytes=", 200, 0, 100},
           Row{"bytes=5", 200, 0, 100},
           Row{"bytes=+1-2", 200, 0, 100},
           Row{"bytes=1--2", 200, 0, 100},
           Row{"bytes=0x1-2", 200, 0, 100},
           Row{"rows=0-1", 200, 0, 100},
           Row{"", 200, 0, 100},
       }) {
    INFO(row.range);
    const FilePart part = Part({{"range", row.range}});
    CHECK(part.status == row.status);
    CHECK(part.offset == row.offset);
    CHECK(part.length == row.length);
  }
  CHECK(Part({{"range", "bytes=0-1"}, {"range", "bytes=0-1"}}).status == 200);
  CHECK(Part({{"range", "bytes=0-1"}}, 100, HttpMethod::kHead).length == 100);
  for (const char* range : {"bytes=0-", "bytes=-5", "bytes=0-0"}) CHECK(Part({{"range", range}}, 0).status == 416);
}

TEST_CASE("What the client has is not sent, and of another file it gets no part") {
  for (const char* has : {"\"abc\"", "W/\"abc\"", "*", "\"x\", \"abc\"", "\"x\" ,W/\"abc\", "}) {
    INFO(has);
    CHECK(Part({{"if-none-match", has}}).status == 304);
    CHECK(Part({{"if-none-match", has}, {"range", "bytes=0-1"}}).status == 304);
    CHECK(Part({{"if-match", has}}).status == 200);
  }
  for (const char* has : {"\"abcd\"", "abc", "\"x\",\"y\"", ",,,"}) {
    INFO(has);
    CHECK(Part({{"if-none-match", has}}).status == 200);
    CHECK(Part({{"if-match", has}}).status == 412);
  }
  CHECK(Part({{"if-range", "\"abc\""}, {"range", "bytes=0-1"}}).status == 206);
  for (const char* other : {"\"abd\"", "W/\"abc\"", "Mon, 23 Nov 2026 14:00:00 GMT"}) {
    CHECK(Part({{"if-range", other}, {"range", "bytes=0-1"}}).status == 200);
  }
}

}  // namespace
}  // namespace sheaf
