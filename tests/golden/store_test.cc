// The store that a released version left when it was killed: today's server answers as that version did when it started
// again, and its rounds end with the same aggregates.
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "proto/methods.h"
#include "storage/directory/inspect.h"
#include "storage/directory/migrate.h"
#include "storage/directory/verify.h"
#include "tests/crash/disk_server.h"
#include "tests/crash/simulated_disk.h"
#include "tests/storage/temporary_directory.h"

namespace sheaf::golden {
namespace {

namespace fs = std::filesystem;
using google::protobuf::DescriptorPool;
using google::protobuf::Message;
using google::protobuf::MessageFactory;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  INFO(path.string());
  REQUIRE(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// --- What was recorded -------------------------------------------------------------------------------------------

struct RecordedCall {
  absl::Time sent;
  std::string method;
  std::unique_ptr<Message> request;
  std::unique_ptr<Message> response;
};

struct RecordedLease {
  std::string worker;
  std::string task;
  std::string token;
};

struct RecordedStore {
  std::string authorization;
  // Of tasks that were being worked on.
  std::vector<RecordedLease> leases;
  std::vector<RecordedCall> calls;
  // After the rest of the tasks was done.
  std::vector<RecordedCall> last_calls;
};

std::vector<std::string> Columns(const std::string& line) {
  std::vector<std::string> columns;
  std::istringstream text(line);
  for (std::string column; std::getline(text, column, '\t');) columns.push_back(column);
  return columns;
}

std::unique_ptr<Message> ParseJson(const google::protobuf::Descriptor& type, const std::string& json) {
  std::unique_ptr<Message> message(MessageFactory::generated_factory()->GetPrototype(&type)->New());
  INFO(json);
  REQUIRE(google::protobuf::util::JsonStringToMessage(json, message.get()).ok());
  return message;
}

RecordedCall ParseCall(const std::vector<std::string>& columns) {
  REQUIRE(columns.size() == 5);
  std::string name = "sheaf.v1." + columns[2];
  std::replace(name.begin(), name.end(), '/', '.');
  const auto* method = DescriptorPool::generated_pool()->FindMethodByName(name);
  INFO(name);
  REQUIRE(method != nullptr);
  return {.sent = absl::FromUnixNanos(std::stoll(columns[1])),
          .method = "sheaf.v1." + columns[2],
          .request = ParseJson(*method->input_type(), columns[3]),
          .response = ParseJson(*method->output_type(), columns[4])};
}

RecordedStore ReadAnswers(const fs::path& path) {
  RecordedStore store;
  std::istringstream text(ReadFile(path));
  bool is_rest_done = false;
  for (std::string line; std::getline(text, line);) {
    const std::vector<std::string> columns = Columns(line);
    if (columns[0] == "authorization") {
      store.authorization = columns.at(1);
    } else if (columns[0] == "lease") {
      store.leases.push_back({columns.at(1), columns.at(2), columns.at(3)});
    } else if (columns[0] == "call") {
      (is_rest_done ? store.last_calls : store.calls).push_back(ParseCall(columns));
    } else {
      is_rest_done = true;
    }
  }
  REQUIRE_FALSE(store.last_calls.empty());
  return store;
}

// A disk that has the files of `directory` in /store.
std::unique_ptr<crash::SimulatedDisk> DiskWith(const fs::path& directory) {
  crash::SimulatedDisk disk;
  REQUIRE(disk.CreateDirectory("/store") == 0);
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    const std::string path = "/store/" + fs::relative(entry.path(), directory).string();
    if (entry.is_directory()) {
      REQUIRE(disk.CreateDirectory(path) == 0);
      continue;
    }
    crash::SimulatedDisk::NodePtr node;
    REQUIRE(disk.Open(path, true, node) == 0);
    REQUIRE(disk.Write(*node, path, 0, ReadFile(entry.path())) == 0);
  }
  return disk.Copy();
}

// --- What today's server does with it ------------------------------------------------------------------------------

class Reopened {
 public:
  Reopened(const std::string& version)
      : recorded_(ReadAnswers(fs::path(SHEAF_GOLDEN) / version / "store/answers.tsv")),
        disk_(DiskWith(fs::path(SHEAF_GOLDEN) / version / "store/data")) {
    clock_.Set(recorded_.calls.front().sent);
    Start();
  }

  const RecordedStore& recorded() const { return recorded_; }

  void Start() {
    // A server that is destroyed has crashed, and its disk is good for nothing more.
    std::unique_ptr<crash::SimulatedDisk> copy = disk_->Copy();
    server_.reset();
    disk_ = std::move(copy);
    auto server = crash::DiskServer::Start(*disk_, clock_, {});
    INFO(server.status().ToString());
    REQUIRE(server.ok());
    server_ = *std::move(server);
  }
  crash::DiskServer& server() { return *server_; }
  void Wait(absl::Duration time) {
    clock_.Advance(time);
    server_->Run();
  }

