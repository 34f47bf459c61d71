#include "server/calls/answer_books.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// Of open_answer_bytes_max, in eighths, by AnswerKind.
constexpr std::array<int64_t, 3> kEighths = {3, 1, 4};
// Of a part: one connection, one identity.
constexpr int64_t kConnectionShare = 8;
constexpr int64_t kIdentityShare = 2;
// Nearly all answers to workers are smaller: a lease or two, verdicts.
constexpr int64_t kSmallBytes = 16 << 10;
// Of control's part, large answers may have all but one in so many.
constexpr int64_t kSmallShare = 4;
// Of a chunk, when room is short.
constexpr int64_t kShortChunkShare = 8;
// Of answer_time_max, when room is needed; and of the part, per tick.
constexpr int64_t kNeededTimeShare = 4;
constexpr int64_t kCutShare = 8;
// Of clients that have nothing to take, so many accounts are kept: most come again at once.
constexpr size_t kIdleAccountsMax = 1024;

std::string_view NameOf(AnswerKind kind) {
  return kind == AnswerKind::kControl ? "control calls" : kind == AnswerKind::kList ? "lists" : "reads";
}

}  // namespace

AnswerBooks::AnswerBooks(const Limits& limits) : limits_(limits) {
  MutexLock lock(mutex_);
  for (size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    part.kind = static_cast<AnswerKind>(i);
    part.bytes_max = limits.open_answer_bytes_max / 8 * kEighths[i];
    part.connection_bytes_max = part.bytes_max / kConnectionShare;
    part.identity_bytes_max = part.bytes_max / kIdentityShare;
  }
}

AnswerBooks::~AnswerBooks() {
  MutexLock lock(mutex_);
  for (const Part& part : parts_) {
    SHEAF_CHECK(part.made.empty() && part.sent.empty() && part.waiting.empty(), "an answer outlives its books");
  }
}

// --- Who holds what -------------------------------------------------------------------------------

AnswerBooks::Holder AnswerBooks::Open(Part& part, const AnswerClient& client) {
  const auto open = [](Accounts& accounts, const std::string& name) {
    const auto found = accounts.try_emplace(name).first;
    ++found->second.num_uses;
    found->second.name = &found->first;
    return &found->second;
  };
  return {.connection = open(part.connections, client.connection),
          .identity = client.identity.empty() ? nullptr : open(part.identities, client.identity)};
}

void AnswerBooks::Close(Part& part, const Holder& holder) {
  const auto close = [](Accounts& accounts, Account* account) {
    if (account == nullptr || --account->num_uses > 0 || accounts.size() <= kIdleAccountsMax) return;
    accounts.erase(accounts.find(*account->name));
  };
  close(part.connections, holder.connection);
  close(part.identities, holder.identity);
}

absl::Status AnswerBooks::CheckRoom(Part& part, const Holder& holder, int64_t bytes, int64_t bytes_max) const {
  const auto fits = [bytes](int64_t held, int64_t max) { return held == 0 || held + bytes <= max; };
  if (!fits(holder.connection->bytes, part.connection_bytes_max)) {
    return limits_.Refuse(&Limits::open_answer_bytes_max,
                          fmt::format("this connection has {} bytes of answers to take, and its share is {} of",
                                      holder.connection->bytes, part.connection_bytes_max),
                          "read them, and try again");
  }
  if (holder.identity != nullptr && !fits(holder.identity->bytes, part.identity_bytes_max)) {
    return limits_.Refuse(&Limits::open_answer_bytes_max,
                          fmt::format("{} has {} bytes of answers to take, and its share is {} of",
                                      *holder.identity->name, holder.identity->bytes, part.identity_bytes_max),
                          "read them, and try again");
  }
  if (fits(part.bytes, bytes_max)) return absl::OkStatus();
  part.is_short = true;
  return limits_.Refuse(
      &Limits::open_answer_bytes_max,
      fmt::format("the server is overloaded: clients have {} bytes of answers to {} to take, and these may have {} of",
                  part.bytes, NameOf(part.kind), bytes_max));
}

int64_t AnswerBooks::RoomFor(const Part& part, const Holder& holder) const {
  const auto fits = [&](int64_t bytes, int64_t divisor) {
    const auto has_room = [&](int64_t held, int64_t max) { return held == 0 || held + bytes <= max / divisor; };
    return has_room(part.bytes, part.bytes_max) && has_room(holder.connection->bytes, part.connection_bytes_max) &&
           (holder.identity == nullptr || has_room(holder.identity->bytes, part.identity_bytes_max));
  };
  if (part.kind == AnswerKind::kList) {
    const int64_t page = limits_.page_bytes_max + kFrameBytes;
    return fits(page, 1) ? page : 0;
  }
  const int64_t chunk = limits_.chunk_bytes_max + kFrameBytes;
  if (fits(chunk, 2)) return chunk;
  const int64_t short_chunk = std::max<int64_t>(limits_.chunk_bytes_max / kShortChunkShare, 1) + kFrameBytes;
  return fits(short_chunk, 1) ? short_chunk : 0;
}

