#include "server/threads/turn_queue.h"

#include <algorithm>

namespace sheaf {

void TurnQueue::Add(const std::string& caller, Executor::Event event, absl::Time now) {
  const auto [entry, is_new] = accounts_.try_emplace(caller);
  Account& account = entry->second;
  if (is_new) account.number = accounts_.size();
  account.waiting.push_back({std::move(event), now});
  if (account.waiting.size() > 1) return;
  account.used = std::max(account.used, reached_);
  turns_.insert(&account);
}

TurnQueue::Taken TurnQueue::Take() {
  Account& account = **turns_.begin();
  turns_.erase(turns_.begin());
  Waiting& first = account.waiting.front();
  Taken taken = {.event = std::move(first.event),
                 .arrival = first.arrival,
                 .ticket = {.account = &account, .begin = account.used, .charged = account.usual_cost}};
  account.waiting.pop_front();
  account.used += taken.ticket.charged;
  if (!account.waiting.empty()) turns_.insert(&account);
  return taken;
}

void TurnQueue::Settle(const Ticket& ticket, absl::Duration cost) {
  Account& account = *ticket.account;
  // Not when it was taken: what is put back did not bring anybody there.
  reached_ = std::max(reached_, ticket.begin);
  Charge(account, cost - ticket.charged);
  // One in eight: a single slow one says little about those that follow.
  account.usual_cost += (cost - account.usual_cost) / 8;
}

void TurnQueue::PutBack(const Ticket& ticket, Executor::Event event, absl::Time arrival) {
  Account& account = *ticket.account;
  Charge(account, -ticket.charged);
  account.waiting.push_front({std::move(event), arrival});
  turns_.insert(&account);
}

absl::Time TurnQueue::OldestArrival(absl::Time now) const {
  for (const Account* account : turns_) now = std::min(now, account->waiting.front().arrival);
  return now;
}

void TurnQueue::Charge(Account& account, absl::Duration by) {
  const bool waits = turns_.erase(&account) > 0;
  account.used += by;
  if (waits) turns_.insert(&account);
}

}  // namespace sheaf
