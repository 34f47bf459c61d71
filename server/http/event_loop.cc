#include "server/http/event_loop.h"

#include <algorithm>
#include <boost/asio/post.hpp>

namespace sheaf {
namespace {

// What one read takes at most. A thread has one of it.
constexpr size_t kScratchBytes = 64 << 10;
// How often deadlines are looked at: they are seconds.
constexpr absl::Duration kTickEvery = absl::Milliseconds(500);
constexpr unsigned kLoopsMax = 4;

}  // namespace

int EventLoop::NumForThisMachine() {
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, kLoopsMax));
}

// One thread runs it: Asio need not wake others.
EventLoop::EventLoop(const Clock& clock) : clock_(clock), context_(1), timer_(context_), scratch_(kScratchBytes) {}

EventLoop::~EventLoop() { Stop(); }

void EventLoop::Start(std::function<void(absl::Time now)> tick) {
  tick_ = std::move(tick);
  Arm();
  thread_ = std::thread([this] { context_.run(); });
}

void EventLoop::Stop() {
  context_.stop();
  if (thread_.joinable()) thread_.join();
}

void EventLoop::Post(std::shared_ptr<LoopClient> client) {
  {
    MutexLock lock(mutex_);
    posted_.push_back(std::move(client));
    if (posted_.size() > 1) return;
  }
  boost::asio::post(context_, [this] { Drain(); });
}

void EventLoop::Drain() {
  std::vector<std::shared_ptr<LoopClient>> posted;
  {
    MutexLock lock(mutex_);
    posted.swap(posted_);
  }
  for (const std::shared_ptr<LoopClient>& client : posted) client->OnPosted();
}

void EventLoop::StopClients(bool at_once) {
  boost::asio::post(context_, [this, at_once] {
    for (LoopClient* client : deadlines_.All()) client->OnStop(at_once);
  });
}

const std::string& EventLoop::Date() {
  const absl::Time now = Now();
  if (const int64_t second = absl::ToUnixSeconds(now); second != date_second_) {
    date_second_ = second;
    date_ = absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", now, absl::UTCTimeZone());
  }
  return date_;
}

void EventLoop::SetTimer(absl::Time time, LoopClient* client) {
  timers_.emplace(time, client);
  if (time < next_tick_) Arm();
}

void EventLoop::Arm() {
  const absl::Time now = Now();
  next_tick_ = now + kTickEvery;
  if (!timers_.empty()) next_tick_ = std::clamp(timers_.begin()->first, now, next_tick_);
  timer_.expires_after(absl::ToChronoNanoseconds(next_tick_ - now));
  timer_.async_wait([this](const boost::system::error_code& error) {
    // Set anew, or the end.
    if (!error) Tick();
  });
}

void EventLoop::Tick() {
  const absl::Time now = Now();
  tick_(now);
  while (!timers_.empty() && timers_.begin()->first <= now) {
    LoopClient* client = timers_.begin()->second;
    timers_.erase(timers_.begin());
    client->OnTimer();
  }
  for (LoopClient* late : deadlines_.Expired(now)) late->OnDeadline();
  Arm();
}

}  // namespace sheaf
