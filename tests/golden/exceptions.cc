#include "tests/golden/exceptions.h"

namespace sheaf::golden {

// To add a row: run golden_test, and copy transcript, call and field from what it prints.
constexpr std::initializer_list<Exception> kExceptions = {};

std::span<const Exception> Exceptions() { return kExceptions; }

}  // namespace sheaf::golden
