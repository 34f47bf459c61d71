#include "tests/golden/exceptions.h"

#include <array>

namespace sheaf::golden {

constexpr std::string_view kDrained =
    "a drained worker stays: it does not stop, but waits in a parked call to be taken back into service";

// To add a row: run golden_test, and copy transcript, call and field from what it prints.
constexpr std::array kExceptions = {
    Exception{"v1/sequences/drained_by_server", Side::kWorker, 5, "", kDrained},
    Exception{"v1/sequences/drained_by_server", Side::kWorker, 6, "", kDrained},
    Exception{"v1/calls/every_method", Side::kServer, 53, "call",
              "a worker that speaks protocol 2, too, was refused; what it says is its highest: it is answered in the "
              "server's, 1, and gets a lease"},
};

std::span<const Exception> Exceptions() { return kExceptions; }

}  // namespace sheaf::golden
