// What every TaskStore promises, as tests whose names are the promises. A store joins by a row in
// StoresUnderTest(); the suite then runs on it as it runs on the memory store, which is the specification.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "storage/task_store.h"

namespace sheaf {

// A store with its directory, if it has one. `reopen` closes and opens it again, as a restarted server would; for a
// store that keeps nothing it does nothing.
class StoreUnderTest {
 public:
  virtual ~StoreUnderTest() = default;
  virtual TaskStore& store() = 0;
  virtual void Reopen() {}
};

struct StoreKind {
  std::string name;
  std::function<std::unique_ptr<StoreUnderTest>()> make;
  // What was committed is there when it is opened again.
  bool is_durable = false;
};

// Defined by the test that links the suite.
std::vector<StoreKind> StoresUnderTest();

// Everything a store shows, as text: two stores are equal if their dumps are.
std::string Dump(TaskStore& store, absl::Time now);
std::string Describe(const TaskCounts& tasks);
std::string Describe(const RoundRecord& round);
std::string Describe(const TaskRecord& task);
std::string Describe(const AttemptRecord& attempt);
std::string Describe(const ContributionRecord& contribution);
std::string Describe(const WorkerRecord& worker);
std::string Describe(const TokenRecord& token);

}  // namespace sheaf
