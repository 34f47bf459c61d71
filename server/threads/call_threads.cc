#include "server/threads/call_threads.h"

#include <algorithm>
#include <utility>

namespace sheaf {

CallThreads::CallThreads(int num_threads)
    : client_max_(std::max(num_threads - 1, 1)), long_max_(std::max(num_threads / 2, 1)) {
  for (int i = 0; i < std::max(num_threads, 1); ++i) threads_.emplace_back([this] { Work(); });
}

CallThreads::~CallThreads() { Stop(); }

void CallThreads::Stop() {
  {
    MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  wake_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void CallThreads::Run(const std::string& client, Length length, std::function<void()> work) {
  {
    MutexLock lock(mutex_);
    Client& entry = clients_[client];
    if (entry.name.empty()) entry.name = client;
    auto& waiting = entry.waiting[static_cast<size_t>(length)];
    if (waiting.empty()) turns_[static_cast<size_t>(length)].push_back(&entry);
    waiting.push_back(std::move(work));
  }
  wake_.NotifyOne();
}

CallThreads::Client* CallThreads::NextIn(Length length) {
  if (length == Length::kLong && num_long_ >= long_max_) return nullptr;
  Turns& turns = turns_[static_cast<size_t>(length)];
  // At most one client has as many threads as it may: the second in turn is free, if not the first.
  const auto next = std::find_if(turns.begin(), turns.end(),
                                 [this](const Client* client) { return client->num_running < client_max_; });
  if (next == turns.end()) return nullptr;
  Client* client = *next;
  turns.erase(next);
  return client;
}

bool CallThreads::TakeNext(Client*& client, Length& length, std::function<void()>& work) {
  for (const Length candidate : {Length::kShort, Length::kLong}) {
    client = NextIn(candidate);
    if (client == nullptr) continue;
    length = candidate;
    auto& waiting = client->waiting[static_cast<size_t>(candidate)];
    work = std::move(waiting.front());
    waiting.pop_front();
    if (!waiting.empty()) turns_[static_cast<size_t>(candidate)].push_back(client);
    ++client->num_running;
    if (candidate == Length::kLong) ++num_long_;
    return true;
  }
  return false;
}

void CallThreads::Done(Client* client, Length length) {
  if (length == Length::kLong) --num_long_;
  if (--client->num_running > 0) return;
  const bool is_idle = client->waiting[0].empty() && client->waiting[1].empty();
  if (is_idle) clients_.erase(std::string(client->name));
}

void CallThreads::Work() {
  mutex_.Lock();
  for (;;) {
    Client* client = nullptr;
    Length length = Length::kShort;
    std::function<void()> work;
    if (TakeNext(client, length, work)) {
      // The call before this one may have kept several from running, who were passed over when they came.
      const bool are_others_waiting = !turns_[0].empty() || !turns_[1].empty();
      mutex_.Unlock();
      if (are_others_waiting) wake_.NotifyOne();
      work();
      // What it holds is not freed under the lock.
      work = nullptr;
      mutex_.Lock();
      Done(client, length);
      continue;
    }
    if (is_stopping_ && turns_[0].empty() && turns_[1].empty()) break;
    wake_.Wait(mutex_);
  }
  mutex_.Unlock();
  wake_.NotifyAll();
}

}  // namespace sheaf
