// The fuzz targets: what an attacker's bytes reach in the aggregation algebra, and in what reads HTTP. Each takes any
// bytes, and holds what it accepts to laws; a broken law aborts. targets.cc is their table.
//
// They run in two ways: under libFuzzer, one binary each (tests/fuzz/run.sh), and over the stored corpus in the normal
// build (fuzz_corpus_test).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace sheaf::fuzz {

struct Target {
  // Its folder in tests/fuzz/corpus, and its binary "fuzz_<name>".
  std::string_view name;
  void (*run)(std::string_view input);
  // Changes `data` into another input of at most `size_max` bytes, keeping its structure; returns the new size. Null
  // where bytes may change anywhere.
  size_t (*mutate)(uint8_t* data, size_t size, size_t size_max, unsigned seed);
};

std::span<const Target> Targets();

// A contribution for one of OutputSpecs(): [spec][v1.Contribution].
void RunContribution(std::string_view input);
size_t MutateContribution(uint8_t* data, size_t size, size_t size_max, unsigned seed);

// A serialised state: [spec][kind][num_clients][num_contributions][state or the body of one].
void RunState(std::string_view input);

// A v1.AggregateSpec.
void RunSpec(std::string_view input);
size_t MutateSpec(uint8_t* data, size_t size, size_t size_max, unsigned seed);

// Requests of HTTP/1.1 in pieces: see http_target.cc.
void RunHttp(std::string_view input);

// Tables for the keyed operators, as a script of rows: see keyed_target.cc.
void RunKeyed(std::string_view input);

}  // namespace sheaf::fuzz
