// What is counted, and what log lines say of whose work they are about.
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "base/counter.h"
#include "base/histogram.h"
#include "base/log.h"
#include "base/trace_parent.h"

namespace sheaf {
namespace {

constexpr double kBounds[] = {1, 2.5, 10};

std::vector<uint64_t> CountsOf(const Histogram& histogram) {
  std::vector<uint64_t> counts;
  for (const Histogram::Bucket& bucket : histogram.Read().buckets) counts.push_back(bucket.count);
  return counts;
}

TEST_CASE("A value is in the first bucket whose bound is not below it, and in all behind that one") {
  Histogram histogram(kBounds);
  CHECK(CountsOf(histogram) == std::vector<uint64_t>{0, 0, 0, 0});
  for (const double value : {-1.0, 1.0, 1.01, 2.5, 10.0, 10.5, 1e300}) histogram.Observe(value);
  CHECK(CountsOf(histogram) == std::vector<uint64_t>{2, 4, 5, 7});
  CHECK(std::isinf(histogram.Read().buckets.back().bound));
}

TEST_CASE("Values that are observed together are counted as if they had come one by one") {
  const std::vector<double> values = {0.5, 1, 2, 3, 3, 9, 11, 12, 1000};
  Histogram together(kBounds);
  Histogram one_by_one(kBounds);
  together.ObserveAll(values);
  together.ObserveAll({});
  for (const double value : values) one_by_one.Observe(value);
  CHECK(CountsOf(together) == CountsOf(one_by_one));
  CHECK(together.Read().sum == one_by_one.Read().sum);
}

TEST_CASE("A trace is taken from a header as W3C Trace Context has it, and from nothing else") {
  const std::string trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
  const std::string parent_id = "00f067aa0ba902b7";
  const std::string valid = "00-" + trace_id + "-" + parent_id + "-01";
  const auto parsed = TraceParent::Parse(valid);
  REQUIRE(parsed.has_value());
  CHECK(parsed->trace_id == trace_id);
  CHECK(parsed->parent_id == parent_id);
  // Of a later version, which may have more.
  const std::string later = "cc-" + trace_id + "-" + parent_id + "-01-what-there-will-be";
  CHECK(TraceParent::Parse(later).has_value());
  CHECK(TraceParent::Parse("cc" + valid.substr(2)).has_value());
  for (const std::string& wrong : {
           std::string(),
           std::string("00"),
           valid.substr(1),
           valid.substr(0, 54),
           valid + "-",
           valid + "-00",
           valid + "0",
           "ff" + valid.substr(2),
           "0x" + valid.substr(2),
           "00_" + trace_id + "-" + parent_id + "-01",
           "00-" + trace_id + "_" + parent_id + "-01",
           "00-" + trace_id + "-" + parent_id + "_01",
           "00-" + std::string(32, '0') + "-" + parent_id + "-01",
           "00-" + trace_id + "-" + std::string(16, '0') + "-01",
           "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + parent_id + "-01",
           "00-" + trace_id + "-" + parent_id + "-0g",
           "00-4bf92f3577b34da6a3ce929d0e0e473\n-" + parent_id + "-01",
           "cc-" + trace_id + "-" + parent_id + "-010",
       }) {
    INFO(wrong);
    CHECK_FALSE(TraceParent::Parse(wrong).has_value());
  }
}

class Tag final : public LogScope::Source {
 public:
  explicit Tag(std::string text) : text_(std::move(text)) {}
  std::string LogTag() const override {
    ++num_asked;
    return text_;
  }
  mutable int num_asked = 0;

 private:
  const std::string text_;
};

TEST_CASE("A scope of the log is asked what it is about only when a line is written, and the innermost one is") {
  const Tag outer("outer");
  const Tag inner("inner");
  const LogScope scope(&outer);
  LogLine(LogLevel::kDebug, "nobody wants to know");
  CHECK(outer.num_asked == 0);
  {
    const LogScope hides(&inner);
    LogLine(LogLevel::kError, "this line belongs to a test of the log");
    CHECK(inner.num_asked == 1);
    const LogScope nothing(nullptr);
    LogLine(LogLevel::kError, "this line belongs to a test of the log");
  }
  LogLine(LogLevel::kError, "this line belongs to a test of the log");
  CHECK(inner.num_asked == 1);
  CHECK(outer.num_asked == 1);
}

}  // namespace
}  // namespace sheaf
