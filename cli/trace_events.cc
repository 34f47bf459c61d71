#include "cli/trace_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/terminal/state_text.h"
#include "proto/time.h"

namespace sheaf {
namespace {

using Json = nlohmann::ordered_json;

// Of the processes that a viewer shows; it knows no others.
constexpr int kRoundPid = 1;
constexpr int kServerPid = 2;
constexpr int kFirstWorkerPid = 3;
// Perfetto knows a thread by its tid alone, and takes the one that has its process's pid for the main one: no two
// threads share a tid, and none is a pid.
constexpr int kFirstTid = 1'000'000;

constexpr std::string_view kWait = "wait";
constexpr std::string_view kReceive = "receive";

struct Track {
  int pid = 0;
  int tid = 0;
};
struct Stretch {
  absl::Time begin;
  absl::Time end;
};

class TraceWriter {
 public:
  explicit TraceWriter(absl::Time origin) : origin_(origin) {}

  // A track of its own.
  Track NewTrack(int pid, std::string_view name) {
    const Track track{.pid = pid, .tid = next_tid_++};
    Add({{"ph", "M"}, {"pid", pid}, {"tid", track.tid}, {"name", "thread_name"}, {"args", {{"name", name}}}});
    return track;
  }
  void NameProcess(int pid, std::string_view name) {
    Add({{"ph", "M"}, {"pid", pid}, {"name", "process_name"}, {"args", {{"name", name}}}});
    Add({{"ph", "M"}, {"pid", pid}, {"name", "process_sort_index"}, {"args", {{"sort_index", pid}}}});
  }
  void Slice(const Track& track, std::string_view name, const Stretch& stretch, Json args) {
    Add({{"ph", "X"},
         {"pid", track.pid},
         {"tid", track.tid},
         {"ts", Micros(stretch.begin)},
         {"dur", Micros(stretch.end) - Micros(stretch.begin)},
         {"name", name},
         {"cat", "sheaf"},
         {"args", std::move(args)}});
  }
  // One that may overlap others of its process.
  void AsyncSlice(const Track& track, std::string_view name, std::string_view id, const Stretch& stretch, Json args) {
    Json event = {{"ph", "b"},    {"pid", track.pid}, {"tid", track.tid}, {"ts", Micros(stretch.begin)},
                  {"name", name}, {"cat", "sheaf"},   {"id", id}};
    Json end = event;
    event["args"] = std::move(args);
    end["ph"] = "e";
    end["ts"] = Micros(stretch.end);
    Add(std::move(event));
    Add(std::move(end));
  }
  void Instant(const Track& track, std::string_view name, absl::Time at, Json args) {
    Add({{"ph", "i"},
         {"s", "t"},
         {"pid", track.pid},
         {"tid", track.tid},
         {"ts", Micros(at)},
         {"name", name},
         {"cat", "sheaf"},
         {"args", std::move(args)}});
  }
  void Counter(const Track& track, std::string_view name, absl::Time at, int64_t value) {
    Add({{"ph", "C"},
         {"pid", track.pid},
         {"tid", track.tid},
         {"ts", Micros(at)},
         {"name", name},
         {"args", {{"value", value}}}});
  }

  std::string Take(const Json& other) && {
    return fmt::format("{{\"displayTimeUnit\":\"ms\",\"otherData\":{},\"traceEvents\":[\n{}\n]}}\n", Text(other),
                       events_);
  }

 private:
  // Whole ones: a fraction that an importer rounds makes slices overlap that lie side by side.
  int64_t Micros(absl::Time time) const {
    return absl::ToInt64Microseconds(absl::Floor(time - origin_, absl::Microseconds(1)));
  }
  // What others wrote need not be UTF-8.
  static std::string Text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }
  void Add(Json event) {
    if (!events_.empty()) events_ += ",\n";
    events_ += Text(event);
  }

  const absl::Time origin_;
  int next_tid_ = kFirstTid;
  std::string events_;
};

// Tracks of one process on which no two slices overlap: each slice goes to the first that is free.
class Lanes {
 public:
  Lanes(int pid, std::string_view name, TraceWriter& writer) : pid_(pid), name_(name), writer_(writer) {}

