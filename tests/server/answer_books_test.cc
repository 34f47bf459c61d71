// Who may hold how much of what clients have not taken, who waits, and who is cut off.
#include "server/calls/answer_books.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <deque>
#include <memory>
#include <optional>

#include "base/retry_hint.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

constexpr int64_t kMiB = 1 << 20;
const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

AnswerClient Client(const std::string& connection, const std::string& identity = "") {
  return {.connection = connection, .identity = identity};
}

// A call that wants room for its answer.
struct AskedRoom final : AnsweredCall {
  std::function<void()> Cut() override {
    return [this] { ++num_cuts; };
  }

  CallId id;
  std::optional<absl::StatusOr<AnswerEntry*>> room;
  int num_cuts = 0;

  bool has_room() const { return room.has_value() && room->ok(); }
  absl::Status refusal() const { return room.has_value() ? room->status() : absl::OkStatus(); }
};

// Books of 64 MiB: 24 for control, 8 for lists, 32 for reads. Everything is released in the end.
class Books {
 public:
  explicit Books(Limits limits = {}) {
    limits.open_answer_bytes_max = 64 * kMiB;
    books = std::make_unique<AnswerBooks>(limits);
  }
  ~Books() {
    for (AskedRoom& asked : calls) books->Abandon(asked.id);
    for (AskedRoom& asked : calls) Release(asked);
    for (AnswerEntry* entry : entries) books->Release(entry);
    CHECK(books->bytes() == 0);
  }
  AskedRoom& Read(const AnswerClient& client, absl::Time now = kStart, AnswerKind kind = AnswerKind::kRead) {
    AskedRoom& asked = calls.emplace_back();
    asked.id = CallId(static_cast<int64_t>(calls.size()));
    books->Reserve(asked.id, kind, client, now, [&asked](absl::StatusOr<AnswerEntry*> entry) { asked.room = entry; });
    return asked;
  }
  // As large as there was room for, and on its way.
  AskedRoom& ReadAndSend(const AnswerClient& client, absl::Time now = kStart) {
    AskedRoom& asked = Read(client, now);
    REQUIRE(asked.has_room());
    books->Send(**asked.room, (**asked.room)->bytes, now, asked);
    return asked;
  }
  void Release(AskedRoom& asked) {
    if (asked.has_room()) books->Release(**std::exchange(asked.room, std::nullopt));
  }
  absl::Status Take(const AnswerClient& client, int64_t bytes, absl::Time now = kStart) {
    absl::StatusOr<AnswerEntry*> entry = books->Take(client, bytes, now, taken);
    if (entry.ok()) entries.push_back(*entry);
    return entry.status();
  }
  // From ever new connections, until there is no room.
  void FillReads(absl::Time now = kStart) {
    for (int i = 0;; ++i) {
      AskedRoom& asked = Read(Client(fmt::format("filler-{}", i)), now);
      if (!asked.has_room()) {
        books->Abandon(asked.id);
        return;
      }
      books->Send(**asked.room, (**asked.room)->bytes, now, asked);
    }
  }

  std::unique_ptr<AnswerBooks> books;
  std::deque<AskedRoom> calls;
  std::vector<AnswerEntry*> entries;
  // Whose control answers are.
  AskedRoom taken;
};

TEST_CASE("Reads that nobody takes leave the room of workers' calls and of lists alone") {
  Books books;
  books.FillReads();
  CHECK(books.books->bytes() <= 32 * kMiB);
  CHECK(books.books->bytes() > 31 * kMiB);
  CHECK(books.books->CheckControl(Client("worker")).ok());
  CHECK(books.Take(Client("worker"), 2 * kMiB).ok());
  CHECK(books.Read(Client("operator"), kStart, AnswerKind::kList).has_room());
}

TEST_CASE("Chunks become smaller as the room does, so that many slow links get some") {
  Books books;
  std::vector<int64_t> sizes;
  for (int i = 0; i < 70; ++i) {
    const AskedRoom& asked = books.Read(Client(fmt::format("link-{}", i)));
    REQUIRE(asked.has_room());
    sizes.push_back((**asked.room)->bytes - AnswerBooks::kFrameBytes);
  }
  CHECK(sizes.front() == 2 * kMiB);
  CHECK(sizes.back() == 256 << 10);
}

