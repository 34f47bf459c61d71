// Inputs that fuzzing starts from: valid ones of every spec. `fuzz_corpus_test [make-corpus]` writes them to
// tests/fuzz/corpus.
#pragma once

#include <string>
#include <vector>

namespace sheaf::fuzz {

struct Seed {
  // As in the table of targets.
  std::string target;
  std::string input;
};

std::vector<Seed> Seeds();

}  // namespace sheaf::fuzz