  const Track& Take(const Stretch& stretch) {
    auto free = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& lane) { return lane.end <= stretch.begin; });
    if (free == lanes_.end()) free = lanes_.insert(free, {.track = writer_.NewTrack(pid_, name_)});
    free->end = stretch.end;
    return free->track;
  }

 private:
  struct Lane {
    Track track;
    absl::Time end;
  };

  const int pid_;
  const std::string_view name_;
  TraceWriter& writer_;
  std::vector<Lane> lanes_;
};

struct TracedAttempt {
  const v1::Task* task = nullptr;
  const v1::Attempt* attempt = nullptr;
  Stretch stretch;

  std::string id() const { return fmt::format("{} #{}", task->id(), attempt->number()); }
};

// As long as somebody says that it lasted, within `whole`.
Stretch Within(const Stretch& whole, const v1::PhaseInterval& interval) {
  const absl::Time begin = std::clamp(FromProto(interval.begin_time()), whole.begin, whole.end);
  return {.begin = begin, .end = std::clamp(FromProto(interval.end_time()), begin, whole.end)};
}

// In the order of their leases.
std::vector<TracedAttempt> AttemptsOf(std::span<const v1::Task> tasks, absl::Time now) {
  std::vector<TracedAttempt> attempts;
  for (const v1::Task& task : tasks) {
    for (const v1::Attempt& attempt : task.attempts()) {
      const absl::Time begin = FromProto(attempt.lease_time());
      const absl::Time end = attempt.has_end_time() ? FromProto(attempt.end_time()) : now;
      attempts.push_back(
          {.task = &task, .attempt = &attempt, .stretch = {.begin = begin, .end = std::max(begin, end)}});
    }
  }
  std::stable_sort(attempts.begin(), attempts.end(),
                   [](const TracedAttempt& a, const TracedAttempt& b) { return a.stretch.begin < b.stretch.begin; });
  return attempts;
}

void WriteCriticalPath(const v1::Round& round, const Stretch& whole, TraceWriter& writer) {
  writer.NameProcess(kRoundPid, fmt::format("round {}", round.id()));
  const Track path = writer.NewTrack(kRoundPid, "critical path");
  Stretch rest = whole;
  for (const v1::PhaseInterval& interval : round.critical_path()) {
    Json args = Json::object();
    if (!interval.task().empty()) {
      args = {{"task", interval.task()}, {"attempt", interval.attempt()}, {"worker", interval.worker()}};
    }
    const Stretch stretch = Within(rest, interval);
    // Slices of one track never overlap but whole.
    rest.begin = stretch.end;
    writer.Slice(path, interval.phase(), stretch, std::move(args));
  }
}

void WriteServer(const v1::Round& round, const Stretch& whole, std::span<const TracedAttempt> attempts,
                 TraceWriter& writer) {
  writer.NameProcess(kServerPid, "server");
  const Track track = writer.NewTrack(kServerPid, "round");
  // What is no attempt's: closing, commit, fold, seal. Until then it collects.
  absl::Time collected = whole.end;
  Stretch rest = whole;
  for (const v1::PhaseInterval& interval : round.critical_path()) {
    if (!interval.task().empty()) continue;
    const Stretch stretch = Within(rest, interval);
    rest.begin = stretch.end;
    collected = std::min(collected, stretch.begin);
    writer.Slice(track, interval.phase(), stretch, Json::object());
  }
  writer.Slice(track, "collecting", {.begin = whole.begin, .end = collected},
               {{"contributions", round.num_contributions()}, {"goal", round.spec().goal()}});

  Lanes receiving(kServerPid, "contributions received", writer);
  std::vector<std::pair<absl::Time, int>> changes;
  for (const TracedAttempt& traced : attempts) {
    changes.emplace_back(traced.stretch.begin, 1);
    changes.emplace_back(traced.stretch.end, -1);
  }
  std::vector<std::pair<Stretch, const TracedAttempt*>> received;
  for (const TracedAttempt& traced : attempts) {
    for (const v1::PhaseInterval& interval : traced.attempt->intervals()) {
      if (interval.phase() == kReceive) received.emplace_back(Within(traced.stretch, interval), &traced);
    }
  }
  std::stable_sort(received.begin(), received.end(),
                   [](const auto& a, const auto& b) { return a.first.begin < b.first.begin; });
  for (const auto& [stretch, traced] : received) {
    writer.Slice(
        receiving.Take(stretch), kReceive, stretch,
        {{"task", traced->task->id()}, {"attempt", traced->attempt->number()}, {"worker", traced->attempt->worker()}});
  }
  std::sort(changes.begin(), changes.end());
  int64_t leases = 0;
  for (size_t i = 0; i < changes.size(); ++i) {
    leases += changes[i].second;
    const bool is_last_of_its_time = i + 1 == changes.size() || changes[i + 1].first != changes[i].first;
    if (is_last_of_its_time) writer.Counter(track, "leases held", changes[i].first, leases);
  }
}

