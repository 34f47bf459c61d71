// Text of others that goes into a message of ours: protobuf's readers refuse a string that is not UTF-8, and with it
// the whole message.
//
//   verdict.set_message(CutUtf8(error, 1024));
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sheaf {

bool IsUtf8(std::string_view text);

// The beginning of `text`, of at most `bytes_max` bytes, cut between characters; what is no character becomes '?'.
std::string CutUtf8(std::string_view text, size_t bytes_max);

}  // namespace sheaf
