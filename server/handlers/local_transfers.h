// LocalTransfers: what a server whose turn has not come does itself: it moves bytes between those who call it and the
// payload store that it shares with the owner. It is the stage before a Forwarder, to which all else goes on.
//
//   LocalTransfers transfers(owner, payloads, methods, dispatcher, limits, clock);
//   transfers.Forward(call, method, caller, request, &response, done);
//
// Chunks of uploads are written here: the name of an upload says whose it is, and the store which bytes come next,
// whichever server they come to. FinishUpload hashes and flushes here, and then goes on to the owner, which takes the
// file as it is. Broadcasts are read here once the owner has said that the caller may read them, which holds for a
// second: as long as a token may hold that was revoked. What cannot be done here goes on to the owner, as any other
// call does: an upload that must not reach a disk and so is in the owner's memory, a caller who may not, a full disk, a
// database that only the owner reaches.
//
// Thread-safe. Forward runs what it does in the thread that calls it, and the CallPool.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/calls/dispatcher.h"
#include "server/calls/forwarder.h"
#include "server/calls/method_table.h"
#include "server/core/broadcasts/open_blobs.h"
#include "server/core/limits/limits.h"
#include "server/handlers/transfer_handlers.h"
#include "storage/payload_store.h"

namespace sheaf {

class LocalTransfers final : public Forwarder {
 public:
  // All must outlive it; the dispatcher gives its pool, and numbers to calls.
  LocalTransfers(Forwarder& owner, PayloadStore& payloads, const MethodTable& methods, const Dispatcher& dispatcher,
                 const Limits& limits, const Clock& clock);
  // Waits for the owner's answers.
  ~LocalTransfers() override;

  void Forward(CallId call, const MethodRow& method, const ForwardedCaller& caller,
               const google::protobuf::Message& request, google::protobuf::Message* response,
               MethodRow::Done done) override;
  void Abandon(CallId call, const MethodRow& method, const Identity& caller) override EXCLUDES(mutex_);

 private:
  using Message = google::protobuf::Message;
  // A call, whose messages live until `done` is called.
  struct Forwarded {
    CallId id;
    const MethodRow* method;
    const Message* request;
    Message* response;
    MethodRow::Done done;
  };

  // Whether the caller may go on with the upload, if it is in this store.
  static bool MayUse(const std::string& upload_id, const MethodRow& method, const Identity& caller);
  // As the call's answer; what cannot be done here goes on to the owner. With the same caller.
  void End(const Forwarded& call, const ForwardedCaller& caller, const absl::Status& done_here);
  // What is to be said of a FinishUpload before the owner hears of it.
  absl::Status FinishUpload(const std::string& upload_id);
  // Of a ReadBlob or a SelectRows.
  absl::Status Read(const Forwarded& call, int64_t answer_bytes_max);
  // Asks the owner whether the caller may read the broadcast, and ends the call.
  void AskAndRead(const Forwarded& call, const ForwardedCaller& caller, const std::string& digest) EXCLUDES(mutex_);
  bool IsAllowed(const std::string& who_and_what) EXCLUDES(mutex_);
  void Allow(const std::string& who_and_what, absl::Time until) EXCLUDES(mutex_);

  Forwarder& owner_;
  PayloadStore& payloads_;
  const Limits& limits_;
  const MethodRow& read_blob_;
  const Dispatcher& dispatcher_;
  const Clock& clock_;
  OpenBlobs open_blobs_;
  TransferHandlers transfers_;
  Mutex mutex_;
  CondVar none_asked_;
  // Until when somebody may read a broadcast.
  std::unordered_map<std::string, absl::Time> allowed_ GUARDED_BY(mutex_);
  // The calls for which the owner is being asked, and what it is asked.
  std::unordered_map<CallId, CallId> asked_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
