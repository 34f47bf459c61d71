// ShardRouter: which store a call is about, on a server of a database that is divided into shards (storage/shard.h). By
// what the method's row says of its requests: a population was placed in a shard, a round, a task and an upload have a
// name that says where they are, and a broadcast is where it is found.
//
//   ShardRouter router;
//   router.Add(kHomeShard, home);                       // What is about no other goes there.
//   router.SetDirectory(directory, pool, core);         // Without one everything does.
//   router.Add(2, second);
//   router.SetPlacement({{"phones", 2}});
//   router.Forward(call, method, caller, request, &response, done);
//
// A population that nobody has seen is placed by its first broadcast or round, if the caller may make it. A broadcast
// that is in another shard than the round that names it is copied there. Both ask the directory, in the pool.
// Thread-safe. Refers to all it is given.
#pragma once

#include <google/protobuf/message.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/calls/call_pool.h"
#include "server/calls/forwarder.h"
#include "server/calls/kept_caller.h"
#include "server/calls/method_row.h"
#include "server/calls/scope.h"
#include "storage/shard.h"
#include "storage/shard_directory.h"

namespace sheaf {

class Core;

class ShardRouter final : public Forwarder {
 public:
  // All must live as long as calls come; the first shard is there before they do. `core` is any: what makes a
  // population asks it nothing.
  void Add(Shard shard, Forwarder& store) EXCLUDES(mutex_);
  void SetDirectory(ShardDirectory& directory, CallPool& pool, Core& core) EXCLUDES(mutex_);
  // Besides those before; or instead of them.
  void SetPlacement(const std::map<std::string, Shard>& placed, bool is_anew = false) EXCLUDES(mutex_);

  // UNAVAILABLE, with a hint, where the shard is one of which this server has not heard yet; the directory's codes.
  void Forward(CallId call, const MethodRow& method, const ForwardedCaller& caller,
               const google::protobuf::Message& request, google::protobuf::Message* response,
               MethodRow::Done done) override EXCLUDES(mutex_);
  void Abandon(CallId call, const MethodRow& method, const Identity& caller) override EXCLUDES(mutex_);
  // Of the first shard.
  bool is_here() const override EXCLUDES(mutex_);

 private:
  using Message = google::protobuf::Message;
  struct Asked {
    ShardDirectory* directory = nullptr;
    CallPool* pool = nullptr;
    Core* core = nullptr;
  };
  // A call that waits for the directory. Its messages live until `done` is called.
  struct Asking {
    CallId id;
    const MethodRow* method;
    std::shared_ptr<const KeptCaller> caller;
    const Message* request;
    Message* response;
    MethodRow::Done done;
  };
  // Nothing: the directory must be asked.
  std::optional<Shard> Find(const Subject& subject) const REQUIRES(mutex_);
  Asked asked() const EXCLUDES(mutex_);
  // What a directory is asked for must not be a stranger's wish.
  static absl::Status MayAsk(const Asking& asking, const Subject& subject, Core& core);
  // In the pool.
  void AskAndForward(const Asking& asking, const Subject& subject) EXCLUDES(mutex_);
  // Where the population of the request is, with the broadcast that it names.
  absl::StatusOr<Shard> Prepare(const Asking& asking, const Subject& subject) EXCLUDES(mutex_);
  absl::Status PutBroadcast(const std::string& digest, Shard shard) EXCLUDES(mutex_);
  // In which shards it is.
  absl::StatusOr<std::vector<Shard>> LookForBroadcast(const std::string& digest) EXCLUDES(mutex_);
  // To one after the other of the shards that have the broadcast: each knows only its own readers. When all that were
  // known refuse, the directory is asked whether there are more.
  struct Readers {
    std::string digest;
    std::vector<Shard> untried;
    std::vector<Shard> tried;
    bool is_fresh = false;
    // What the last of them said.
    absl::Status refusal;
  };
  void ForwardToReaders(const Asking& asking, Readers readers) EXCLUDES(mutex_);
  void ForwardTo(Shard shard, CallId call, const MethodRow& method, const ForwardedCaller& caller,
                 const Message& request, Message* response, MethodRow::Done done) EXCLUDES(mutex_);

  mutable Mutex mutex_;
  std::map<Shard, Forwarder*> stores_ GUARDED_BY(mutex_);
  // Without a directory there is but the first shard.
  Asked asked_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, Shard> placed_ GUARDED_BY(mutex_);
  // In which shards broadcasts were found that callers read: a hint.
  std::unordered_map<std::string, std::vector<Shard>> broadcasts_ GUARDED_BY(mutex_);
  // Where the calls are that are in another shard than the first, and whose callers have gone while the directory is
  // asked.
  std::unordered_map<CallId, Shard> calls_ GUARDED_BY(mutex_);
  std::unordered_map<CallId, bool> is_abandoned_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
