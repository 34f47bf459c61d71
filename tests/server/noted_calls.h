// NotedCalls: a Forwarder that notes what comes to it, and answers at once or when a test says so. And the rows of all
// methods, of a server that does not run.
//
//   Notes notes;
//   NotedCalls store(notes, "home");
//   TableOfMethods table;
//   ACall call(CallId(1), table.Row(kGetRound), request);
//   call.GoTo(store);                                    // notes: "home: GetRound"
//   CHECK(call.status() == absl::OkStatus());
//
// Thread-safe, but for a call's own accessors.
#pragma once

#include <google/protobuf/message.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/random.h"
#include "proto/methods.h"
#include "server/calls/call_pool.h"
#include "server/calls/forwarder.h"
#include "server/server_parts.h"
#include "storage/memory/memory_payload_store.h"
#include "storage/memory/memory_task_store.h"

namespace sheaf {

// What happened, in its order: "home: GetRound".
class Notes {
 public:
  void Add(std::string note) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    notes_.push_back(std::move(note));
  }
  // Those since the last time.
  std::vector<std::string> Take() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return std::exchange(notes_, {});
  }

 private:
  Mutex mutex_;
  std::vector<std::string> notes_ GUARDED_BY(mutex_);
};

// "GetRound".
inline std::string ShortName(const MethodRow& method) { return method.name.substr(method.name.find('/') + 1); }

class NotedCalls final : public Forwarder {
 public:
  NotedCalls(Notes& notes, std::string name) : notes_(notes), name_(std::move(name)) {}

  // Of all calls from here on; none: calls wait for Answer.
  void AnswerWith(std::optional<absl::Status> status) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    answer_ = std::move(status);
  }
  // The one that waits longest.
  void Answer(absl::Status status) EXCLUDES(mutex_) {
    Waiting first;
    {
      MutexLock lock(mutex_);
      SHEAF_CHECK(!waiting_.empty(), "no call waits at {}", name_);
      first = std::move(waiting_.front());
      waiting_.erase(waiting_.begin());
    }
    first.done(std::move(status));
  }
  size_t num_waiting() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return waiting_.size();
  }
  // Of the call that came last.
  struct Last {
    CallId id;
    std::string request;
    std::string authorization;
    std::optional<Shard> forwarded_to;
    bool is_answer_empty = false;
  };
  Last last() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return last_;
  }

  void Forward(CallId call, const MethodRow& method, const ForwardedCaller& caller,
               const google::protobuf::Message& request, google::protobuf::Message* response,
               MethodRow::Done done) override EXCLUDES(mutex_) {
    notes_.Add(name_ + ": " + ShortName(method));
    std::optional<absl::Status> answer;
    {
      MutexLock lock(mutex_);
      last_ = {.id = call,
               .request = request.ShortDebugString(),
               .authorization = std::string(caller.shown.authorization),
               .forwarded_to = caller.forwarded_to,
               .is_answer_empty = response->ByteSizeLong() == 0};
      answer = answer_;
      if (!answer) waiting_.push_back({.id = call, .done = std::move(done)});
    }
    // Half an answer, as one that broke off.
    if (auto* read = dynamic_cast<v1::ReadBlobResponse*>(response); read != nullptr) read->set_data("by " + name_);
    if (answer) done(*std::move(answer));
  }
  void Abandon(CallId call, const MethodRow& method, const Identity& /*caller*/) override EXCLUDES(mutex_) {
    notes_.Add(name_ + ": " + ShortName(method) + " is abandoned");
    MethodRow::Done done;
    {
      MutexLock lock(mutex_);
      const auto found =
          std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) { return waiting.id == call; });
      if (found == waiting_.end()) return;
      done = std::move(found->done);
      waiting_.erase(found);
    }
    done(absl::CancelledError("the caller has gone"));
  }

 private:
  struct Waiting {
    CallId id;
    MethodRow::Done done;
  };

  Notes& notes_;
  const std::string name_;
  mutable Mutex mutex_;
  std::optional<absl::Status> answer_ GUARDED_BY(mutex_) = absl::OkStatus();
  Last last_ GUARDED_BY(mutex_);
  std::vector<Waiting> waiting_ GUARDED_BY(mutex_);
};

// Of a server that runs nothing.
class TableOfMethods {
 public:
  const MethodTable& table() const { return parts_.methods; }
  template <typename M>
  const MethodRow& Row(const M& method) const {
    return *parts_.methods.Find(method.name);
  }
  ServerParts& parts() { return parts_; }

 private:
  struct NoEvents final : Executor {
    void Post(Event) override {}
    void Defer(Deferred) override {}
  };

  ManualClock clock_;
  SeededRandom random_{1};
  MemoryTaskStore store_;
  MemoryPayloadStore payloads_;
  NoEvents executor_;
  ServerParts parts_{store_, payloads_, executor_, random_, clock_, {}};
};

// A call, and what became of it. It outlives its answer, and CHECKs that there is no second one.
class ACall {
 public:
  ACall(CallId id, const MethodRow& method, const google::protobuf::Message& request)
      : id_(id), method_(method), request_(request.New()), response_(method.response->New()) {
    request_->CopyFrom(request);
  }
  ~ACall() { SHEAF_CHECK(num_answers() <= 1, "call {} was answered twice", id_.value()); }

  void GoTo(Forwarder& forwarder, const ForwardedCaller& by = {}) {
    forwarder.Forward(id_, method_, by, *request_, response_.get(), [this](absl::Status status) {
      MutexLock lock(mutex_);
      ++num_answers_;
      status_ = std::move(status);
    });
  }
  void Leave(Forwarder& forwarder) const { forwarder.Abandon(id_, method_, *Identity::Anybody()); }

  CallId id() const { return id_; }
  bool is_answered() const { return num_answers() > 0; }
  int num_answers() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return num_answers_;
  }
  // UNKNOWN if there is none.
  absl::Status status() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return status_;
  }
  const google::protobuf::Message& response() const { return *response_; }

 private:
  const CallId id_;
  const MethodRow& method_;
  const std::unique_ptr<google::protobuf::Message> request_;
  const std::unique_ptr<google::protobuf::Message> response_;
  mutable Mutex mutex_;
  int num_answers_ GUARDED_BY(mutex_) = 0;
  absl::Status status_ GUARDED_BY(mutex_) = absl::UnknownError("not answered yet");
};

// Runs what it is given when a test says so, or at once.
class HeldPool final : public CallPool {
 public:
  void Run(const std::string& /*client*/, Length /*length*/, std::function<void()> work) override {
    if (!holds_) return work();
    held_.push_back(std::move(work));
  }
  void Hold() { holds_ = true; }
  // All that is held, and what comes of it.
  void Go() {
    holds_ = false;
    for (const std::function<void()>& work : std::exchange(held_, {})) work();
  }
  size_t num_held() const { return held_.size(); }

 private:
  bool holds_ = false;
  std::vector<std::function<void()>> held_;
};

}  // namespace sheaf
