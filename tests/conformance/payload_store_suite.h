// What every PayloadStore promises, as tests whose names are the promises. A store joins by a row in
// PayloadStoresUnderTest().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "storage/payload_store.h"

namespace sheaf {

class PayloadStoreUnderTest {
 public:
  virtual ~PayloadStoreUnderTest() = default;
  virtual PayloadStore& store() = 0;
  // As a process that stopped and started again, with the power on.
  virtual void Reopen() {}
};

struct PayloadStoreKind {
  std::string name;
  std::function<std::unique_ptr<PayloadStoreUnderTest>()> make;
};

// Defined by the test that links the suite.
std::vector<PayloadStoreKind> PayloadStoresUnderTest();

}  // namespace sheaf