TEST_CASE("One connection gets an eighth of a part and one identity half, whatever is free") {
  Books books;
  int num_served = 0;
  while (books.Read(Client("greedy")).has_room()) ++num_served;
  // 4 MiB: one chunk, and then small ones.
  CHECK(num_served == 8);
  // A neighbour of the same identity does not help it beyond that.
  for (int i = 0; books.Read(Client(fmt::format("greedy-{}", i), "mallory")).has_room(); ++i) REQUIRE(i < 100);
  CHECK(books.books->bytes() <= 20 * kMiB);
  CHECK(books.Read(Client("honest", "alice")).has_room());
}

TEST_CASE("Who waits for room goes in the order of what its client holds, then of arrival") {
  Books books;
  AskedRoom& held = books.ReadAndSend(Client("holder"));
  books.FillReads();
  // The last ones were small: there is room for one other in the place of each.
  AskedRoom& freed = books.calls[books.calls.size() - 2];
  AskedRoom& freed_too = books.calls[books.calls.size() - 3];
  AskedRoom& of_holder = books.Read(Client("holder"));
  AskedRoom& newcomer = books.Read(Client("newcomer"));
  AskedRoom& later = books.Read(Client("later"));
  CHECK(books.books->num_waiting() == 3);
  CHECK_FALSE((of_holder.room || newcomer.room || later.room));
  books.Release(freed);
  CHECK(newcomer.has_room());
  CHECK_FALSE((of_holder.room || later.room));
  books.Release(freed_too);
  CHECK(later.has_room());
  CHECK_FALSE(of_holder.room);
  books.Release(held);
  CHECK(of_holder.has_room());
}

TEST_CASE("Who waits too long is told so with the limit's name, and who has gone waits no more") {
  Limits limits;
  limits.answer_wait_max = absl::Seconds(7);
  Books books(limits);
  books.FillReads();
  AskedRoom& late = books.Read(Client("late"));
  AskedRoom& gone = books.Read(Client("gone"));
  books.books->Abandon(gone.id);
  CHECK(absl::IsCancelled(gone.refusal()));
  books.books->Tick(kStart + absl::Seconds(6));
  CHECK_FALSE(late.room.has_value());
  books.books->Tick(kStart + absl::Seconds(7));
  CHECK(absl::IsResourceExhausted(late.refusal()));
  CHECK_THAT(std::string(late.refusal().message()),
             Contains("answer_wait_max_ms = 7000") && Contains("open_answer_bytes_max = 67108864"));
  CHECK(RetryAfter(late.refusal()).has_value());
  CHECK(books.books->num_waiting() == 0);
}

TEST_CASE("A client that has taken every place to wait loses one to a newcomer") {
  Limits limits;
  limits.waiting_answers_max = 4;
  Books books(limits);
  books.FillReads();
  std::vector<AskedRoom*> greedy;
  for (int i = 0; i < 5; ++i) greedy.push_back(&books.Read(Client("greedy")));
  CHECK(absl::IsResourceExhausted(greedy[4]->refusal()));
  CHECK_THAT(std::string(greedy[4]->refusal().message()), Contains("waiting_answers_max = 4"));
  AskedRoom& newcomer = books.Read(Client("newcomer"));
  CHECK_FALSE(newcomer.room.has_value());
  CHECK(absl::IsResourceExhausted(greedy[3]->refusal()));
  CHECK_FALSE(greedy[2]->room.has_value());
}

