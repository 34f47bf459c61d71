// What released versions said to each other is what this one understands, asks and answers.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/log.h"
#include "proto/methods.h"
#include "tests/golden/contract_listing.h"
#include "tests/golden/exceptions.h"
#include "tests/golden/likeness.h"
#include "tests/golden/playback.h"
#include "tests/golden/scenarios.h"
#include "tests/golden/staged_server.h"
#include "tests/golden/transcript.h"
#include "tests/golden/wire_script.h"
#include "tests/server/running_server.h"

namespace sheaf::golden {
namespace {

namespace fs = std::filesystem;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  INFO(path.string());
  REQUIRE(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// "v1": a folder for each version that was recorded.
std::vector<std::string> Versions() {
  std::vector<std::string> versions;
  for (const auto& entry : fs::directory_iterator(SHEAF_GOLDEN)) {
    if (fs::exists(entry.path() / "contract.txt")) versions.push_back(entry.path().filename().string());
  }
  return versions;
}

std::set<std::string> ContractOf(const std::string& version) {
  std::set<std::string> lines;
  std::istringstream text(ReadFile(fs::path(SHEAF_GOLDEN) / version / "contract.txt"));
  for (std::string line; std::getline(text, line);) lines.insert(line);
  return lines;
}

// By name: "v1/sequences/steady".
std::map<std::string, Transcript> Recorded(const std::string& version, const std::string& kind) {
  std::map<std::string, Transcript> transcripts;
  for (const auto& entry : fs::directory_iterator(fs::path(SHEAF_GOLDEN) / version / kind)) {
    auto transcript = Transcript::Parse(ReadFile(entry.path()));
    INFO(entry.path().string() << ": " << transcript.status().ToString());
    REQUIRE(transcript.ok());
    transcripts[fmt::format("{}/{}/{}", version, kind, entry.path().stem().string())] = *std::move(transcript);
  }
  return transcripts;
}

std::map<std::string, Transcript> AllRecorded(const std::string& version) {
  std::map<std::string, Transcript> all = Recorded(version, "calls");
  all.merge(Recorded(version, "sequences"));
  return all;
}

// What is not excepted, and the exceptions that nothing needs. Each with the row that would except it.
std::string Unexpected(const std::string& transcript, Side side, const std::vector<Finding>& findings) {
  std::string text;
  std::set<const Exception*> needed;
  for (const Finding& finding : findings) {
    bool is_excepted = false;
    for (const Exception& row : Exceptions()) {
      if (row.transcript != transcript || row.side != side || row.call != finding.call) continue;
      if (!finding.what.starts_with(row.field)) continue;
      needed.insert(&row);
      is_excepted = true;
    }
    if (!is_excepted) {
      text += fmt::format(
          "\n  call {}: {}\n    if that is meant: {{\"{}\", Side::{}, {}, \"{}\", \"REASON\"}} in exceptions.cc",
          finding.call, finding.what, transcript, side == Side::kServer ? "kServer" : "kWorker", finding.call,
          finding.what.substr(0, finding.what.find(':')));
    }
  }
  for (const Exception& row : Exceptions()) {
    if (row.transcript != transcript || row.side != side || needed.contains(&row) || row.field == "call") continue;
    text += fmt::format("\n  the exception of call {} ({}) is not needed any more", row.call, row.reason);
  }
  return text;
}

// Without the calls that are not to be played to a server.
Transcript Playable(const std::string& name, Transcript transcript) {
  for (const Exception& row : Exceptions()) {
    if (row.transcript != name || row.side != Side::kServer || row.field != "call") continue;
    Exchange& exchange = transcript.exchanges.at(row.call - 1);
    exchange.arrived = exchange.answered = absl::InfiniteDuration();
  }
  return transcript;
}

std::vector<Finding> PlayToWorkers(const Transcript& transcript, const std::set<std::string>& contract) {
  std::vector<Finding> all;
  for (const auto& [worker, start] : transcript.workers) {
    for (Finding& finding : PlayToWorker(transcript, worker, contract)) all.push_back(std::move(finding));
  }
  return all;
}

bool HasUnknownFields(const Message& message) {
  const auto& reflection = *message.GetReflection();
  if (!reflection.GetUnknownFields(message).empty()) return true;
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (HasUnknownFields(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                                : reflection.GetMessage(message, field))) {
        return true;
      }
    }
  }
  return false;
}

void CheckBytes(std::unique_ptr<Message> message, const std::string& bytes) {
  REQUIRE(message != nullptr);
  REQUIRE(message->ParseFromString(bytes));
  CHECK_FALSE(HasUnknownFields(*message));
  std::string again = Serialize(*message);
  if (again != bytes) {
    // The entries of a map travel in any order.
    CHECK(message->GetDescriptor() == v1::GetServerInfoResponse::descriptor());
    CHECK(again.size() == bytes.size());
    std::string sorted = bytes;
    std::sort(sorted.begin(), sorted.end());
    std::sort(again.begin(), again.end());
    CHECK(again == sorted);
  }
}

// A worker that is cut off says so, each time.
const bool is_quiet = [] {
  ConfigureLog("golden_test", LogLevel::kOff);
  return true;
}();

TEST_CASE("Every message that a released version sent is understood whole, and written with the same bytes") {
  REQUIRE_FALSE(Versions().empty());
  for (const std::string& version : Versions()) {
    for (const auto& [name, transcript] : AllRecorded(version)) {
      for (size_t i = 0; i < transcript.exchanges.size(); ++i) {
        const Exchange& exchange = transcript.exchanges[i];
        INFO(name << " call " << i + 1 << ": " << exchange.method);
        if (NewRequest(exchange.method) == nullptr) {
          CHECK(absl::IsUnimplemented(exchange.status));
          continue;
        }
        // One that is not a message at all was refused as such.
        if (name.ends_with("every_method") && absl::IsInvalidArgument(exchange.status) &&
            !NewRequest(exchange.method)->ParseFromString(exchange.request_bytes)) {
          continue;
        }
        CheckBytes(NewRequest(exchange.method), exchange.request_bytes);
        if (exchange.answered != absl::InfiniteDuration() && exchange.status.ok()) {
          CheckBytes(NewResponse(exchange.method), exchange.response_bytes);
        }
      }
    }
  }
}

TEST_CASE("Every method of a released version is recorded, and each of its verdicts to a worker") {
  for (const std::string& version : Versions()) {
    std::set<std::string> methods;
    std::set<std::string> said;
    for (const auto& [name, transcript] : AllRecorded(version)) {
      for (const Exchange& exchange : transcript.exchanges) {
        if (exchange.status.ok() && exchange.answered != absl::InfiniteDuration()) methods.insert(exchange.method);
        if (exchange.method == kSync.name && exchange.status.ok()) {
          v1::SyncResponse answer;
          REQUIRE(answer.ParseFromString(exchange.response_bytes));
          for (const auto& verdict : answer.verdicts()) {
            said.insert("result " + v1::ResultVerdict::Verdict_Name(verdict.verdict()));
          }
          for (const auto& update : answer.held()) {
            said.insert("lease " + v1::LeaseUpdate::Verdict_Name(update.verdict()));
          }
        } else if (exchange.method == kStartUpload.name && exchange.status.ok()) {
          v1::StartUploadResponse answer;
          REQUIRE(answer.ParseFromString(exchange.response_bytes));
          said.insert("upload " + v1::StartUploadResponse::Verdict_Name(answer.verdict()));
        }
      }
    }
    for (const std::string& line : ContractOf(version)) {
      if (!line.starts_with("rpc ")) continue;
      const std::string method = line.substr(4, line.find(' ', 4) - 4);
      INFO(version << " " << method);
      CHECK(methods.contains(method));
    }
    CHECK(said == std::set<std::string>{"lease CANCELLED", "lease HELD", "lease LOST", "result ACCEPTED",
                                        "result DUPLICATE", "result LATE", "result LEASE_LOST", "result NOT_NEEDED",
                                        "result REJECTED", "result UNKNOWN_TASK", "upload ALREADY_STORED",
                                        "upload LEASE_LOST", "upload NOT_NEEDED", "upload SEND"});
  }
}

TEST_CASE("What a released version's contract lists is there, with the same numbers and types") {
  const std::set<std::string> now = ContractListing();
  for (const std::string& version : Versions()) {
    const std::set<std::string> before = ContractOf(version);
    REQUIRE(before.size() > 200);
    for (const std::string& line : before) {
      INFO(version << ": " << line);
      CHECK(now.contains(line));
    }
  }
}

TEST_CASE("Called as in a released version's transcripts, the server answers the same") {
  for (const std::string& version : Versions()) {
    const std::set<std::string> contract = ContractOf(version);
    for (const auto& [name, transcript] : Recorded(version, "sequences")) {
      const Transcript playable = Playable(name, transcript);
      INFO(name << Unexpected(name, Side::kServer, PlayToServer(playable, contract)));
      CHECK(Unexpected(name, Side::kServer, PlayToServer(playable, contract)).empty());
    }
  }
}

TEST_CASE("Answered as in a released version's transcripts, the worker asks the same") {
  for (const std::string& version : Versions()) {
    const std::set<std::string> contract = ContractOf(version);
    for (const auto& [name, transcript] : Recorded(version, "sequences")) {
      INFO(name << Unexpected(name, Side::kWorker, PlayToWorkers(transcript, contract)));
      CHECK(Unexpected(name, Side::kWorker, PlayToWorkers(transcript, contract)).empty());
    }
  }
}

TEST_CASE("What no released version did yet is recorded as this build does it") {
  const std::set<std::string> contract = ContractListing();
  const std::map<std::string, Transcript> recorded = Recorded("next", "sequences");
  CHECK(recorded.size() == NextScenarios().size());
  for (const Scenario& scenario : NextScenarios()) {
    const auto found = recorded.find(fmt::format("next/sequences/{}", scenario.name));
    INFO(scenario.name << R"(: to record it, SHEAF_GOLDEN_OUT=tests/golden/next golden_test "[.record-next]")");
    REQUIRE(found != recorded.end());
    CHECK(Unexpected("", Side::kServer, PlayToServer(found->second, contract)) == "");
    CHECK(Unexpected("", Side::kWorker, PlayToWorkers(found->second, contract)) == "");
    CHECK(scenario.play(scenario).exchanges.size() == found->second.exchanges.size());
  }
}

TEST_CASE("Over a real connection every method answers what it answered in a released version") {
  for (const std::string& version : Versions()) {
    const std::set<std::string> contract = ContractOf(version);
    for (const auto& [name, transcript] : Recorded(version, "calls")) {
      Limits limits = LimitsOf(transcript.limits);
      // What has failed waits until the last call, however slow the machine.
      limits.retry_backoff_base = limits.retry_backoff_max;
      const RunningServer server(limits);
      const std::vector<Finding> findings = PlayOverWire(Playable(name, transcript), contract, server.address());
      INFO(name << Unexpected(name, Side::kServer, findings));
      CHECK(Unexpected(name, Side::kServer, findings).empty());
    }
  }
}

TEST_CASE("Every exception names a transcript that exists") {
  std::set<std::string> names;
  for (const std::string& version : Versions()) {
    for (const auto& [name, transcript] : AllRecorded(version)) names.insert(name);
  }
  for (const Exception& row : Exceptions()) {
    INFO(row.transcript);
    CHECK(names.contains(std::string(row.transcript)));
    CHECK_FALSE(row.reason.empty());
  }
}

TEST_CASE("What this build records it plays back, and records the same bytes each time") {
  for (const Scenario& scenario : Scenarios()) {
    const Transcript transcript = scenario.play(scenario);
    INFO(scenario.name);
    CHECK(scenario.play(scenario).ToText() == transcript.ToText());
    const auto parsed = Transcript::Parse(transcript.ToText());
    INFO(parsed.status().ToString());
    REQUIRE(parsed.ok());
    CHECK(parsed->ToText() == transcript.ToText());
    const std::set<std::string> contract = ContractListing();
    CHECK(Unexpected("", Side::kServer, PlayToServer(*parsed, contract)) == "");
    CHECK(Unexpected("", Side::kWorker, PlayToWorkers(*parsed, contract)) == "");
  }
}

// The transcript of a scenario, with one message changed.
template <typename M>
Transcript Changed(const std::string& name, std::string Exchange::*bytes, const std::function<bool(M&)>& change) {
  for (const Scenario& scenario : Scenarios()) {
    if (scenario.name != name) continue;
    Transcript transcript = scenario.play(scenario);
    for (Exchange& exchange : transcript.exchanges) {
      M message;
      const bool is_request = bytes == &Exchange::request_bytes;
      const auto type = is_request ? NewRequest(exchange.method) : NewResponse(exchange.method);
      if (type->GetDescriptor() != M::descriptor() || !message.ParseFromString(exchange.*bytes) || !change(message)) {
        continue;
      }
      exchange.*bytes = Serialize(message);
      return transcript;
    }
  }
  FAIL("nothing to change in " << name);
  return {};
}

TEST_CASE("A server that gives another verdict, token or attempt than was recorded is found out") {
  const std::set<std::string> contract = ContractListing();
  const auto verdict =
      Changed<v1::SyncResponse>("lost_answers", &Exchange::response_bytes, [](v1::SyncResponse& answer) {
        for (auto& row : *answer.mutable_verdicts()) {
          if (row.verdict() != v1::ResultVerdict::DUPLICATE) continue;
          row.set_verdict(v1::ResultVerdict::LEASE_LOST);
          return true;
        }
        return false;
      });
  std::vector<Finding> findings = PlayToServer(verdict, contract);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].what == "verdicts[0].verdict: was LEASE_LOST and is DUPLICATE");
  // The second answer to one poll had another lease than the first.
  int num_answers = 0;
  const auto token =
      Changed<v1::SyncResponse>("lost_answers", &Exchange::response_bytes, [&](v1::SyncResponse& answer) {
        if (answer.leases_size() == 0 || ++num_answers < 2) return false;
        answer.mutable_leases(0)->set_lease_token("another-lease-token");
        return true;
      });
  CHECK_FALSE(PlayToServer(token, contract).empty());
  const auto lease = Changed<v1::SyncResponse>("steady", &Exchange::response_bytes, [](v1::SyncResponse& answer) {
    if (answer.leases_size() == 0) return false;
    answer.mutable_leases(0)->set_attempt(2);
    return true;
  });
  findings = PlayToServer(lease, contract);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].what == "leases[0].attempt: was 2 and is 1");
}

