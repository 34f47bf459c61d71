// Deadlines: until when each connection of a loop may go on as it is. A connection has at most one, and a kind of
// deadline always lies as far ahead as any other of its kind: so those of one kind are a list in the order of their
// times, and to set one costs no allocation and no search, however many connections there are.
//
//   Deadlines<Connection> deadlines;
//   const auto place = deadlines.Add(connection);
//   deadlines.Set(place, DeadlineKind::kHead, now + limits.handshake_timeout);
//   for (Connection* late : deadlines.Expired(now)) late->OnDeadline();
//   deadlines.Remove(place);
//
// Not thread-safe: it belongs to its loop.
#pragma once

#include <array>
#include <list>
#include <vector>

#include "absl/time/time.h"

namespace sheaf {

// None; the first byte of a request, its head, its body; an answer, and what still comes behind the last one.
enum class DeadlineKind { kNone, kIdle, kHead, kBody, kAnswer, kLinger };

template <typename T>
class Deadlines {
 private:
  struct Entry {
    T* who;
    DeadlineKind kind;
    absl::Time until;
  };
  using List = std::list<Entry>;

 public:
  using Place = typename List::iterator;

  Place Add(T* who) {
    List& none = list(DeadlineKind::kNone);
    return none.insert(none.end(), {.who = who, .kind = DeadlineKind::kNone, .until = absl::InfiniteFuture()});
  }
  void Remove(Place place) { list(place->kind).erase(place); }
  // `until` is not before that of any other of the kind.
  void Set(Place place, DeadlineKind kind, absl::Time until) {
    List& to = list(kind);
    to.splice(to.end(), list(place->kind), place);
    place->kind = kind;
    place->until = until;
  }

  // Those that are due.
  std::vector<T*> Expired(absl::Time now) const {
    std::vector<T*> expired;
    for (const List& list : lists_) {
      for (const Entry& entry : list) {
        if (entry.until > now) break;
        expired.push_back(entry.who);
      }
    }
    return expired;
  }
  std::vector<T*> All() const {
    std::vector<T*> all;
    for (const List& list : lists_) {
      for (const Entry& entry : list) all.push_back(entry.who);
    }
    return all;
  }

 private:
  List& list(DeadlineKind kind) { return lists_[static_cast<size_t>(kind)]; }

  std::array<List, 6> lists_;
};

}  // namespace sheaf
