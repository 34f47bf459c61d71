#include "tests/golden/stage.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "aggregation/wire/safetensors.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/retry_hint.h"
#include "base/version.h"

namespace sheaf::golden {
namespace {

constexpr absl::Duration kLatency = absl::Milliseconds(10);
// Until a caller knows that nothing will come.
constexpr absl::Duration kLossNoticed = absl::Milliseconds(500);

absl::Status Gone() { return absl::UnavailableError("connection reset"); }

}  // namespace

// What a worker calls through.
class Stage::Link final : public Transport {
 public:
  Link(Stage& stage, std::string from) : stage_(stage), from_(std::move(from)) {}

  void CallMethod(std::string_view method, const google::protobuf::Message& request,
                  google::protobuf::Message* response, const CallOptions&, Done done) override {
    stage_.Send(from_, method, request,
                [response, done = std::move(done)](const absl::Status& status, const std::string& bytes) {
                  if (status.ok()) SHEAF_CHECK(response->ParseFromString(bytes), "an answer cannot be parsed");
                  done(status);
                });
  }

 private:
  Stage& stage_;
  const std::string from_;
};

Stage::Stage(const std::string& name, const std::string& about, const std::map<std::string, int64_t>& limits)
    : transcript_{.name = name,
                  .about = about,
                  .recorded_from = std::string(kVersion),
                  .over = "virtual time",
                  .limits = limits},
      server_(std::make_unique<StagedServer>(agenda_, LimitsOf(limits))) {}

Stage::~Stage() = default;

void Stage::Start(const std::string& worker, const WorkerStart& start) {
  transcript_.workers[worker] = start;
  Note(worker, "starts");
  auto& link = links_[worker];
  if (link == nullptr) link = std::make_unique<Link>(*this, worker);
  workers_[worker] = std::make_unique<StagedWorker>(agenda_, *link, worker, start);
}

void Stage::Drain(const std::string& worker) {
  Note(worker, "is told to stop");
  workers_.at(worker)->RequestDrain();
}

void Stage::KillServer() {
  Note("server", "is killed");
  server_->KillAndRestart();
  for (auto& [index, done] : std::exchange(open_, {})) {
    Exchange& exchange = transcript_.exchanges[index];
    const bool has_arrived = exchange.arrived <= now();
    exchange.delivery = has_arrived ? Delivery::kConnectionLost : Delivery::kRequestLost;
    if (!has_arrived) exchange.arrived = absl::InfiniteDuration();
    exchange.received = now() + kLatency;
    agenda_.After(kLatency, [done = std::move(done)] { done(Gone(), ""); });
  }
}

void Stage::Lose(const std::string& worker, std::string_view method, int nth, Delivery delivery,
                 absl::Duration breaks_after) {
  losses_[{worker, std::string(method), nth}] = {delivery, breaks_after};
}

void Stage::TurnAway(const std::string& worker, std::string_view method, int nth, absl::Status refusal) {
  refusals_[{worker, std::string(method), nth}] = std::move(refusal);
}

void Stage::Play(absl::Duration time) {
  const absl::Time end = agenda_.now() + time;
  bool is_over = false;
  agenda_.At(end, [&is_over] { is_over = true; });
  while (!is_over) agenda_.RunNext();
}

void Stage::Send(const std::string& from, std::string_view method, const google::protobuf::Message& request,
                 std::function<void(const absl::Status&, const std::string&)> done) {
  const size_t index = transcript_.exchanges.size();
  const int nth = ++counts_[{from, std::string(method)}];
  std::pair<Delivery, absl::Duration> fate = {Delivery::kAnswered, absl::ZeroDuration()};
  if (const auto found = losses_.find({from, std::string(method), nth}); found != losses_.end()) fate = found->second;
  if (cut_off_.contains(from)) {
    // How often it tries meanwhile is nobody's business, and not written down.
    agenda_.After(kLossNoticed, [done = std::move(done)] { done(Gone(), ""); });
    return;
  }
  transcript_.exchanges.push_back({.from = from,
                                   .method = std::string(method),
                                   .delivery = fate.first,
                                   .sent = now(),
                                   .request_bytes = Serialize(request),
                                   .status = Gone()});
  if (const auto refusal = refusals_.find({from, std::string(method), nth}); refusal != refusals_.end()) {
    Exchange& exchange = transcript_.exchanges[index];
    exchange.delivery = Delivery::kTurnedAway;
    exchange.status = refusal->second;
    if (const auto pause = RetryAfter(refusal->second)) exchange.trailing[kRetryHeader] = RetryHeaderValue(*pause);
    exchange.received = now() + 2 * kLatency;
    agenda_.After(2 * kLatency, [done = std::move(done), status = refusal->second] { done(status, ""); });
    return;
  }
  if (fate.first == Delivery::kRequestLost) {
    transcript_.exchanges[index].received = now() + kLossNoticed;
    agenda_.After(kLossNoticed, [done = std::move(done)] { done(Gone(), ""); });
    return;
  }
  transcript_.exchanges[index].arrived = now() + kLatency;
  open_[index] = std::move(done);
  agenda_.After(kLatency, [this, index, fate] {
    if (!open_.contains(index)) return;
    server_->Call(static_cast<int64_t>(index), transcript_.exchanges[index].method,
                  transcript_.exchanges[index].request_bytes,
                  [this, index, fate](const absl::Status& status, const std::string& bytes) {
                    Exchange& exchange = transcript_.exchanges[index];
                    exchange.answered = now();
                    exchange.status = status;
                    exchange.response_bytes = bytes;
                    auto tell = std::move(open_.extract(index).mapped());
                    const bool is_lost = fate.first == Delivery::kAnswerLost;
                    const absl::Duration after = is_lost ? kLossNoticed : kLatency;
                    exchange.received = now() + after;
                    agenda_.After(after, [tell = std::move(tell), heard = is_lost ? Gone() : status, bytes] {
                      tell(heard, heard.ok() ? bytes : "");
                    });
                  });
    if (fate.first != Delivery::kConnectionLost) return;
    agenda_.After(fate.second, [this, index] {
      auto node = open_.extract(index);
      if (node.empty()) {
        // It was answered before its connection could break.
        transcript_.exchanges[index].delivery = Delivery::kAnswered;
        return;
      }
      transcript_.exchanges[index].received = now();
      server_->Break(static_cast<int64_t>(index));
      node.mapped()(Gone(), "");
    });
  });
}

void Stage::AskMethod(const std::string& from, std::string_view method, const google::protobuf::Message& request,
                      google::protobuf::Message* response) {
  std::optional<absl::Status> answer;
  Send(from, method, request, [&](const absl::Status& status, const std::string& bytes) {
    SHEAF_CHECK(response->ParseFromString(bytes), "an answer cannot be parsed");
    answer = status;
  });
  while (!answer.has_value()) agenda_.RunNext();
  SHEAF_CHECK(answer->ok(), "{}: {}", method, answer->ToString());
}

std::string Stage::CreateRound(const RoundOptions& options) {
  v1::CreateRoundRequest request;
  request.set_request_id(fmt::format("round-request-{}", ++num_requests_));
  v1::RoundSpec& spec = *request.mutable_spec();
  spec.mutable_computation()->set_name("golden");
  spec.mutable_computation()->set_version_min(1);
  spec.set_goal(options.goal);
  spec.set_broadcast_digest(options.broadcast_digest);
  spec.set_announced(options.announced);
  v1::OutputSpec& output = *spec.mutable_aggregate()->add_outputs();
  output.set_name("x");
  output.set_operator_("sum");
  output.set_dtype(v1::FLOAT32);
  output.add_dense_shape(options.elements);
  for (const std::string& payload : options.tasks) spec.mutable_listed()->add_tasks()->set_payload(payload);
  return Ask("program", kCreateRound, request).round().id();
}

void Stage::OpenRound(const std::string& round, const std::string& broadcast_digest) {
  v1::OpenRoundRequest request;
  request.set_request_id(fmt::format("open-request-{}", ++num_requests_));
  request.set_round(round);
  request.set_broadcast_digest(broadcast_digest);
  Ask("program", kOpenRound, request);
}

std::string Stage::UploadBroadcast(int rows) {
  NamedTensor tensor{.name = "w", .dtype = v1::FLOAT32, .shape = {rows, 4}};
  std::vector<float> values;
  for (int i = 0; i < 4 * rows; ++i) values.push_back(static_cast<float>(i) / 8);
  tensor.data.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  const std::string file = EncodeSafetensors(std::vector<NamedTensor>{tensor}, {});
  v1::StartUploadRequest start;
  start.set_request_id(fmt::format("upload-request-{}", ++num_requests_));
  start.set_size_bytes(static_cast<int64_t>(file.size()));
  start.set_digest(Sha256Hex(file));
  const std::string upload = Ask("program", kStartUpload, start).upload_id();
  v1::WriteChunkRequest chunk;
  chunk.set_upload_id(upload);
  chunk.set_data(file);
  Ask("program", kWriteChunk, chunk);
  v1::FinishUploadRequest finish;
  finish.set_upload_id(upload);
  Ask("program", kFinishUpload, finish);
  return start.digest();
}

Transcript Stage::Finish() {
  // Whoever waits still does so when the curtain falls.
  return transcript_;
}

}  // namespace sheaf::golden