TEST_CASE("A worker that asks for more, forgets a lease or hands in something else than was recorded is found out") {
  const std::set<std::string> contract = ContractListing();
  const auto want = Changed<v1::SyncRequest>("steady", &Exchange::request_bytes, [](v1::SyncRequest& request) {
    request.set_want(2);
    return true;
  });
  std::vector<Finding> findings = PlayToWorker(want, "edge-1", contract);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].what == "want: was 2 and is 1");
  const auto held = Changed<v1::SyncRequest>("renewals", &Exchange::request_bytes, [](v1::SyncRequest& request) {
    if (request.held_size() == 0) return false;
    request.clear_held();
    return true;
  });
  CHECK(PlayToWorker(held, "edge-1", contract).size() == 1);
  const auto result = Changed<v1::SyncRequest>("steady", &Exchange::request_bytes, [](v1::SyncRequest& request) {
    if (request.results_size() == 0) return false;
    request.mutable_results(0)->set_contribution("something else");
    return true;
  });
  CHECK(PlayToWorker(result, "edge-1", contract).size() == 1);
  // A call that is not made.
  Transcript longer = want;
  longer.exchanges.push_back(longer.exchanges.back());
  CHECK(PlayToWorker(longer, "edge-1", contract).size() == 2);
}

TEST_CASE("Names may be others, if the same thing has the same one each time; fields that were added may be set") {
  v1::SyncResponse recorded;
  recorded.add_leases()->set_lease_token("token-a");
  recorded.add_leases()->set_lease_token("token-b");
  v1::SyncResponse actual = recorded;
  actual.mutable_leases(0)->set_lease_token("token-x");
  actual.mutable_leases(1)->set_lease_token("token-y");
  Likeness likeness(ContractListing());
  CHECK(likeness.Compare(recorded, actual).empty());
  CHECK(likeness.Translate("of token-b") == "of token-y");
  // One name for two things; and a new one for a thing that had one.
  actual.mutable_leases(1)->set_lease_token("token-x");
  CHECK(likeness.Compare(recorded, actual).size() == 1);
  Likeness fresh(ContractListing());
  CHECK(fresh.Compare(recorded, actual).size() == 1);
  // A field of a later version: the contract that was recorded does not list it.
  recorded.Clear();
  actual.Clear();
  actual.set_drain(true);
  CHECK(Likeness(ContractListing()).Compare(recorded, actual) ==
        std::vector<std::string>{"drain: was not set and is set"});
  std::set<std::string> older = ContractListing();
  CHECK(older.erase("sheaf.v1.SyncResponse.drain = 7 bool") == 1);
  CHECK(Likeness(older).Compare(recorded, actual).empty());
}

}  // namespace
}  // namespace sheaf::golden
