// What Perfetto's importer of JSON takes of Chrome's Trace Event Format, and what a viewer needs to show it rightly.
//
//   CHECK(TraceProblems(text) == std::vector<std::string>());
//
// One object with a list "traceEvents" (https://perfetto.dev/docs/getting-started/other-formats). Each event has a
// phase `ph`, and integers `pid` and, but for names of processes, `tid`. The importer knows a thread by its `tid`
// alone, so that no two processes may share one. Times `ts` and `dur` are microseconds, whole ones, which no importer
// rounds. "X" slices of one thread lie within each other or beside each other: the importer drops one that overlaps
// another in part. "b" and "e" come in pairs of one `cat`, `id` and `pid`. An instant "i" says its scope `s`.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace sheaf {

// Takes n log n for n events.
inline std::vector<std::string> TraceProblems(const std::string& text) {
  const nlohmann::json trace = nlohmann::json::parse(text, nullptr, false);
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array()) {
    return {"it is no object with a list of traceEvents"};
  }
  std::vector<std::string> problems;
  const auto report = [&](const nlohmann::json& event, std::string_view what) {
    problems.push_back(fmt::format("{}: {}", what, event.dump()));
  };
  std::map<std::pair<int, int>, std::vector<std::pair<long long, long long>>> slices;
  std::map<std::tuple<int, std::string, std::string, std::string>, std::pair<int, long long>> open;
  std::map<int, int> process_of;
  std::set<int> pids, named_pids;
  std::set<std::pair<int, int>> tids, named_tids;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    const std::string ph = event.value("ph", "");
    const std::string name = event.value("name", "");
    if (ph.size() != 1 || std::string("XbeiCM").find(ph) == std::string::npos) {
      report(event, "an unknown phase");
      continue;
    }
    if (!event.contains("pid") || !event["pid"].is_number_integer() || name.empty()) {
      report(event, "no pid, or no name");
      continue;
    }
    const int pid = event["pid"];
    const bool has_tid = event.contains("tid") && event["tid"].is_number_integer();
    const int tid = has_tid ? event["tid"].get<int>() : 0;
    if (has_tid && process_of.try_emplace(tid, pid).first->second != pid) report(event, "a tid of another process");
    if (ph == "M") {
      const bool names = name == "process_name" || name == "thread_name";
      if (names && !event["args"]["name"].is_string()) report(event, "a name that is none");
      if (name == "thread_name" && !has_tid) report(event, "no tid");
      if (name == "process_name") named_pids.insert(pid);
      if (name == "thread_name") named_tids.insert({pid, tid});
      continue;
    }
    pids.insert(pid);
    if (!event.contains("ts") || !event["ts"].is_number_integer()) {
      report(event, "no ts, or a fraction");
      continue;
    }
    const long long ts = event["ts"];
    if (!has_tid) report(event, "no tid");
    if (ph == "C") {
      for (const auto& [series, value] : event["args"].items()) {
        if (!value.is_number()) report(event, "a counter that does not count");
      }
      continue;
    }
    if (ph == "X") {
      tids.insert({pid, tid});
      if (!event.contains("dur") || !event["dur"].is_number_integer() || event["dur"] < 0) {
        report(event, "no dur, or a negative one or a fraction");
        continue;
      }
      slices[{pid, tid}].emplace_back(ts, ts + event["dur"].get<long long>());
    }
    if (ph == "i" && event.value("s", "") != "t" && event.value("s", "") != "p" && event.value("s", "") != "g") {
      report(event, "an instant without a scope");
    }
    if (ph == "b" || ph == "e") {
      if (!event.contains("id") || !event.contains("cat")) {
        report(event, "an asynchronous slice without id or cat");
        continue;
      }
      auto& [depth, last] = open[{pid, event["cat"], event["id"].dump(), name}];
      depth += ph == "b" ? 1 : -1;
      if (depth < 0 || (ph == "e" && ts < last)) report(event, "an end without a beginning before it");
      last = ts;
    }
  }
  for (const auto& [key, state] : open) {
    if (state.first != 0) problems.push_back(fmt::format("the slice {} does not end", std::get<2>(key)));
  }
  for (const int pid : pids) {
    if (!named_pids.contains(pid)) problems.push_back(fmt::format("process {} has no name", pid));
  }
  for (const auto& tid : tids) {
    if (!named_tids.contains(tid))
      problems.push_back(fmt::format("thread {} of {} has no name", tid.second, tid.first));
  }
  for (auto& [track, its] : slices) {
    // Outer ones first.
    std::sort(its.begin(), its.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first, -a.second) < std::pair(b.first, -b.second);
    });
    std::vector<long long> stack;
    for (const auto& [begin, end] : its) {
      while (!stack.empty() && stack.back() <= begin) stack.pop_back();
      if (!stack.empty() && end > stack.back()) {
        problems.push_back(fmt::format("slices of thread {} of {} overlap at {} us", track.second, track.first, begin));
      }
      stack.push_back(end);
    }
  }
  return problems;
}

}  // namespace sheaf
