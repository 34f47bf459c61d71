// What a history holds against an aggregate, and that each way of being wrong is found.
#include "probe/history.h"

#include <catch2/catch.hpp>

#include "probe/recording_transport.h"
#include "proto/methods.h"

namespace sheaf {
namespace {

// Tasks 0 and 1 acknowledged, 2 handed in without an answer, 3 never touched.
void Fill(History& history) {
  for (const char* task : {"r-1/0", "r-1/1", "r-1/2"}) history.Attempted(task, "a");
  for (const char* task : {"r-1/0", "r-1/1"}) history.Acknowledged(task, "a");
}

TEST_CASE("A history agrees with a sum that has all that was acknowledged and nothing that was not attempted") {
  History history;
  Fill(history);
  // Of a task without an answer nobody knows: both are right.
  for (const std::vector<int64_t>& counts : {std::vector<int64_t>{1, 1, 0, 0}, {1, 1, 1, 0}}) {
    const HistoryReport report = history.Check("r-1", counts);
    CHECK(report.ok());
    CHECK(report.violations.empty());
    CHECK(report.attempted == 3);
    CHECK(report.acknowledged == 2);
    CHECK(report.counted == 2 + counts[2]);
  }
  CHECK(history.Check("r-2", {0, 0}).ok());
}

TEST_CASE("A contribution that is counted twice, lost, or made by nobody is found and named") {
  History history;
  Fill(history);
  const HistoryReport twice = history.Check("r-1", {1, 2, 0, 0});
  CHECK(twice.duplicated == 1);
  CHECK(twice.violations == std::vector<std::string>{"task r-1/1 is counted 2 times"});
  const HistoryReport lost = history.Check("r-1", {1, 0, 1, 0});
  CHECK(lost.lost == 1);
  CHECK(lost.violations == std::vector<std::string>{"task r-1/1 was acknowledged and is not counted"});
  // A sum that is too short has lost what would stand behind its end.
  CHECK(history.Check("r-1", {1}).lost == 1);
  const HistoryReport foreign = history.Check("r-1", {1, 1, 0, 1});
  CHECK(foreign.foreign == 1);
  CHECK(foreign.violations == std::vector<std::string>{"task r-1/3 is counted and nobody handed it in"});
  for (const HistoryReport& report : {twice, lost, foreign}) CHECK_FALSE(report.ok());
}

TEST_CASE("A task that is acknowledged under two leases, or under one that handed nothing in, is found") {
  History history;
  Fill(history);
  history.Attempted("r-1/0", "b");
  CHECK(history.Check("r-1", {1, 1, 0, 0}).ok());
  history.Acknowledged("r-1/0", "b");
  CHECK(history.CheckWithoutAggregate("r-1").duplicated == 1);
  history.Acknowledged("r-1/1", "forged");
  const HistoryReport report = history.Check("r-1", {1, 1, 0, 0});
  CHECK(report.foreign == 1);
  HistoryReport sum = report;
  sum.Add(history.Check("r-1", {1, 2, 0, 0}));
  CHECK(sum.duplicated == 2 * report.duplicated + 1);
  CHECK(sum.attempted == 6);
}

// Answers each result with the verdict that its contribution names.
class VerdictServer final : public Transport {
 public:
  void CallMethod(std::string_view, const google::protobuf::Message& request, google::protobuf::Message* response,
                  const CallOptions&, Done done) override {
    for (const v1::TaskResult& result : static_cast<const v1::SyncRequest&>(request).results()) {
      v1::ResultVerdict& verdict = *static_cast<v1::SyncResponse*>(response)->add_verdicts();
      verdict.set_task(result.task());
      verdict.set_lease_token(result.lease_token());
      v1::ResultVerdict::Verdict value = v1::ResultVerdict::ACCEPTED;
      v1::ResultVerdict::Verdict_Parse(result.contribution(), &value);
      verdict.set_verdict(value);
    }
    done(status);
  }
  absl::Status status;
};

TEST_CASE("A recording transport takes ACCEPTED and DUPLICATE of contributions for promises, and nothing else") {
  VerdictServer server;
  History history;
  RecordingTransport transport(server, history);
  v1::SyncRequest request;
  int index = 0;
  for (const char* verdict : {"ACCEPTED", "DUPLICATE", "LATE", "LEASE_LOST", "NOT_NEEDED", "REJECTED"}) {
    v1::TaskResult& result = *request.add_results();
    result.set_task("r-1/" + std::to_string(index++));
    result.set_lease_token(verdict);
    result.set_contribution(verdict);
  }
  v1::TaskResult& release = *request.add_results();
  release.set_task("r-1/6");
  release.mutable_release();
  REQUIRE(BlockingCall(transport, kSync, request).ok());
  HistoryReport report = history.Check("r-1", {1, 1, 0, 0, 0, 0, 0});
  CHECK(report.ok());
  CHECK(report.attempted == 6);
  CHECK(report.acknowledged == 2);

  // What got no answer was attempted, and promised nothing.
  server.status = absl::UnavailableError("gone");
  request.mutable_results(0)->set_task("r-1/7");
  CHECK_FALSE(BlockingCall(transport, kSync, request).ok());
  report = history.Check("r-1", {1, 1, 0, 0, 0, 0, 0, 0});
  CHECK(report.ok());
  CHECK(report.attempted == 7);
  CHECK(report.acknowledged == 2);
}

}  // namespace
}  // namespace sheaf