AnswerEntry* AnswerBooks::Add(Part& part, const Holder& holder, int64_t bytes) {
  AnswerEntry& entry = part.made.emplace_back();
  entry.kind = part.kind;
  entry.bytes = bytes;
  entry.holder = holder;
  entry.place = std::prev(part.made.end());
  part.bytes += bytes;
  holder.connection->bytes += bytes;
  if (holder.identity != nullptr) holder.identity->bytes += bytes;
  return &entry;
}

// --- Answers that wait for nothing ----------------------------------------------------------------

absl::Status AnswerBooks::CheckControl(const AnswerClient& client) {
  MutexLock lock(mutex_);
  Part& control = part(AnswerKind::kControl);
  // Who has nothing to take has no accounts, and gets none here: most calls are so.
  Account nothing;
  const auto find = [&nothing](Accounts& accounts, const std::string& name) {
    const auto found = accounts.find(name);
    return found == accounts.end() ? &nothing : &found->second;
  };
  const Holder holder = {.connection = find(control.connections, client.connection),
                         .identity = client.identity.empty() ? nullptr : find(control.identities, client.identity)};
  return CheckRoom(control, holder, kSmallBytes, control.bytes_max);
}

absl::StatusOr<AnswerEntry*> AnswerBooks::Take(const AnswerClient& client, int64_t bytes, absl::Time now,
                                               AnsweredCall& call) {
  MutexLock lock(mutex_);
  Part& control = part(AnswerKind::kControl);
  const Holder holder = Open(control, client);
  const int64_t large_max = control.bytes_max - control.bytes_max / kSmallShare;
  absl::Status status = CheckRoom(control, holder, bytes, bytes <= kSmallBytes ? control.bytes_max : large_max);
  if (!status.ok()) {
    Close(control, holder);
    return status;
  }
  AnswerEntry* entry = Add(control, holder, bytes);
  BeginSending(control, *entry, now, call);
  return entry;
}

AnswerEntry* AnswerBooks::TakeError(const AnswerClient& client, absl::Time now, AnsweredCall& call) {
  MutexLock lock(mutex_);
  Part& control = part(AnswerKind::kControl);
  AnswerEntry* entry = Add(control, Open(control, client), 0);
  BeginSending(control, *entry, now, call);
  return entry;
}

// --- Answers that wait for room -------------------------------------------------------------------

void AnswerBooks::Reserve(CallId call, AnswerKind kind, const AnswerClient& client, absl::Time now, OnRoom on_room) {
  Calls calls;
  AnswerEntry* entry = nullptr;
  {
    MutexLock lock(mutex_);
    Part& part = this->part(kind);
    const Holder holder = Open(part, client);
    // Nobody overtakes those who could go, too: when there is room, they went.
    if (const int64_t bytes = RoomFor(part, holder); bytes > 0) {
      entry = Add(part, holder, bytes);
    } else {
      MakePlaceToWait(part, holder, calls);
      ++holder.peer().num_waiting;
      part.waiting.push_back(
          {.call = call, .holder = holder, .until = now + limits_.answer_wait_max, .on_room = std::move(on_room)});
      if (static_cast<int64_t>(part.waiting.size()) > limits_.waiting_answers_max) {
        EndWait(part, std::prev(part.waiting.end()),
                limits_.Refuse(&Limits::waiting_answers_max,
                               fmt::format("{} calls wait for room for their answers,", part.waiting.size() - 1)),
                calls);
      }
    }
  }
  // Not moved from: who has an entry does not wait. NOLINTNEXTLINE(bugprone-use-after-move)
  if (entry != nullptr) return on_room(entry);
  for (const auto& due : calls) due();
}

void AnswerBooks::MakePlaceToWait(Part& part, const Holder& newest, Calls& calls) {
  if (static_cast<int64_t>(part.waiting.size()) < limits_.waiting_answers_max) return;
  // The newest call of the client that has most of them goes, so that no client takes every place.
  auto most = part.waiting.end();
  for (auto it = part.waiting.begin(); it != part.waiting.end(); ++it) {
    if (most == part.waiting.end() || it->holder.peer().num_waiting >= most->holder.peer().num_waiting) most = it;
  }
  if (most == part.waiting.end() || most->holder.peer().num_waiting <= newest.peer().num_waiting + 1) return;
  EndWait(part, most,
          limits_.Refuse(&Limits::waiting_answers_max,
                         fmt::format("{} calls wait for room for their answers, most of them this client's,",
                                     part.waiting.size())),
          calls);
}

std::list<AnswerBooks::Waiting>::iterator AnswerBooks::EndWait(Part& part, std::list<Waiting>::iterator waiting,
                                                               absl::Status status, Calls& calls) {
  calls.push_back([on_room = std::move(waiting->on_room), status = std::move(status)] { on_room(status); });
  --waiting->holder.peer().num_waiting;
  Close(part, waiting->holder);
  return part.waiting.erase(waiting);
}

