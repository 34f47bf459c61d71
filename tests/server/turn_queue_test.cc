#include "server/threads/turn_queue.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

namespace sheaf {
namespace {

constexpr absl::Duration kDear = absl::Milliseconds(10);
constexpr absl::Duration kCheap = absl::Microseconds(100);

// Callers' events, of which each says whose it is when it runs.
class Callers {
 public:
  void Add(const std::string& caller, int count = 1, absl::Time arrival = absl::UnixEpoch()) {
    for (int i = 0; i < count; ++i) {
      queue_.Add(
          caller, [this, caller](absl::Time) { ran_.push_back(caller); }, arrival);
    }
  }
  // Whose event is next; it takes so long.
  std::string Run(absl::Duration cost) {
    TurnQueue::Taken taken = queue_.Take();
    taken.event(absl::UnixEpoch());
    queue_.Settle(taken.ticket, cost);
    return ran_.back();
  }
  // As Run, each at the cost of its caller's kind, until there are none.
  std::vector<std::string> RunAll() {
    ran_.clear();
    while (!queue_.empty()) RunOne();
    return std::exchange(ran_, {});
  }
  void RunOne() {
    TurnQueue::Taken taken = queue_.Take();
    taken.event(absl::UnixEpoch());
    queue_.Settle(taken.ticket, ran_.back().starts_with("dear") ? kDear : kCheap);
  }
  TurnQueue& queue() { return queue_; }

 private:
  TurnQueue queue_;
  std::vector<std::string> ran_;
};

TEST_CASE("A caller with little to do does not wait for all that another one sent before") {
  Callers callers;
  callers.Add("crowd", 1000);
  callers.Add("one");
  callers.Run(kCheap);
  callers.Run(kCheap);
  CHECK(callers.queue().num_callers() == 1);
}

TEST_CASE("Callers get as much of the core's time, however much an event of theirs takes") {
  Callers callers;
  // What their events take is known after some.
  callers.Add("dear", 20);
  callers.Add("cheap", 20);
  callers.RunAll();
  callers.Add("dear", 20);
  callers.Add("cheap", 2000);
  std::vector<std::string> order = callers.RunAll();
  int cheap = 0;
  for (size_t i = 0; i < 1010; ++i) cheap += order[i] == "cheap" ? 1 : 0;
  // Ten of the dear ones take as long as a thousand of the others.
  CHECK(cheap > 950);
  CHECK(cheap < 1005);
}

TEST_CASE("Nobody saves up turns while having nothing to do") {
  Callers callers;
  callers.Add("late");
  callers.RunAll();
  callers.Add("busy", 1000);
  for (int i = 0; i < 500; ++i) callers.RunOne();
  callers.Add("late", 500);
  int late = 0;
  for (int i = 0; i < 100; ++i) late += callers.Run(kCheap) == "late" ? 1 : 0;
  CHECK(late >= 49);
  CHECK(late <= 51);
}

TEST_CASE("Events that a batch has left run first of their caller's, in their order") {
  Callers callers;
  std::vector<int> order;
  for (int i = 0; i < 6; ++i) {
    callers.queue().Add(
        "crowd", [&order, i](absl::Time) { order.push_back(i); }, absl::UnixEpoch());
  }
  std::vector<TurnQueue::Taken> batch;
  for (int i = 0; i < 4; ++i) batch.push_back(callers.queue().Take());
  batch[0].event(absl::UnixEpoch());
  callers.queue().Settle(batch[0].ticket, kCheap);
  for (size_t i = batch.size(); --i > 0;) {
    callers.queue().PutBack(batch[i].ticket, std::move(batch[i].event), batch[i].arrival);
  }
  while (!callers.queue().empty()) {
    TurnQueue::Taken taken = callers.queue().Take();
    taken.event(absl::UnixEpoch());
    callers.queue().Settle(taken.ticket, kCheap);
  }
  CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("What is put back takes nobody's place who came meanwhile") {
  Callers callers;
  callers.Add("crowd", 256);
  std::vector<TurnQueue::Taken> batch;
  for (int i = 0; i < 256; ++i) batch.push_back(callers.queue().Take());
  callers.Add("one");
  callers.queue().Settle(batch[0].ticket, kDear);
  for (size_t i = batch.size(); --i > 0;) {
    callers.queue().PutBack(batch[i].ticket, std::move(batch[i].event), batch[i].arrival);
  }
  CHECK(callers.Run(kCheap) == "one");
}

TEST_CASE("The oldest of all that wait is known, also when it was put back") {
  const absl::Time start = absl::UnixEpoch();
  Callers callers;
  CHECK(callers.queue().OldestArrival(start + absl::Hours(1)) == start + absl::Hours(1));
  callers.Add("a", 1, start + absl::Seconds(2));
  callers.Add("b", 1, start + absl::Seconds(1));
  CHECK(callers.queue().OldestArrival(start + absl::Hours(1)) == start + absl::Seconds(1));
  callers.RunOne();
  TurnQueue::Taken taken = callers.queue().Take();
  CHECK(callers.queue().OldestArrival(start + absl::Hours(1)) == start + absl::Hours(1));
  callers.queue().PutBack(taken.ticket, std::move(taken.event), taken.arrival);
  CHECK(callers.queue().OldestArrival(start + absl::Hours(1)) <= start + absl::Seconds(2));
}

}  // namespace
}  // namespace sheaf
