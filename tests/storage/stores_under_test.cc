#include "storage/memory/memory_task_store.h"
#include "tests/conformance/task_store_suite.h"

namespace sheaf {
namespace {

class MemoryUnderTest final : public StoreUnderTest {
 public:
  TaskStore& store() override { return store_; }

 private:
  MemoryTaskStore store_;
};

}  // namespace

std::vector<StoreKind> StoresUnderTest() {
  return {{"memory", [] { return std::make_unique<MemoryUnderTest>(); }}};
}

}  // namespace sheaf
