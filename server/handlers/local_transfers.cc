#include "server/handlers/local_transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/checksum.h"
#include "proto/methods.h"
#include "server/calls/kept_caller.h"
#include "server/calls/scope.h"
#include "server/core/uploads/upload_names.h"

namespace sheaf {
namespace {

// As long as a server that waits may not have heard that a token was revoked.
constexpr absl::Duration kAllowedFor = absl::Seconds(1);
// Callers times broadcasts. At most some 150 bytes each.
constexpr size_t kAllowedMax = 20'000;

const MethodRow& RowOf(const MethodTable& methods, const std::string& name) {
  const MethodRow* row = methods.Find(name);
  SHEAF_CHECK(row != nullptr, "there is no method {}", name);
  return *row;
}

// What the owner says to one caller of this key it says to all: both reads are for the same roles.
std::string KeyOf(const Identity& caller, const std::string& digest) {
  return fmt::format("{}\n{}\n{}", caller.token, digest, caller.name);
}

// The owner would say the same, because it is about the request alone, or about what all servers have.
bool IsFinal(const absl::Status& status) {
  return status.ok() || absl::IsInvalidArgument(status) || absl::IsOutOfRange(status) ||
         absl::IsFailedPrecondition(status);
}

}  // namespace

LocalTransfers::LocalTransfers(Forwarder& owner, PayloadStore& payloads, const MethodTable& methods,
                               const Dispatcher& dispatcher, const Limits& limits, const Clock& clock)
    : owner_(owner),
      payloads_(payloads),
      limits_(limits),
      read_blob_(RowOf(methods, kReadBlob.name)),
      dispatcher_(dispatcher),
      clock_(clock),
      open_blobs_(payloads, limits),
      transfers_(payloads, open_blobs_, limits) {}

LocalTransfers::~LocalTransfers() {
  MutexLock lock(mutex_);
  while (!asked_.empty()) none_asked_.Wait(mutex_);
}

void LocalTransfers::Forward(CallId id, const MethodRow& method, const ForwardedCaller& caller, const Message& request,
                             Message* response, MethodRow::Done done) {
  const Forwarded call = {
      .id = id, .method = &method, .request = &request, .response = response, .done = std::move(done)};
  const Identity& who = *caller.identity;
  if (const auto* chunk = dynamic_cast<const v1::WriteChunkRequest*>(&request)) {
    if (MayUse(chunk->upload_id(), method, who)) {
      // It may be answered, and the call be gone, before it is written. Whatever goes wrong comes before that.
      return transfers_.WriteChunk(*chunk, [&](absl::StatusOr<v1::WriteChunkResponse> answer) {
        End(call, caller, method_row_internal::Fill(response, std::move(answer)));
      });
    }
  } else if (const auto* query = dynamic_cast<const v1::QueryUploadRequest*>(&request)) {
    if (MayUse(query->upload_id(), method, who)) {
      return End(call, caller, method_row_internal::Fill(response, transfers_.QueryUpload(*query)));
    }
  } else if (const auto* finish = dynamic_cast<const v1::FinishUploadRequest*>(&request)) {
    if (MayUse(finish->upload_id(), method, who)) {
      if (absl::Status finished = FinishUpload(finish->upload_id()); !finished.ok()) {
        return call.done(std::move(finished));
      }
    }
  } else if (const auto* blob = dynamic_cast<const v1::ReadBlobRequest*>(&request)) {
    if (IsSha256Hex(blob->digest())) return AskAndRead(call, caller, blob->digest());
  } else if (const auto* rows = dynamic_cast<const v1::SelectRowsRequest*>(&request)) {
    if (IsSha256Hex(rows->digest())) return AskAndRead(call, caller, rows->digest());
  }
  owner_.Forward(id, method, caller, request, response, call.done);
}

void LocalTransfers::Abandon(CallId call, const MethodRow& method, const Identity& caller) {
  CallId question;
  {
    MutexLock lock(mutex_);
    const auto asked = asked_.find(call);
    if (asked != asked_.end()) question = asked->second;
  }
  owner_.Abandon(call, method, caller);
  owner_.Abandon(question, method, caller);
}

bool LocalTransfers::MayUse(const std::string& upload_id, const MethodRow& method, const Identity& caller) {
  return caller.CheckRole(method.name, method.traits.roles).ok() && CheckUploadScope(upload_id, caller).ok();
}

void LocalTransfers::End(const Forwarded& call, const ForwardedCaller& caller, const absl::Status& done_here) {
  if (IsFinal(done_here)) return call.done(done_here);
  call.response->Clear();
  owner_.Forward(call.id, *call.method, caller, *call.request, call.response, call.done);
}

absl::Status LocalTransfers::FinishUpload(const std::string& upload_id) {
  const absl::StatusOr<UploadName> upload = ParseUploadName(upload_id);
  if (!upload.ok()) return absl::OkStatus();
  absl::Status finished = payloads_.FinishUpload(upload->id);
  // What has another digest than was announced is deleted, and nobody else will find it.
  return IsFinal(finished) || absl::IsDataLoss(finished) ? finished : absl::OkStatus();
}

absl::Status LocalTransfers::Read(const Forwarded& call, int64_t answer_bytes_max) {
  const int64_t chunk = limits_.chunk_bytes_max;
  const int64_t bytes_max = answer_bytes_max == 0 ? chunk : std::min(chunk, answer_bytes_max);
  if (const auto* blob = dynamic_cast<const v1::ReadBlobRequest*>(call.request)) {
    return method_row_internal::Fill(call.response, transfers_.ReadBlob(*blob, bytes_max));
  }
  const auto& rows = static_cast<const v1::SelectRowsRequest&>(*call.request);
  return method_row_internal::Fill(call.response, transfers_.SelectRows(rows, bytes_max));
}

void LocalTransfers::AskAndRead(const Forwarded& call, const ForwardedCaller& caller, const std::string& digest) {
  std::string who_and_what = KeyOf(*caller.identity, digest);
  if (IsAllowed(who_and_what)) return End(call, caller, Read(call, caller.answer_bytes_max));
  const CallId question = dispatcher_.NewCall();
  {
    MutexLock lock(mutex_);
    asked_.emplace(call.id, question);
  }
  const auto request = std::make_shared<v1::ReadBlobRequest>();
  request->set_digest(digest);
  const auto response = std::make_shared<v1::ReadBlobResponse>();
  const auto kept = std::make_shared<const KeptCaller>(caller);
  ForwardedCaller asking = caller;
  asking.asks_only = true;
  owner_.Forward(question, read_blob_, asking, *request, response.get(),
                 [this, call, kept, request, response, who_and_what = std::move(who_and_what),
                  until = clock_.Now() + kAllowedFor](absl::Status status) {
                   if (status.ok()) {
                     Allow(who_and_what, until);
                     // The owner's answer comes in a thread of the transport. Who is the first to read a broadcast has
                     // all of it fetched.
                     dispatcher_.pool().Run(
                         std::string(kept->get().client), CallPool::Length::kLong,
                         [this, call, kept] { End(call, kept->get(), Read(call, kept->get().answer_bytes_max)); });
                   } else {
                     call.done(std::move(status));
                   }
                   MutexLock lock(mutex_);
                   asked_.erase(call.id);
                   if (asked_.empty()) none_asked_.NotifyAll();
                 });
}

bool LocalTransfers::IsAllowed(const std::string& who_and_what) {
  MutexLock lock(mutex_);
  const auto allowed = allowed_.find(who_and_what);
  return allowed != allowed_.end() && clock_.Now() < allowed->second;
}

void LocalTransfers::Allow(const std::string& who_and_what, absl::Time until) {
  MutexLock lock(mutex_);
  // Whoever goes on reading is asked about again.
  if (allowed_.size() >= kAllowedMax) allowed_.clear();
  allowed_[who_and_what] = until;
}

}  // namespace sheaf
