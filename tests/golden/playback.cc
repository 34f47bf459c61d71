#include "tests/golden/playback.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/retry_hint.h"
#include "sheaf/v1/round_service.pb.h"
#include "tests/golden/likeness.h"
#include "tests/golden/staged_server.h"
#include "tests/golden/staged_worker.h"
#include "tests/golden/wire_calls.h"

namespace sheaf::golden {
namespace {

constexpr absl::Duration kTolerance = absl::Seconds(2);
// How long it goes on after the transcript's last word.
constexpr absl::Duration kEpilogue = absl::Seconds(3);
// Until a worker that is cut off knows that nothing will come.
constexpr absl::Duration kLossNoticed = absl::Milliseconds(500);

bool IsSealing(const std::string& method, const std::string& response_bytes) {
  v1::GetRoundResponse response;
  return method == "sheaf.v1.RoundService/GetRound" && response.ParseFromString(response_bytes) &&
         response.round().state() == v1::SEALING;
}

// The same request of a round, answered when it is no longer as it was.
std::string WaitingFor(const std::string& request_bytes, const std::string& response_bytes) {
  v1::GetRoundRequest request;
  v1::GetRoundResponse response;
  SHEAF_CHECK(request.ParseFromString(request_bytes) && response.ParseFromString(response_bytes));
  request.set_etag(response.round().etag());
  request.mutable_wait()->set_seconds(10);
  return request.SerializeAsString();
}

std::string Seconds(absl::Duration time) { return fmt::format("{:.2f} s", absl::ToDoubleSeconds(time)); }

absl::Duration EndOf(const Transcript& transcript) {
  absl::Duration end = absl::ZeroDuration();
  for (const Exchange& exchange : transcript.exchanges) {
    for (const absl::Duration time : {exchange.sent, exchange.answered, exchange.received}) {
      if (time != absl::InfiniteDuration()) end = std::max(end, time);
    }
  }
  for (const Incident& incident : transcript.incidents) end = std::max(end, incident.at);
  return end + kEpilogue;
}

void PlayUntil(simulation::Agenda& agenda, absl::Time end) {
  bool is_over = false;
  agenda.At(end, [&is_over] { is_over = true; });
  while (!is_over) agenda.RunNext();
}

// Compares one answer; learns its names.
void CompareAnswers(const Exchange& recorded, size_t call, const absl::Status& status, const std::string& bytes,
                    Likeness& likeness, std::vector<Finding>& findings) {
  if (status.code() != recorded.status.code()) {
    findings.push_back({call, fmt::format("status: was {} and is {}", recorded.status.ToString(), status.ToString())});
    return;
  }
  if (!status.ok()) {
    // What gRPC refuses by itself has none.
    if (status.message().empty() && !recorded.status.message().empty())
      findings.push_back({call, "message: there is none"});
    return;
  }
  const auto before = NewResponse(recorded.method);
  const auto now = NewResponse(recorded.method);
  if (!before->ParseFromString(recorded.response_bytes) || !now->ParseFromString(bytes)) {
    findings.push_back({call, "response: cannot be parsed"});
    return;
  }
  for (std::string& difference : likeness.Compare(*before, *now)) findings.push_back({call, std::move(difference)});
}

// The bytes with the names that are in use here.
std::string Translated(const Exchange& exchange, const Likeness& likeness) {
  const auto request = NewRequest(exchange.method);
  // What no message is, is sent as it is.
  if (request == nullptr || !request->ParseFromString(exchange.request_bytes)) return exchange.request_bytes;
  likeness.Translate(*request);
  return Serialize(*request);
}

// Answers a worker out of the transcript.
class Prompter final : public Transport {
 public:
  Prompter(simulation::Agenda& agenda, const Transcript& transcript, const std::string& worker, Likeness& likeness,
           std::vector<Finding>& findings)
      : agenda_(agenda), start_(agenda.now()), likeness_(likeness), findings_(findings) {
    for (size_t i = 0; i < transcript.exchanges.size(); ++i) {
      if (transcript.exchanges[i].from == worker) open_.emplace_back(i + 1, &transcript.exchanges[i]);
    }
  }

  void CallMethod(std::string_view method, const google::protobuf::Message& request,
                  google::protobuf::Message* response, const CallOptions&, Done done) override {
    const auto found =
        std::find_if(open_.begin(), open_.end(), [&](const auto& row) { return row.second->method == method; });
    const absl::Duration now = agenda_.now() - start_;
    if (is_cut_off_) {
      agenda_.After(kLossNoticed, [done = std::move(done)] { done(absl::UnavailableError("no answer")); });
      return;
    }
    if (found == open_.end()) {
      if (!has_strayed_) {
        findings_.push_back({0, fmt::format("after {} it calls {}, which it did not: {}", Seconds(now), method,
                                            request.ShortDebugString())});
      }
      // Said once.
      has_strayed_ = true;
      return;
    }
    const auto [call, exchange] = *found;
    open_.erase(found);
    const auto recorded = NewRequest(method);
    if (!recorded->ParseFromString(exchange->request_bytes)) {
      findings_.push_back({call, "request: cannot be parsed"});
    }
    for (std::string& difference : likeness_.Compare(*recorded, request)) {
      findings_.push_back({call, std::move(difference)});
    }
    if (absl::AbsDuration(now - exchange->sent) > kTolerance) {
      findings_.push_back(
          {call, fmt::format("sent: was after {} and is after {}", Seconds(exchange->sent), Seconds(now))});
    }
    if (exchange->received == absl::InfiniteDuration()) return;
    agenda_.After(exchange->received - exchange->sent, [exchange = exchange, response, done = std::move(done)] {
      if (exchange->delivery == Delivery::kTurnedAway) {
        const auto hint = exchange->trailing.find(kRetryHeader);
        return done(hint == exchange->trailing.end() ? exchange->status
                                                     : WithRetryHeader(exchange->status, hint->second));
      }
      if (exchange->delivery != Delivery::kAnswered) return done(absl::UnavailableError("no answer"));
      if (exchange->status.ok()) response->ParseFromString(exchange->response_bytes);
      done(exchange->status);
    });
  }

