// FloatRange: bounds on the magnitudes of some floats. ScanFloats and ScanDoubles find them.
#pragma once

namespace sheaf {

// Every |x| < 2^top, and each is a multiple of 2^low. Nothing is known of those if one is not finite.
struct FloatRange {
  bool is_all_zero = true;
  bool is_finite = true;
  int top = 0;
  int low = 0;
};

}  // namespace sheaf
