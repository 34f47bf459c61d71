// libFuzzer's entry points for the target named at compile time.
#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>

#include <cstdlib>

#include "base/check.h"
#include "tests/fuzz/message_mutator.h"
#include "tests/fuzz/targets.h"

namespace {

const sheaf::fuzz::Target& ThisTarget() {
  static const sheaf::fuzz::Target& found = [&]() -> const sheaf::fuzz::Target& {
    for (const sheaf::fuzz::Target& target : sheaf::fuzz::Targets()) {
      if (target.name == SHEAF_FUZZ_TARGET) return target;
    }
    SHEAF_CHECK(false, "no such fuzz target");
    std::abort();
  }();
  return found;
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t size_max);

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  sheaf::fuzz::SetByteMutator(LLVMFuzzerMutate);
  // It would print a line for most inputs.
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ThisTarget().run(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max, unsigned seed) {
  const auto mutate = ThisTarget().mutate;
  return mutate == nullptr ? LLVMFuzzerMutate(data, size, size_max) : mutate(data, size, size_max, seed);
}