  // Nothing that it says arrives.
  void set_cut_off(bool is_cut_off) { is_cut_off_ = is_cut_off; }

  void Close() {
    for (const auto& [call, exchange] : open_) {
      findings_.push_back({call, fmt::format("{} is not called", exchange->method)});
    }
  }

 private:
  simulation::Agenda& agenda_;
  const absl::Time start_;
  Likeness& likeness_;
  std::vector<Finding>& findings_;
  std::vector<std::pair<size_t, const Exchange*>> open_;
  bool has_strayed_ = false;
  bool is_cut_off_ = false;
};

}  // namespace

std::vector<Finding> PlayToServer(const Transcript& transcript, const std::set<std::string>& contract) {
  std::vector<Finding> findings;
  Likeness likeness(contract);
  std::vector<bool> is_answered(transcript.exchanges.size(), false);
  simulation::Agenda agenda;
  const absl::Time start = agenda.now();
  StagedServer server(agenda, LimitsOf(transcript.limits));
  for (size_t i = 0; i < transcript.exchanges.size(); ++i) {
    const Exchange& exchange = transcript.exchanges[i];
    if (exchange.arrived == absl::InfiniteDuration()) continue;
    agenda.At(start + exchange.arrived, [&, i] {
      server.Call(static_cast<int64_t>(i), exchange.method, Translated(exchange, likeness),
                  [&, i](const absl::Status& status, const std::string& bytes) {
                    is_answered[i] = true;
                    const absl::Duration now = agenda.now() - start;
                    if (exchange.answered == absl::InfiniteDuration()) {
                      findings.push_back({i + 1, fmt::format("answered: never was, and is after {}: {}", Seconds(now),
                                                             status.ToString())});
                      return;
                    }
                    if (absl::AbsDuration(now - exchange.answered) > kTolerance) {
                      findings.push_back({i + 1, fmt::format("answered: was after {} and is after {}",
                                                             Seconds(exchange.answered), Seconds(now))});
                    }
                    CompareAnswers(exchange, i + 1, status, bytes, likeness, findings);
                  });
    });
    if (exchange.delivery == Delivery::kConnectionLost) {
      agenda.At(start + exchange.received, [&, i] { server.Break(static_cast<int64_t>(i)); });
    }
  }
  for (const Incident& incident : transcript.incidents) {
    if (incident.who == "server") agenda.At(start + incident.at, [&] { server.KillAndRestart(); });
  }
  PlayUntil(agenda, start + EndOf(transcript));
  for (size_t i = 0; i < transcript.exchanges.size(); ++i) {
    const Exchange& exchange = transcript.exchanges[i];
    if (exchange.answered == absl::InfiniteDuration() || is_answered[i]) continue;
    findings.push_back({i + 1, fmt::format("answered: was after {} and is not", Seconds(exchange.answered))});
  }
  return findings;
}

std::vector<Finding> PlayToWorker(const Transcript& transcript, const std::string& worker,
                                  const std::set<std::string>& contract) {
  std::vector<Finding> findings;
  Likeness likeness(contract);
  simulation::Agenda agenda;
  const absl::Time start = agenda.now();
  Prompter prompter(agenda, transcript, worker, likeness, findings);
  std::unique_ptr<StagedWorker> life;
  for (const Incident& incident : transcript.incidents) {
    if (incident.who != worker) continue;
    agenda.At(start + incident.at, [&] {
      if (incident.what == "starts") {
        life = std::make_unique<StagedWorker>(agenda, prompter, worker, transcript.workers.at(worker));
      } else if (incident.what == "is told to stop") {
        life->RequestDrain();
      } else {
        prompter.set_cut_off(incident.what == "is cut off");
      }
    });
  }
  PlayUntil(agenda, start + EndOf(transcript));
  prompter.Close();
  return findings;
}

std::vector<Finding> PlayOverWire(const Transcript& transcript, const std::set<std::string>& contract,
                                  const std::string& address) {
  std::vector<Finding> findings;
  Likeness likeness(contract);
  WireCalls calls(address);
  for (size_t i = 0; i < transcript.exchanges.size(); ++i) {
    const Exchange& exchange = transcript.exchanges[i];
    if (exchange.arrived == absl::InfiniteDuration()) continue;
    const std::string request = Translated(exchange, likeness);
    const std::string authorization = likeness.Translate(exchange.authorization);
    WireAnswer answer = calls.Call(exchange.method, request, authorization);
    // When a round's result is there is nobody's promise: whoever was told it when this was recorded waits for it.
    while (IsSealing(exchange.method, answer.response_bytes) && !IsSealing(exchange.method, exchange.response_bytes)) {
      answer = calls.Call(exchange.method, WaitingFor(request, answer.response_bytes), authorization);
    }
    CompareAnswers(exchange, i + 1, answer.status, answer.response_bytes, likeness, findings);
    for (const auto& [name, value] : exchange.trailing) {
      if (!answer.trailing.contains(name)) findings.push_back({i + 1, fmt::format("trailing: {} is missing", name)});
    }
  }
  return findings;
}

}  // namespace sheaf::golden
