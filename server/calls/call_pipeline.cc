#include "server/calls/call_pipeline.h"

#include <fmt/format.h>

#include "server/core/requests/message_parts.h"

namespace sheaf {

void CallPipeline::SetAccess(const AccessControl& access) {
  MutexLock lock(access_mutex_);
  access_ = &access;
}

bool CallPipeline::requires_identity() const {
  MutexLock lock(access_mutex_);
  return access_->is_required();
}

absl::StatusOr<IdentityPtr> CallPipeline::Identify(absl::FunctionRef<Credentials()> credentials) const {
  if (!requires_identity()) return Identity::Anybody();
  const Credentials shown = credentials();
  MutexLock lock(access_mutex_);
  return access_->Authenticate(shown.authorization, shown.certificate_names);
}

absl::Status CallPipeline::Enter(const MethodRow& method, const Identity& caller, int64_t bytes, absl::Time now) {
  if (bytes > parts_.limits.request_bytes_max) {
    return parts_.limits.Refuse(&Limits::request_bytes_max, fmt::format("the request has {} bytes, over", bytes));
  }
  return parts_.admission.Enter(method.traits.lane, caller, bytes, now);
}

bool CallPipeline::CountsParts(int64_t bytes) { return bytes > kUncountedBytesMax; }

absl::Status CallPipeline::CheckParts(const google::protobuf::Descriptor& type,
                                      google::protobuf::io::ZeroCopyInputStream& stream) const {
  return sheaf::CheckParts(type, stream, &Limits::request_parts_max, parts_.limits);
}

void CallPipeline::NoteRefusal(std::string_view method, std::string_view connection, const absl::Status& status) {
  refusals_.Info(Now(), "{} from {} is refused: {}", method, connection, std::string(status.message()));
}

void CallPipeline::Open() {
  MutexLock lock(mutex_);
  ++num_open_;
}

void CallPipeline::Close() {
  MutexLock lock(mutex_);
  if (--num_open_ == 0) idle_.NotifyAll();
}

bool CallPipeline::WaitUntilIdle(absl::Duration timeout) {
  const absl::Time end = Now() + timeout;
  MutexLock lock(mutex_);
  for (absl::Duration left = timeout; num_open_ > 0 && left > absl::ZeroDuration(); left = end - Now()) {
    idle_.WaitFor(mutex_, left);
  }
  return num_open_ == 0;
}

}  // namespace sheaf