void AnswerBooks::Serve(Part& part, Calls& calls) {
  while (!part.waiting.empty()) {
    auto next = part.waiting.end();
    int64_t bytes = 0;
    for (auto it = part.waiting.begin(); it != part.waiting.end(); ++it) {
      if (next != part.waiting.end() && it->holder.peer().bytes >= next->holder.peer().bytes) continue;
      const int64_t room = RoomFor(part, it->holder);
      if (room == 0) continue;
      next = it;
      bytes = room;
    }
    if (next == part.waiting.end()) return;
    AnswerEntry* entry = Add(part, next->holder, bytes);
    --next->holder.peer().num_waiting;
    calls.push_back([on_room = std::move(next->on_room), entry] { on_room(entry); });
    part.waiting.erase(next);
  }
}

void AnswerBooks::Abandon(CallId call) {
  Calls calls;
  {
    MutexLock lock(mutex_);
    for (Part& part : parts_) {
      for (auto it = part.waiting.begin(); it != part.waiting.end();) {
        it = it->call == call ? EndWait(part, it, absl::CancelledError("the caller has gone"), calls) : std::next(it);
      }
    }
  }
  for (const auto& due : calls) due();
}

// --- Until they are taken -------------------------------------------------------------------------

void AnswerBooks::BeginSending(Part& part, AnswerEntry& entry, absl::Time now, AnsweredCall& call) {
  entry.sent = now;
  entry.call = &call;
  entry.is_sent = true;
  part.sent.splice(part.sent.end(), part.made, entry.place);
}

void AnswerBooks::Send(AnswerEntry* entry, int64_t bytes, absl::Time now, AnsweredCall& call) {
  Calls calls;
  {
    MutexLock lock(mutex_);
    Part& part = this->part(entry->kind);
    const int64_t more = bytes - entry->bytes;
    entry->bytes = bytes;
    part.bytes += more;
    entry->holder.connection->bytes += more;
    if (entry->holder.identity != nullptr) entry->holder.identity->bytes += more;
    BeginSending(part, *entry, now, call);
    if (more < 0) Serve(part, calls);
  }
  for (const auto& due : calls) due();
}

void AnswerBooks::Release(AnswerEntry* entry) {
  Calls calls;
  {
    MutexLock lock(mutex_);
    Part& part = this->part(entry->kind);
    part.bytes -= entry->bytes;
    entry->holder.connection->bytes -= entry->bytes;
    if (entry->holder.identity != nullptr) entry->holder.identity->bytes -= entry->bytes;
    Close(part, entry->holder);
    (entry->is_sent ? part.sent : part.made).erase(entry->place);
    Serve(part, calls);
  }
  for (const auto& due : calls) due();
}

void AnswerBooks::CutOld(Part& part, absl::Time now, Calls& calls) {
  // Who waits for its own share waits for its own answers.
  const bool is_needed =
      std::exchange(part.is_short, false) ||
      std::any_of(part.waiting.begin(), part.waiting.end(), [&](const Waiting& waiting) {
        return waiting.holder.connection->bytes < part.connection_bytes_max / 2 &&
               (waiting.holder.identity == nullptr || waiting.holder.identity->bytes < part.identity_bytes_max / 2);
      });
  int64_t cut_bytes = 0;
  for (AnswerEntry& entry : part.sent) {
    const absl::Duration age = now - entry.sent;
    const bool is_over = age >= limits_.answer_time_max;
    const bool is_in_the_way = is_needed && age >= limits_.answer_time_max / kNeededTimeShare &&
                               cut_bytes < std::max<int64_t>(part.bytes_max / kCutShare, 1);
    if (!is_over && !is_in_the_way) return;
    if (entry.call == nullptr) continue;
    cut_bytes += entry.bytes;
    ++num_cut_;
    calls.push_back(std::exchange(entry.call, nullptr)->Cut());
  }
}

void AnswerBooks::Tick(absl::Time now) {
  Calls calls;
  {
    MutexLock lock(mutex_);
    for (Part& part : parts_) {
      CutOld(part, now, calls);
      for (auto it = part.waiting.begin(); it != part.waiting.end();) {
        if (it->until > now) {
          ++it;
          continue;
        }
        absl::Status status = CheckRoom(part, it->holder, part.bytes_max, part.bytes_max);
        it = EndWait(
            part, it,
            limits_.Refuse(&Limits::answer_wait_max, "no room for the answer within", std::string(status.message())),
            calls);
      }
    }
  }
  for (const auto& due : calls) due();
}

int64_t AnswerBooks::bytes() {
  MutexLock lock(mutex_);
  int64_t bytes = 0;
  for (const Part& part : parts_) bytes += part.bytes;
  return bytes;
}

int64_t AnswerBooks::num_waiting() {
  MutexLock lock(mutex_);
  int64_t num = 0;
  for (const Part& part : parts_) num += static_cast<int64_t>(part.waiting.size());
  return num;
}

int64_t AnswerBooks::num_cut() {
  MutexLock lock(mutex_);
  return num_cut_;
}

}  // namespace sheaf