TEST_CASE("A control answer beyond its client's share is refused, and so is the next call before it is looked at") {
  Books books;
  const AnswerClient greedy = Client("greedy", "mallory");
  // 3 MiB are an eighth of 24.
  CHECK(books.Take(greedy, 2 * kMiB).ok());
  const absl::Status refused = books.Take(greedy, 2 * kMiB);
  CHECK(absl::IsResourceExhausted(refused));
  CHECK_THAT(std::string(refused.message()), Contains("open_answer_bytes_max = 67108864") && Contains("try again"));
  CHECK(RetryAfter(refused).has_value());
  CHECK(books.books->CheckControl(greedy).ok());
  CHECK(books.Take(greedy, kMiB - 10).ok());
  CHECK_FALSE(books.books->CheckControl(greedy).ok());
  // One large answer always goes: another client's, larger than any share.
  CHECK(books.Take(Client("other"), 5 * kMiB).ok());
}

TEST_CASE("Large answers leave a quarter of control's part to small ones") {
  Books books;
  for (int i = 0; books.Take(Client(fmt::format("c-{}", i)), 2 * kMiB).ok(); ++i) REQUIRE(i < 20);
  CHECK(books.books->bytes() == 18 * kMiB);
  CHECK(books.Take(Client("worker"), 1000).ok());
  CHECK(books.Take(Client("worker"), 16 << 10).ok());
  CHECK_FALSE(books.Take(Client("worker-2"), 17 << 10).ok());
}

TEST_CASE("Errors that strangers do not take fill no room, and are cut off") {
  Limits limits;
  limits.answer_time_max = absl::Seconds(60);
  Books books(limits);
  for (int i = 0; i < 1000; ++i) {
    books.entries.push_back(books.books->TakeError(Client(fmt::format("stranger-{}", i % 10)), kStart, books.taken));
  }
  CHECK(books.books->bytes() == 0);
  CHECK(books.books->CheckControl(Client("worker")).ok());
  books.books->Tick(kStart + absl::Seconds(60));
  CHECK(books.taken.num_cuts == 1000);
}

TEST_CASE("What is not taken in its time is cut off, once, and counts until it is gone") {
  Limits limits;
  limits.answer_time_max = absl::Seconds(60);
  Books books(limits);
  AskedRoom& first = books.ReadAndSend(Client("first"));
  AskedRoom& second = books.ReadAndSend(Client("second"), kStart + absl::Seconds(30));
  REQUIRE(books.Take(Client("worker"), 1000, kStart + absl::Seconds(30)).ok());
  books.books->Tick(kStart + absl::Seconds(59));
  CHECK(first.num_cuts == 0);
  const int64_t held = books.books->bytes();
  for (int i = 0; i < 3; ++i) books.books->Tick(kStart + absl::Seconds(60 + i));
  CHECK(first.num_cuts == 1);
  CHECK(second.num_cuts == 0);
  CHECK(books.books->bytes() == held);
  books.Release(first);
  CHECK(books.books->bytes() < held);
  books.books->Tick(kStart + absl::Seconds(90));
  CHECK(second.num_cuts == 1);
  CHECK(books.taken.num_cuts == 1);
  CHECK(books.books->num_cut() == 3);
}

TEST_CASE("While others wait for the room, the oldest are cut off after a quarter of the time, some at a time") {
  Limits limits;
  limits.answer_time_max = absl::Seconds(60);
  limits.answer_wait_max = absl::Hours(1);
  Books books(limits);
  books.FillReads();
  const auto num_cut = [&] { return books.books->num_cut(); };
  books.books->Tick(kStart + absl::Seconds(20));
  CHECK(num_cut() == 0);
  // It waits for its own share: nobody else is in its way.
  AskedRoom& greedy = books.Read(Client("filler-0"));
  AskedRoom& honest = books.Read(Client("honest"));
  books.books->Tick(kStart + absl::Seconds(14));
  CHECK(num_cut() == 0);
  books.books->Tick(kStart + absl::Seconds(15));
  // 4 MiB: the first two.
  CHECK(num_cut() == 2);
  CHECK(books.calls[0].num_cuts == 1);
  CHECK(books.calls[1].num_cuts == 1);
  books.Release(books.calls[0]);
  CHECK(honest.has_room());
  static_cast<void>(greedy);
}

}  // namespace
}  // namespace sheaf
