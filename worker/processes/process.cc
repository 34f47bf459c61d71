#include "worker/processes/process.h"

#include <fmt/format.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace sheaf {
namespace {

int ToMilliseconds(absl::Duration duration) {
  return static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(duration), 0, 1'000'000));
}

// Appends what can be read at once, at most `bytes_max`. False if there will be no more.
bool ReadSome(int fd, size_t bytes_max, std::string& to) {
  char buffer[64 << 10];
  for (size_t read_bytes = 0; read_bytes < bytes_max;) {
    const ssize_t size = read(fd, buffer, std::min(sizeof(buffer), bytes_max - read_bytes));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return size < 0 && errno == EAGAIN;
    to.append(buffer, static_cast<size_t>(size));
    read_bytes += static_cast<size_t>(size);
  }
  return true;
}

}  // namespace

std::string ProcessEnd::Text() const {
  if (!reason.empty()) return reason;
  if (exceeded != ProcessLimit::kNone) return fmt::format("killed over its limit of {}", ProcessLimitName(exceeded));
  if (signal != 0) return fmt::format("signal {} ({})", signal, strsignal(signal));
  return fmt::format("exit code {}", exit_code);
}

absl::Status Process::Say(std::string_view line, absl::Duration timeout) {
  const std::string text = fmt::format("{}\n", line);
  for (std::string_view left = text; !left.empty();) {
    const ssize_t size = write(descriptors_.lines_to_program.get(), left.data(), left.size());
    if (size >= 0) {
      left.remove_prefix(static_cast<size_t>(size));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return absl::UnavailableError("it does not read any more");
    pollfd room = {.fd = descriptors_.lines_to_program.get(), .events = POLLOUT, .revents = 0};
    if (poll(&room, 1, ToMilliseconds(timeout)) == 0) return absl::DeadlineExceededError("it does not read");
  }
  return absl::OkStatus();
}

ProcessEvent Process::TakeLine() {
  const size_t end = said_.find('\n', next_line_);
  // The first line alone: it is taken, however long the next is so far.
  if (std::min(end, said_.size()) - next_line_ > kLineBytesMax) {
    EndFor(fmt::format("it said a line of more than {} bytes", kLineBytesMax));
    return {};
  }
  if (end == std::string::npos) {
    said_.erase(0, std::exchange(next_line_, 0));
    return {};
  }
  ProcessEvent event{.kind = ProcessEvent::Kind::kLine, .line = said_.substr(next_line_, end - next_line_)};
  next_line_ = end + 1;
  return event;
}

ProcessEvent Process::Wait(absl::Duration timeout) {
  if (ProcessEvent event = TakeLine(); event.kind == ProcessEvent::Kind::kLine) return event;
  if (has_ended_) return {.kind = ProcessEvent::Kind::kEnded, .line = {}};

  pollfd events[] = {{.fd = descriptors_.lines_from_program.get(), .events = POLLIN, .revents = 0},
                     {.fd = descriptors_.printed.get(), .events = POLLIN, .revents = 0},
                     {.fd = descriptors_.control.get(), .events = POLLIN, .revents = 0}};
  poll(events, 3, ToMilliseconds(timeout));
  // The end first: what was said before is there by then.
  if (events[2].revents != 0) ReadReports();
  if (events[1].revents != 0) ReadPrinted();
  if (events[0].revents != 0) ReadLines();
  if (has_ended_) {
    ReadPrinted();
    ReadLines();
  }
  ProcessEvent event = TakeLine();
  if (event.kind == ProcessEvent::Kind::kNothing && has_ended_) event.kind = ProcessEvent::Kind::kEnded;
  return event;
}

void Process::ReadLines() {
  if (!descriptors_.lines_from_program) return;
  if (!ReadSome(descriptors_.lines_from_program.get(), kLineBytesMax, said_)) descriptors_.lines_from_program.Close();
}

void Process::ReadPrinted() {
  if (!descriptors_.printed) return;
  if (!ReadSome(descriptors_.printed.get(), kLineBytesMax, printed_)) descriptors_.printed.Close();
  if (printed_.size() > kPrintedBytesMax) printed_.erase(0, printed_.size() - kPrintedBytesMax);
}

void Process::ReadReports() {
  for (ProcessReport report; !has_ended_;) {
    const ssize_t size = recv(descriptors_.control.get(), &report, sizeof(report), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size != sizeof(report)) {
      has_ended_ = true;
      if (end_.reason.empty()) end_.reason = "the process that kept it was killed";
      return;
    }
    cpu_time_ = std::max(cpu_time_, absl::Nanoseconds(report.cpu_nanoseconds));
    if (report.kind == ProcessReport::Kind::kUsage) continue;
    has_ended_ = true;
    if (!end_.reason.empty()) continue;
    if (report.kind == ProcessReport::Kind::kNotStarted) {
      end_.reason = fmt::format("it could not be started: {}", strerror(report.error));
      continue;
    }
    end_.exceeded = report.exceeded;
    if (WIFEXITED(report.wait_status)) end_.exit_code = WEXITSTATUS(report.wait_status);
    if (WIFSIGNALED(report.wait_status)) end_.signal = WTERMSIG(report.wait_status);
  }
}

void Process::Watch(const std::string& directory) {
  // What was said of the work before this.
  ReadReports();
  is_watched_ = true;
  cpu_time_ = absl::ZeroDuration();
  const std::string message = kWatch + directory;
  send(descriptors_.control.get(), message.data(), message.size(), MSG_NOSIGNAL);
}

void Process::Rest() {
  if (!is_watched_) return;
  is_watched_ = false;
  send(descriptors_.control.get(), &kRest, 1, MSG_NOSIGNAL);
}

void Process::EndFor(std::string reason) {
  end_.reason = std::move(reason);
  said_.clear();
  next_line_ = 0;
  Kill();
}

void Process::Kill() {
  // The keeper hears the end of the socket, and answers when all are gone.
  shutdown(descriptors_.control.get(), SHUT_WR);
  while (!has_ended_) {
    pollfd report = {.fd = descriptors_.control.get(), .events = POLLIN, .revents = 0};
    poll(&report, 1, -1);
    ReadReports();
  }
}

}  // namespace sheaf