  std::unique_ptr<Message> Repeat(const RecordedCall& call) {
    if (call.sent > clock_.Now()) clock_.Set(call.sent);
    std::unique_ptr<Message> response(call.response->New());
    const absl::Status status = server_->Call(call.method, recorded_.authorization, *call.request, *response);
    INFO(call.method << " " << call.request->ShortDebugString() << ": " << status.ToString());
    REQUIRE(status.ok());
    return response;
  }

  template <typename M>
  typename M::Response Ask(const M& method, const typename M::Request& request) {
    typename M::Response response;
    const absl::Status status = server_->Call(method.name, recorded_.authorization, request, response);
    INFO(method.name << ": " << status.ToString());
    REQUIRE(status.ok());
    return response;
  }

 private:
  const RecordedStore recorded_;
  std::unique_ptr<crash::SimulatedDisk> disk_;
  ManualClock clock_;
  std::unique_ptr<crash::DiskServer> server_;
};

std::string Difference(const Message& before, const Message& now) {
  google::protobuf::util::MessageDifferencer differencer;
  std::string report;
  differencer.ReportDifferencesToString(&report);
  differencer.Compare(before, now);
  return report;
}

// What depends on the nanosecond at which a call arrives.
void LeaveOutAges(Message& message) {
  if (auto* queue = dynamic_cast<v1::DescribeQueueResponse*>(&message); queue != nullptr) queue->clear_oldest_age();
}

// What 0.1 did not say: when what its workers told it may have been.
void LeaveOutIntervals(Message& message) {
  auto* response = dynamic_cast<v1::GetTaskResponse*>(&message);
  if (response == nullptr) return;
  for (v1::Attempt& attempt : *response->mutable_task()->mutable_attempts()) attempt.clear_intervals();
}

// 0.1 quoted the contribution that it refused; since schema version 6 nobody does.
void ReplaceQuotes(Message& message) {
  const auto replace = [](const std::string& text) {
    return text.starts_with("contribution rejected: ")
               ? "contribution rejected: by a server before 0.2; its worker was told why"
               : text;
  };
  const auto replace_in = [&](v1::Task& task) {
    task.set_last_error(replace(task.last_error()));
    for (v1::Attempt& attempt : *task.mutable_attempts()) attempt.set_error(replace(attempt.error()));
  };
  if (auto* listed = dynamic_cast<v1::ListTasksResponse*>(&message); listed != nullptr) {
    for (v1::Task& task : *listed->mutable_tasks()) replace_in(task);
  }
  if (auto* got = dynamic_cast<v1::GetTaskResponse*>(&message); got != nullptr) replace_in(*got->mutable_task());
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

v1::Tensor Floats(const std::vector<float>& values) {
  v1::Tensor tensor;
  tensor.set_dtype(v1::FLOAT32);
  tensor.add_shape(static_cast<int64_t>(values.size()));
  tensor.set_data(Bytes(values));
  return tensor;
}

v1::SparseTensor Sparse(const std::vector<int64_t>& places, v1::Tensor values) {
  v1::SparseTensor sparse;
  sparse.add_dense_shape(1000);
  sparse.mutable_indices()->set_dtype(v1::INT64);
  sparse.mutable_indices()->add_shape(static_cast<int64_t>(places.size()));
  sparse.mutable_indices()->set_data(Bytes(places));
  *sparse.mutable_values() = std::move(values);
  return sparse;
}

// As record_store.py has it.
v1::Contribution ContributionOf(int index) {
  const double third = (index + 1) / 3.0;
  const std::vector<int64_t> places = {index, 7, 999 - index};
  const auto values = Floats({static_cast<float>(third), 1.5f, static_cast<float>(-third)});
  v1::Contribution contribution;
  const auto add = [&](const char* name) -> v1::OutputValue& {
    v1::OutputValue& output = *contribution.add_outputs();
    output.set_name(name);
    return output;
  };
  *add("dense").mutable_dense() = Floats({static_cast<float>(third), 0, -2.5f, 1e-30f});
  *add("mean").mutable_dense() = Floats({static_cast<float>(third), static_cast<float>(index)});
  v1::Tensor integers;
  integers.set_dtype(v1::INT64);
  integers.add_shape(3);
  integers.set_data(Bytes<int64_t>({index, -1, int64_t{1} << 40}));
  *add("sparse").mutable_sparse() = Sparse(places, integers);
  *add("touched").mutable_sparse() = Sparse(places, values);
  v1::KeyedTable& words = *add("words").mutable_keyed();
  words.add_string_keys("all");
  words.add_string_keys("word " + std::to_string(index));
  *words.mutable_values() = Floats({static_cast<float>(third), 1});
  contribution.set_weight(static_cast<float>(index) + 0.5f);
  (*contribution.mutable_metrics())["loss"] = 0.1 * index;
  (*contribution.mutable_metrics())["examples"] = 10 + index;
  return contribution;
}

v1::SyncRequest SyncOf(const std::string& worker, int poll) {
  v1::SyncRequest request;
  request.set_protocol_version(1);
  request.set_worker(worker);
  request.set_population("phones");
  request.set_poll_id(worker + " now " + std::to_string(poll));
  v1::OfferedComputation& offer = *request.add_computations();
  offer.set_name("count");
  offer.set_version(2);
  if (worker == "w3") (*request.mutable_labels())["gpu"] = "yes";
  return request;
}

void HandIn(Reopened& store, v1::SyncRequest request, const std::string& task, const std::string& token) {
  v1::TaskResult& result = *request.add_results();
  result.set_task(task);
  result.set_lease_token(token);
  result.set_contribution(ContributionOf(std::stoi(task.substr(task.find('/') + 1))).SerializeAsString());
  const v1::SyncResponse answer = store.Ask(kSync, request);
  REQUIRE(answer.verdicts_size() == 1);
  INFO(answer.ShortDebugString());
  REQUIRE(answer.verdicts(0).verdict() == v1::ResultVerdict::ACCEPTED);
}

void DoTheRest(Reopened& store) {
  int polls = 0;
  for (const RecordedLease& lease : store.recorded().leases) {
    HandIn(store, SyncOf(lease.worker, ++polls), lease.task, lease.token);
  }
  // A task that was refused is given out again a little later.
  for (int i = 0; i < 20; ++i) {
    v1::SyncRequest poll = SyncOf("w3", ++polls);
    poll.set_want(8);
    const v1::SyncResponse granted = store.Ask(kSync, poll);
    for (const v1::Lease& lease : granted.leases()) {
      HandIn(store, SyncOf("w3", ++polls), lease.task(), lease.lease_token());
    }
    store.Wait(absl::Seconds(1));
  }
}

const bool is_quiet = [] {
  ConfigureLog("golden_store_test", LogLevel::kOff);
  return true;
}();

TEST_CASE("Of a store that 0.1 left, today's server answers every question as 0.1 did") {
  Reopened store("v1");
  // Also from what it has written itself.
  for (int start = 0; start < 2; ++start) {
    for (const RecordedCall& call : store.recorded().calls) {
      INFO(call.method << " " << call.request->ShortDebugString());
      const std::unique_ptr<Message> answer = store.Repeat(call);
      ReplaceQuotes(*call.response);
      for (Message* message : {call.response.get(), answer.get()}) LeaveOutAges(*message);
      LeaveOutIntervals(*answer);
      CHECK(Difference(*call.response, *answer) == "");
    }
    CHECK(store.server().CheckDatabase().ToString() == "OK");
    store.Start();
  }
}

TEST_CASE("The live rounds of a store that 0.1 left end with the aggregates that they ended with under 0.1") {
  const bool starts_again = GENERATE(false, true);
  Reopened store("v1");
  if (starts_again) store.Start();
  DoTheRest(store);
  int num_compared = 0;
  for (const RecordedCall& call : store.recorded().last_calls) {
    INFO(call.method << " " << call.request->ShortDebugString());
    const std::unique_ptr<Message> answer = store.Repeat(call);
    if (const auto* before = dynamic_cast<const v1::GetRoundResponse*>(call.response.get()); before != nullptr) {
      const v1::Round& now = dynamic_cast<const v1::GetRoundResponse&>(*answer).round();
      CHECK(now.state() == v1::SUCCEEDED);
      CHECK(now.aggregate().digest() == before->round().aggregate().digest());
      CHECK(now.num_contributions() == before->round().num_contributions());
      CHECK(now.num_clients() == before->round().num_clients());
      CHECK(now.bytes_up() == before->round().bytes_up());
      CHECK(Difference(before->round().spec(), now.spec()) == "");
      for (const auto& [name, value] : before->round().metrics()) {
        CHECK(now.metrics().at(name) == Approx(value));
      }
      ++num_compared;
    } else {
      CHECK(Difference(*call.response, *answer) == "");
    }
  }
  CHECK(num_compared == 2);
}

TEST_CASE("A store that 0.1 left is inspected, verified and migrated from the command line's side") {
  const TemporaryDirectory directory;
  const TemporaryDirectory scratch;
  const std::string store = directory.path() + "/store";
  fs::copy(fs::path(SHEAF_GOLDEN) / "v1/store/data", store, fs::copy_options::recursive);
  const auto check_laws = [&] {
    const auto report = VerifyStore(store, scratch.path());
    REQUIRE(report.ok());
    for (const Law& law : report->laws) {
      INFO(law.name);
      CHECK(law.violations == std::vector<std::string>());
    }
  };
  check_laws();
  const auto summary = InspectStore(store, scratch.path());
  REQUIRE(summary.ok());
  CHECK(summary->schema_version == 5);
  for (const StoreSummary::Count& rounds : summary->rounds) {
    INFO(rounds.state);
    CHECK(rounds.number == std::map<std::string, int64_t>{
                               {"COLLECTING", 2}, {"SUCCEEDED", 1}, {"FAILED", 1}, {"CANCELLED", 1}}[rounds.state]);
  }
  for (const bool is_dry_run : {true, false}) {
    const auto migrated = MigrateStore({.directory = store, .scratch = scratch.path(), .is_dry_run = is_dry_run});
    REQUIRE(migrated.ok());
    CHECK(migrated->from == 5);
    CHECK(migrated->to == summary->newest_version);
  }
  check_laws();
  CHECK(InspectStore(store, scratch.path())->schema_version == summary->newest_version);
}

}  // namespace
}  // namespace sheaf::golden
