#include "base/log_quota.h"

#include "absl/strings/escaping.h"
#include "base/utf8.h"

namespace sheaf {
namespace {

constexpr size_t kLineBytesMax = 512;

}  // namespace

bool LogQuota::Take(absl::Time now, int64_t& left_out) {
  MutexLock lock(mutex_);
  if (now - begin_ >= in_ || now < begin_) {
    begin_ = now;
    num_written_ = 0;
  }
  if (num_written_ >= lines_max_) {
    ++num_left_out_;
    return false;
  }
  ++num_written_;
  left_out = std::exchange(num_left_out_, 0);
  return true;
}

std::string LogQuota::Line(const std::string& message, int64_t left_out) {
  std::string line = absl::Utf8SafeCHexEscape(CutUtf8(message, kLineBytesMax));
  if (left_out > 0) line += fmt::format(" (and {} more like it)", left_out);
  return line;
}

}  // namespace sheaf
