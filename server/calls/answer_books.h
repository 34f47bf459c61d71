// AnswerBooks: the bytes of answers, from before an answer is made until its client has taken it. A client that asks
// and does not read would otherwise have the server keep everything it asked for.
//
//   books.Reserve(id, AnswerKind::kRead, client, now, [&](absl::StatusOr<AnswerEntry*> reserved) {
//     if (reserved.ok()) books.Send(*reserved, bytes, now, call);   // Made; its client has answer_time_max to take it.
//   });
//   ASSIGN_OR_RETURN(AnswerEntry * entry, books.Take(client, bytes, now, call));   // Both at once, or refused.
//   books.Release(entry);                                      // It has it, or is gone.
//   books.Tick(now);                                           // Once a second.
//
// The memory (open_answer_bytes_max) is divided, so that those who read files keep neither workers nor operators out:
// control 3/8 (Sync and everything small), lists 1/8, reads 1/2. In each part one connection may hold an eighth, and
// one identity half. Who holds nothing always gets one answer that fits the part.
//
// Lists and reads wait for room, without a thread, before anything is made: whoever's client holds least goes first,
// then who came first. When half of the reads' part is taken, an answer has an eighth of a chunk at most: a hundred
// fast readers do not notice, and a thousand slow links each get something. Control answers wait for nothing: they are
// refused, and of control's part a quarter is for small ones, which is what nearly all are.
//
// An answer that is not taken within answer_time_max is cut off: the call ends, and its memory is free. While somebody
// is refused or waits because a part is full, the oldest are cut off after a quarter of that already, an eighth of the
// part per second: a chunk of 256 KiB has passed a link of 70 kbit/s by then. Who is cut off asks again.
//
// Thread-safe. Callbacks are called outside of its lock, by whoever made room. Costs O(1), but for waking one of those
// who wait: O(their number), at most waiting_answers_max.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/core/batches/call_id.h"
#include "server/core/limits/limits.h"

namespace sheaf {

enum class AnswerKind { kControl, kList, kRead };

struct AnswerClient {
  // "ipv4:192.0.2.1:4711"
  std::string connection;
  // Empty: anybody.
  std::string identity;
};

struct AnswerEntry;

// What an answer belongs to.
class AnsweredCall {
 public:
  virtual ~AnsweredCall() = default;
  // What ends the call and frees its answer. It is called soon, perhaps when the call is over. Called at most once, and
  // before Release, under the lock of the books: it must not call them.
  virtual std::function<void()> Cut() = 0;
};

class AnswerBooks {
 public:
  using OnRoom = std::function<void(absl::StatusOr<AnswerEntry*>)>;

  // What else an answer with a chunk or a page holds.
  static constexpr int64_t kFrameBytes = 4 << 10;

  explicit AnswerBooks(const Limits& limits);
  // All must have been released.
  ~AnswerBooks();

  // Before a call is looked at: RESOURCE_EXHAUSTED with a retry hint, naming the limit, if its client has so much to
  // take that its answer would be refused.
  absl::Status CheckControl(const AnswerClient& client) EXCLUDES(mutex_);
  // A control answer, made and on its way. The same status.
  absl::StatusOr<AnswerEntry*> Take(const AnswerClient& client, int64_t bytes, absl::Time now, AnsweredCall& call)
      EXCLUDES(mutex_);
  // The same for an error: it counts as nothing, being no larger than what gRPC keeps for any open call, and strangers
  // get errors; but it is cut off like others.
  AnswerEntry* TakeError(const AnswerClient& client, absl::Time now, AnsweredCall& call) EXCLUDES(mutex_);
  // Calls `on_room` once, now or later. The same status if too many wait, or if there is no room within
  // answer_wait_max; CANCELLED after Abandon.
  void Reserve(CallId call, AnswerKind kind, const AnswerClient& client, absl::Time now, OnRoom on_room)
      EXCLUDES(mutex_);
  // Who waits no longer.
  void Abandon(CallId call) EXCLUDES(mutex_);

