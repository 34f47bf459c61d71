// TurnQueue: events of callers that take turns: next is who has had least of the core's time, so that a caller with
// much to do waits for itself, and one with little for hardly anybody, whatever the others send.
//
//   queue.Add("fleet", std::move(event), clock.Now());
//   TurnQueue::Taken taken = queue.Take();                       // The oldest event of whoever is next.
//   queue.Settle(taken.ticket, absl::Microseconds(120));         // What it took of the core's time;
//   queue.PutBack(taken.ticket, std::move(event), arrival);      // or it did not run, and is its caller's next again.
//
// This is start-time fair queueing (Goyal, Vin and Cheng, 1996). Each caller has an account of the core's time. Whoever
// comes with an empty queue is set forward to where the others are, so that nobody saves up turns. What an event takes
// is known when it has run: until then it is charged what those of its caller took lately. An account stays when its
// queue is empty: there are no more of them than there were names of tokens. O(log callers). Not thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/time/time.h"
#include "server/core/batches/executor.h"

namespace sheaf {

class TurnQueue {
 private:
  struct Account;

 public:
  // Of an event that was taken: whose it is, what that caller had used, and what it was charged.
  struct Ticket {
    Account* account = nullptr;
    absl::Duration begin;
    absl::Duration charged;
  };
  struct Taken {
    Executor::Event event;
    absl::Time arrival;
    Ticket ticket;
  };

  void Add(const std::string& caller, Executor::Event event, absl::Time now);
  // There is one.
  Taken Take();
  // One of both for each that was taken. Several of one caller that did not run: the newest first.
  void Settle(const Ticket& ticket, absl::Duration cost);
  void PutBack(const Ticket& ticket, Executor::Event event, absl::Time arrival);

  bool empty() const { return turns_.empty(); }
  // That wait.
  size_t num_callers() const { return turns_.size(); }
  // Of all that wait; `now` if none does. O(callers that wait).
  absl::Time OldestArrival(absl::Time now) const;

 private:
  struct Waiting {
    Executor::Event event;
    absl::Time arrival;
  };
  struct Account {
    // The oldest first.
    std::deque<Waiting> waiting;
    // Of the core's time, counted from where it was set forward to.
    absl::Duration used;
    // What an event takes, by those that ran.
    absl::Duration usual_cost = absl::Microseconds(100);
    // Of two that used as much, who came first: order never depends on addresses.
    size_t number = 0;
  };
  struct InTurn {
    bool operator()(const Account* a, const Account* b) const {
      return std::pair(a->used, a->number) < std::pair(b->used, b->number);
    }
  };
  // Its place is by what it used.
  void Charge(Account& account, absl::Duration by);

  std::unordered_map<std::string, Account> accounts_;
  // Those that wait.
  std::set<Account*, InTurn> turns_;
  // What whoever ran last had used before.
  absl::Duration reached_;
};

}  // namespace sheaf