void WriteAttempt(const TracedAttempt& traced, const Track& track, TraceWriter& writer) {
  const v1::Attempt& attempt = *traced.attempt;
  const std::string outcome = OutcomeCell(attempt.outcome()).text;
  Json args = {{"task", traced.task->id()}, {"attempt", attempt.number()}, {"outcome", outcome}};
  if (!traced.task->data_selector().empty()) args["data"] = traced.task->data_selector();
  if (!attempt.error().empty()) args["error"] = attempt.error();
  args["bytes_down"] = attempt.timings().bytes_down();
  args["bytes_up"] = attempt.bytes_up();
  writer.Slice(track, fmt::format("task {}", traced.id()), traced.stretch, args);
  Stretch rest = traced.stretch;
  for (const v1::PhaseInterval& interval : attempt.intervals()) {
    if (interval.phase() == kWait) {
      // Since its task became available the first attempt ran.
      if (attempt.is_speculative()) continue;
      const absl::Time begin = std::min(FromProto(interval.begin_time()), traced.stretch.begin);
      writer.AsyncSlice(track, kWait, traced.id(), {.begin = begin, .end = traced.stretch.begin},
                        {{"task", traced.task->id()}, {"attempt", attempt.number()}});
      continue;
    }
    const Stretch stretch = Within(rest, interval);
    rest.begin = stretch.end;
    writer.Slice(track, interval.phase(), stretch, Json::object());
  }
  if (attempt.has_end_time()) writer.Instant(track, outcome, traced.stretch.end, std::move(args));
}

void WriteWorkers(std::span<const TracedAttempt> attempts, TraceWriter& writer) {
  // By name, so that a viewer finds them.
  std::map<std::string, std::vector<const TracedAttempt*>> by_worker;
  for (const TracedAttempt& traced : attempts) by_worker[traced.attempt->worker()].push_back(&traced);
  int pid = kFirstWorkerPid;
  for (const auto& [worker, its] : by_worker) {
    writer.NameProcess(pid, fmt::format("worker {}", worker));
    Lanes lanes(pid, "attempts", writer);
    for (const TracedAttempt* traced : its) WriteAttempt(*traced, lanes.Take(traced->stretch), writer);
    ++pid;
  }
}

}  // namespace

std::string TraceEvents(const v1::Round& round, std::span<const v1::Task> tasks, absl::Time now) {
  const absl::Time created = FromProto(round.create_time());
  const absl::Time ended = round.has_end_time() ? FromProto(round.end_time()) : now;
  const Stretch whole{.begin = created, .end = std::max(created, ended)};
  const std::vector<TracedAttempt> attempts = AttemptsOf(tasks, now);
  TraceWriter writer(created);
  WriteCriticalPath(round, whole, writer);
  WriteServer(round, whole, attempts, writer);
  WriteWorkers(attempts, writer);
  return std::move(writer).Take({{"round", round.id()},
                                 {"job", round.spec().job()},
                                 {"state", v1::RoundState_Name(round.state())},
                                 {"create_time", absl::FormatTime(absl::RFC3339_full, created, absl::UTCTimeZone())}});
}

}  // namespace sheaf