  // The answer is made, has so many bytes, and is on its way.
  void Send(AnswerEntry* entry, int64_t bytes, absl::Time now, AnsweredCall& call) EXCLUDES(mutex_);
  void Release(AnswerEntry* entry) EXCLUDES(mutex_);

  void Tick(absl::Time now) EXCLUDES(mutex_);

  int64_t bytes() EXCLUDES(mutex_);
  int64_t bytes(AnswerKind kind) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return part(kind).bytes;
  }
  int64_t num_waiting() EXCLUDES(mutex_);
  int64_t num_cut() EXCLUDES(mutex_);

 private:
  friend struct AnswerEntry;
  // What one connection, or one identity, has of one part.
  struct Account {
    // Its key's.
    const std::string* name = nullptr;
    int64_t bytes = 0;
    // Answers, and calls that wait for room.
    int64_t num_uses = 0;
    int64_t num_waiting = 0;
  };
  using Accounts = std::unordered_map<std::string, Account>;
  struct Holder {
    Account* connection = nullptr;
    // Null: anybody.
    Account* identity = nullptr;
    // Between whom room is shared.
    Account& peer() const { return identity != nullptr ? *identity : *connection; }
  };
  struct Waiting {
    CallId call;
    Holder holder;
    absl::Time until;
    OnRoom on_room;
  };
  using Entries = std::list<AnswerEntry>;
  struct Part {
    AnswerKind kind = AnswerKind::kControl;
    int64_t bytes_max = 0;
    int64_t connection_bytes_max = 0;
    int64_t identity_bytes_max = 0;
    int64_t bytes = 0;
    Accounts connections;
    Accounts identities;
    // Being made, and sent; those by the time they were sent.
    Entries made;
    Entries sent;
    // In the order in which they came.
    std::list<Waiting> waiting;
    // Somebody was refused since the last tick because it is full.
    bool is_short = false;
  };
  // What is to be called when the lock is given back.
  using Calls = std::vector<std::function<void()>>;

  Part& part(AnswerKind kind) REQUIRES(mutex_) { return parts_[static_cast<size_t>(kind)]; }
  static Holder Open(Part& part, const AnswerClient& client);
  static void Close(Part& part, const Holder& holder);
  // Why there is no room; OK if there is.
  absl::Status CheckRoom(Part& part, const Holder& holder, int64_t bytes, int64_t bytes_max) const;
  // How large an answer may be if there is room for any; 0 if there is none.
  int64_t RoomFor(const Part& part, const Holder& holder) const;
  static AnswerEntry* Add(Part& part, const Holder& holder, int64_t bytes);
  static void BeginSending(Part& part, AnswerEntry& entry, absl::Time now, AnsweredCall& call);
  void Serve(Part& part, Calls& calls) REQUIRES(mutex_);
  void MakePlaceToWait(Part& part, const Holder& newest, Calls& calls) REQUIRES(mutex_);
  static std::list<Waiting>::iterator EndWait(Part& part, std::list<Waiting>::iterator waiting, absl::Status status,
                                              Calls& calls);
  void CutOld(Part& part, absl::Time now, Calls& calls) REQUIRES(mutex_);

  const Limits limits_;
  Mutex mutex_;
  std::array<Part, 3> parts_ GUARDED_BY(mutex_);
  int64_t num_cut_ GUARDED_BY(mutex_) = 0;
};

struct AnswerEntry {
  AnswerKind kind = AnswerKind::kControl;
  // Of the answer; before it is made, as many as it may have.
  int64_t bytes = 0;

 private:
  friend class AnswerBooks;
  AnswerBooks::Holder holder;
  absl::Time sent;
  // Null before it is sent, and once it was cut off.
  AnsweredCall* call = nullptr;
  AnswerBooks::Entries::iterator place;
  bool is_sent = false;
};

}  // namespace sheaf
