// sheaf_aggregation_bench [--threads=N] [arguments of Google Benchmark]
#include "bench/aggregation/threads.h"

#include <benchmark/benchmark.h>

#include <charconv>
#include <cstdio>
#include <memory>
#include <string_view>
#include <vector>

#include "server/threads/aggregation_pool.h"

namespace sheaf {
namespace {

constexpr int kThreadsMax = 1024;
constexpr std::string_view kFlag = "--threads=";

std::unique_ptr<ParallelFor> threads;

// 0 if it says nothing that is one.
int NumThreads(std::string_view text) {
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  return error == std::errc() && end == text.data() + text.size() && n <= kThreadsMax ? n : 0;
}

// Takes its argument out of those that are Google Benchmark's. False if it is malformed.
bool StartThreads(std::vector<char*>& arguments) {
  int num_threads = 1;
  std::erase_if(arguments, [&num_threads](const char* argument) {
    const std::string_view text = argument;
    if (!text.starts_with(kFlag)) return false;
    num_threads = NumThreads(text.substr(kFlag.size()));
    return true;
  });
  if (num_threads < 1) return false;
  if (num_threads == 1) {
    threads = std::make_unique<InlineFor>();
  } else {
    threads = std::make_unique<AggregationPool>(num_threads - 1);
  }
  return true;
}

}  // namespace

ParallelFor& Threads() { return *threads; }

}  // namespace sheaf

int main(int argc, char** argv) {
  std::vector<char*> arguments(argv, argv + argc);
  if (!sheaf::StartThreads(arguments)) {
    std::fprintf(stderr, "--threads=N takes a number from 1 to %d\n", sheaf::kThreadsMax);
    return 2;
  }
  int num_arguments = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&num_arguments, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(num_arguments, arguments.data())) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  sheaf::threads.reset();
  return 0;
}
