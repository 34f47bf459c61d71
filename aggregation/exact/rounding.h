// Rounding of exact integers to IEEE floats, once, half to even.
#pragma once

namespace sheaf {

// value * 2^exponent as float or double. Subnormals are rounded at their own precision; beyond the largest finite
// number the result is an infinity; a negative value that rounds to zero gives -0. |value| < 2^127.
template <typename Float>
Float RoundInteger(__int128 value, int exponent);

}  // namespace sheaf
