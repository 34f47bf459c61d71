// The parts of MeasureHttp (bench.h) that have a file of their own.
#pragma once

#include "absl/status/status.h"
#include "bench/bench.h"
#include "bench/self_signed.h"

namespace sheaf::bench {

// With `tls` both ports speak it.
absl::Status MeasureHttpOverload(const Setup& setup, const SelfSigned* tls, Table& table);

}  // namespace sheaf::bench
