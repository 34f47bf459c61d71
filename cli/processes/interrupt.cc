#include "cli/processes/interrupt.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace sheaf {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr int kChildrenMax = 64;

// A signal handler can reach nothing but statics, and of these only lock-free ones.
std::atomic<pid_t> children[kChildrenMax];
std::atomic<int> num_children;
std::atomic<bool> was_interrupted;
static_assert(std::atomic<pid_t>::is_always_lock_free);

void OnSignal(int) {
  was_interrupted = true;
  for (int i = 0; i < num_children; ++i) ::kill(children[i], SIGTERM);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  num_children = 0;
  was_interrupted = false;
  struct sigaction action {};
  action.sa_handler = OnSignal;
  ::sigemptyset(&action.sa_mask);
  // The next one ends us as usual.
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  for (int i = 0; i < 3; ++i) ::sigaction(kSignals[i], &action, &previous_[i]);
  // Children, and what they wrote, are cleaned up first.
  previous_pipe_ = ::signal(SIGPIPE, SIG_IGN);
}

InterruptGuard::~InterruptGuard() {
  for (int i = 0; i < 3; ++i) ::sigaction(kSignals[i], &previous_[i], nullptr);
  ::signal(SIGPIPE, previous_pipe_);
  num_children = 0;
}

void InterruptGuard::Guard(pid_t child) {
  const int slot = num_children;
  if (slot == kChildrenMax) return;
  children[slot] = child;
  num_children = slot + 1;
}

bool InterruptGuard::interrupted() const { return was_interrupted; }

namespace {

// Of the one InterruptNote; see there.
char note[256];
std::atomic<size_t> note_size;

void OnLastSignal(int signal) {
  // What fails here is not told.
  if (::write(STDERR_FILENO, note, note_size) < 0) note_size = 0;
  // The usual effect, once this handler returns.
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

InterruptNote::InterruptNote(std::string_view text) {
  const size_t size = std::min(text.size(), sizeof note);
  std::copy_n(text.begin(), size, note);
  note_size = size;
  struct sigaction action {};
  action.sa_handler = OnLastSignal;
  ::sigemptyset(&action.sa_mask);
  for (int i = 0; i < 2; ++i) ::sigaction(kSignals[i], &action, &previous_[i]);
}

InterruptNote::~InterruptNote() {
  for (int i = 0; i < 2; ++i) ::sigaction(kSignals[i], &previous_[i], nullptr);
}

}  // namespace sheaf
