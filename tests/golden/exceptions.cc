#include "tests/golden/exceptions.h"

namespace sheaf::golden {

constexpr std::string_view kDrained =
    "a drained worker stays: it does not stop, but waits in a parked call to be taken back into service";

// To add a row: run golden_test, and copy transcript, call and field from what it prints.
constexpr std::initializer_list<Exception> kExceptions = {
    {"v1/sequences/drained_by_server", Side::kWorker, 5, "", kDrained},
    {"v1/sequences/drained_by_server", Side::kWorker, 6, "", kDrained},
};

std::span<const Exception> Exceptions() { return kExceptions; }

}  // namespace sheaf::golden
