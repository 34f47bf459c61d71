#include "tests/golden/wire_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "aggregation/wire/safetensors.h"
#include "base/check.h"
#include "base/checksum.h"
#include "proto/methods.h"
#include "tests/golden/wire_calls.h"

namespace sheaf::golden {
namespace {

using absl::StatusCode;

// Calls, and writes down.
class Recorder {
 public:
  Recorder(const WireScript& script, const std::string& address, const Clock& clock)
      : calls_(address),
        clock_(clock),
        start_(clock.Now()),
        transcript_{.name = script.name, .about = script.about, .over = "gRPC", .limits = script.limits} {}

  // Whoever calls from here on, and what they show.
  void Speak(const std::string& from, const std::string& secret = "") {
    from_ = from;
    authorization_ = secret.empty() ? "" : "Bearer " + secret;
  }

  template <typename M>
  typename M::Response Ask(const M& method, const typename M::Request& request, StatusCode code = StatusCode::kOk) {
    typename M::Response response;
    const std::string bytes = AskBytes(method.name, Serialize(request), code);
    SHEAF_CHECK(response.ParseFromString(bytes), "an answer cannot be parsed");
    return response;
  }
  std::string AskBytes(const std::string& method, const std::string& request, StatusCode code) {
    Exchange exchange{.from = from_, .method = method, .authorization = authorization_, .request_bytes = request};
    exchange.sent = clock_.Now() - start_;
    WireAnswer answer = calls_.Call(method, request, authorization_);
    exchange.arrived = exchange.sent;
    exchange.answered = exchange.received = clock_.Now() - start_;
    exchange.status = answer.status;
    exchange.response_bytes = answer.response_bytes;
    exchange.trailing = answer.trailing;
    if (answer.status.code() != code) {
      unforeseen_ +=
          fmt::format("\ncall {}, {}: {}", transcript_.exchanges.size() + 1, method, answer.status.ToString());
    }
    transcript_.exchanges.push_back(std::move(exchange));
    return answer.response_bytes;
  }

  // CHECKs that everything was answered as foreseen: else the script, or the server, is not what it should be.
  Transcript Finish(const std::string& version) {
    SHEAF_CHECK(unforeseen_.empty(), "{}", unforeseen_);
    transcript_.recorded_from = version;
    return std::move(transcript_);
  }

 private:
  WireCalls calls_;
  const Clock& clock_;
  const absl::Time start_;
  Transcript transcript_;
  std::string unforeseen_;
  std::string from_ = "anybody";
  std::string authorization_;
};

std::string Floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::string Integers(const std::vector<int64_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t)};
}

v1::Tensor TensorOf(v1::DType dtype, std::vector<int64_t> shape, std::string data) {
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  for (const int64_t size : shape) tensor.add_shape(size);
  tensor.set_data(std::move(data));
  return tensor;
}

// A dense, a sparse and a keyed output.
v1::RoundSpec ASpec(const std::string& job) {
  v1::RoundSpec spec;
  spec.set_job(job);
  spec.mutable_computation()->set_name("golden");
  spec.mutable_computation()->set_version_min(1);
  spec.mutable_computation()->set_config("config");
  v1::OutputSpec& dense = *spec.mutable_aggregate()->add_outputs();
  dense.set_name("dense");
  dense.set_operator_("weighted_mean");
  dense.set_dtype(v1::FLOAT32);
  dense.add_dense_shape(3);
  v1::OutputSpec& sparse = *spec.mutable_aggregate()->add_outputs();
  sparse.set_name("sparse");
  sparse.set_operator_("sparse_sum");
  sparse.set_dtype(v1::FLOAT32);
  sparse.add_dense_shape(10);
  v1::OutputSpec& keyed = *spec.mutable_aggregate()->add_outputs();
  keyed.set_name("keyed");
  keyed.set_operator_("keyed_sum");
  keyed.set_dtype(v1::INT64);
  keyed.set_key_type(v1::STRING_KEYS);
  return spec;
}

v1::Contribution AContribution(float value) {
  v1::Contribution contribution;
  contribution.set_weight(2);
  contribution.set_num_clients(1);
  v1::OutputValue& dense = *contribution.add_outputs();
  dense.set_name("dense");
  *dense.mutable_dense() = TensorOf(v1::FLOAT32, {3}, Floats({value, 2 * value, -value}));
  v1::OutputValue& sparse = *contribution.add_outputs();
  sparse.set_name("sparse");
  sparse.mutable_sparse()->add_dense_shape(10);
  *sparse.mutable_sparse()->mutable_indices() = TensorOf(v1::INT64, {2}, Integers({7, 1}));
  *sparse.mutable_sparse()->mutable_values() = TensorOf(v1::FLOAT32, {2}, Floats({value, 1}));
  v1::OutputValue& keyed = *contribution.add_outputs();
  keyed.set_name("keyed");
  keyed.mutable_keyed()->add_string_keys("b");
  keyed.mutable_keyed()->add_string_keys("a");
  *keyed.mutable_keyed()->mutable_values() = TensorOf(v1::INT64, {2}, Integers({1, 10}));
  return contribution;
}

v1::SyncRequest ASync(const std::string& poll_id, int want = 1) {
  v1::SyncRequest request;
  request.set_protocol_version(1);
  request.set_worker("edge-1");
  request.set_software_version("golden");
  request.set_poll_id(poll_id);
  request.set_want(want);
  v1::OfferedComputation& offer = *request.add_computations();
  offer.set_name("golden");
  offer.set_version(1);
  return request;
}

v1::TaskResult AResult(const v1::Lease& lease) {
  v1::TaskResult result;
  result.set_task(lease.task());
  result.set_lease_token(lease.lease_token());
  return result;
}

void AddHeld(v1::SyncRequest& request, const v1::Lease& lease, int64_t progress) {
  v1::HeldLease& held = *request.add_held();
  held.set_task(lease.task());
  held.set_lease_token(lease.lease_token());
  held.set_progress(progress);
}

v1::StartUploadRequest AnUpload(const std::string& request_id, const std::string& bytes) {
  v1::StartUploadRequest request;
  request.set_request_id(request_id);
  request.set_size_bytes(static_cast<int64_t>(bytes.size()));
  request.set_digest(Sha256Hex(bytes));
  return request;
}

v1::WriteChunkRequest AChunk(const std::string& upload, int64_t offset, const std::string& data) {
  v1::WriteChunkRequest request;
  request.set_upload_id(upload);
  request.set_offset(offset);
  request.set_data(data);
  return request;
}

template <typename Request>
Request ForUpload(const std::string& upload) {
  Request request;
  request.set_upload_id(upload);
  return request;
}

// --- Parts of the script ---

// The digest of a broadcast.
std::string PlayUploads(Recorder& recorder) {
  recorder.Speak("program");
  const NamedTensor w = {.name = "w", .dtype = v1::FLOAT32, .shape = {4, 2}, .data = Floats({0, 1, 2, 3, 4, 5, 6, 7})};
  const std::string file = EncodeSafetensors(std::vector<NamedTensor>{w}, {{"made_by", "golden"}});
  const v1::StartUploadRequest start = AnUpload("upload-1", file);
  const std::string upload = recorder.Ask(kStartUpload, start).upload_id();
  recorder.Ask(kStartUpload, start);
  recorder.Ask(kWriteChunk, AChunk(upload, 0, file.substr(0, 20)));
  recorder.Ask(kWriteChunk, AChunk(upload, 0, file.substr(0, 20)));
  recorder.Ask(kWriteChunk, AChunk(upload, 30, file.substr(30)), StatusCode::kOutOfRange);
  recorder.Ask(kFinishUpload, ForUpload<v1::FinishUploadRequest>(upload), StatusCode::kFailedPrecondition);
  recorder.Ask(kQueryUpload, ForUpload<v1::QueryUploadRequest>(upload));
  recorder.Ask(kWriteChunk, AChunk(upload, 20, file.substr(20) + "too much"), StatusCode::kResourceExhausted);
  recorder.Ask(kWriteChunk, AChunk(upload, 20, file.substr(20)));
  recorder.Ask(kFinishUpload, ForUpload<v1::FinishUploadRequest>(upload));
  recorder.Ask(kStartUpload, AnUpload("upload-2", file));
  recorder.Ask(kQueryUpload, ForUpload<v1::QueryUploadRequest>("u-nobody-began-this"), StatusCode::kNotFound);
  recorder.Ask(kWriteChunk, AChunk("u-nobody-began-this", 0, "x"), StatusCode::kNotFound);
  recorder.Ask(kFinishUpload, ForUpload<v1::FinishUploadRequest>("u-nobody-began-this"), StatusCode::kNotFound);
  v1::StartUploadRequest malformed = start;
  malformed.set_request_id("upload-3");
  malformed.set_digest("no digest");
  recorder.Ask(kStartUpload, malformed, StatusCode::kInvalidArgument);
  const std::string damaged = recorder.Ask(kStartUpload, AnUpload("upload-4", "what was announced")).upload_id();
  recorder.Ask(kWriteChunk, AChunk(damaged, 0, "what arrived here!"));
  recorder.Ask(kFinishUpload, ForUpload<v1::FinishUploadRequest>(damaged), StatusCode::kDataLoss);
  return start.digest();
}

void PlayReads(Recorder& recorder, const std::string& digest) {
  recorder.Speak("edge-1");
  v1::ReadBlobRequest read;
  read.set_digest(digest);
  recorder.Ask(kReadBlob, read);
  read.set_offset(8);
  read.set_length(16);
  recorder.Ask(kReadBlob, read);
  read.set_offset(1 << 20);
  recorder.Ask(kReadBlob, read, StatusCode::kOutOfRange);
  read.set_digest(std::string(64, '0'));
  recorder.Ask(kReadBlob, read, StatusCode::kNotFound);
  v1::SelectRowsRequest select;
  select.set_digest(digest);
  v1::RowSelection& selection = *select.add_selections();
  selection.set_tensor("w");
  for (const int64_t row : {3, 0, 3}) selection.add_rows(row);
  recorder.Ask(kSelectRows, select);
  selection.clear_rows();
  selection.set_all(true);
  recorder.Ask(kSelectRows, select);
  selection.set_all(false);
  selection.add_rows(4);
  recorder.Ask(kSelectRows, select, StatusCode::kOutOfRange);
  selection.set_tensor("no such tensor");
  recorder.Ask(kSelectRows, select, StatusCode::kNotFound);
}

// The ids of a round with three tasks and of one of open slots.
std::pair<std::string, std::string> PlayRounds(Recorder& recorder, const std::string& digest) {
  recorder.Speak("program");
  v1::CreateRoundRequest create;
  create.set_request_id("round-1");
  *create.mutable_spec() = ASpec("first");
  create.mutable_spec()->set_broadcast_digest(digest);
  create.mutable_spec()->set_goal(3);
  for (int i = 0; i < 4; ++i) {
    v1::TaskSpec& task = *create.mutable_spec()->mutable_listed()->add_tasks();
    task.set_payload(fmt::format("payload {}", i));
    task.set_data_selector(fmt::format("client:{}", i));
  }
  create.set_validate_only(true);
  recorder.Ask(kCreateRound, create);
  create.set_validate_only(false);
  const std::string first = recorder.Ask(kCreateRound, create).round().id();
  recorder.Ask(kCreateRound, create);

  v1::CreateRoundRequest open;
  open.set_request_id("round-2");
  *open.mutable_spec() = ASpec("second");
  open.mutable_spec()->mutable_open_slots()->set_count(2);
  open.mutable_spec()->mutable_open_slots()->set_per_worker_max(1);
  (*open.mutable_spec()->mutable_open_slots()->mutable_task()->mutable_requirements())["region"] = "north";
  open.mutable_spec()->set_min_goal(1);
  open.mutable_spec()->mutable_deadline()->set_seconds(3600);
  open.mutable_spec()->mutable_retry()->set_failed_max(2);
  open.mutable_spec()->set_durability(v1::EPHEMERAL);
  const std::string second = recorder.Ask(kCreateRound, open).round().id();

  v1::CreateRoundRequest wrong = open;
  wrong.set_request_id("round-3");
  wrong.mutable_spec()->mutable_aggregate()->mutable_outputs(0)->set_operator_("no such operator");
  recorder.Ask(kCreateRound, wrong, StatusCode::kInvalidArgument);
  wrong = open;
  wrong.set_request_id("round-4");
  wrong.mutable_spec()->set_broadcast_digest(std::string(64, '0'));
  recorder.Ask(kCreateRound, wrong, StatusCode::kNotFound);

  v1::GetRoundRequest get;
  get.set_round(first);
  const std::string etag = recorder.Ask(kGetRound, get).round().etag();
  get.set_etag(etag);
  get.mutable_wait()->set_nanos(100'000'000);
  recorder.Ask(kGetRound, get);
  get.set_round("r-nobody-made-this");
  recorder.Ask(kGetRound, get, StatusCode::kNotFound);
  v1::ListRoundsRequest list;
  list.set_page_size(1);
  list.set_page_token(recorder.Ask(kListRounds, list).next_page_token());
  recorder.Ask(kListRounds, list);
  list.set_page_size(-1);
  recorder.Ask(kListRounds, list, StatusCode::kInvalidArgument);
  return {first, second};
}

void PlayWork(Recorder& recorder, const std::string& round) {
  recorder.Speak("edge-1");
  // A lease; its repetition; and a new call that has not heard of it.
  const v1::Lease first = recorder.Ask(kSync, ASync("poll-1")).leases(0);
  recorder.Ask(kSync, ASync("poll-1"));
  recorder.Ask(kSync, ASync("poll-2", 0));
  // Renewed; and asked for the next.
  v1::SyncRequest sync = ASync("poll-3");
  AddHeld(sync, first, 1);
  const v1::Lease second = recorder.Ask(kSync, sync).leases(0);
  // A result; the same again; one that is wrong; one that failed; one given back; those of nobody.
  sync = ASync("poll-4", 0);
  *sync.add_results() = AResult(first);
  sync.mutable_results(0)->set_contribution(Serialize(AContribution(1.5F)));
  sync.mutable_results(0)->mutable_timings()->mutable_compute()->set_seconds(1);
  AddHeld(sync, second, 1);
  recorder.Ask(kSync, sync);
  sync.set_poll_id("poll-5");
  recorder.Ask(kSync, sync);
  sync = ASync("poll-6", 1);
  v1::Contribution wrong = AContribution(1);
  wrong.mutable_outputs(0)->mutable_dense()->set_shape(0, 2);
  *sync.add_results() = AResult(second);
  sync.mutable_results(0)->set_contribution(Serialize(wrong));
  const v1::Lease third = recorder.Ask(kSync, sync).leases(0);
  sync = ASync("poll-7", 1);
  *sync.add_results() = AResult(third);
  sync.mutable_results(0)->mutable_release()->set_reason("told to stop");
  const v1::Lease fourth = recorder.Ask(kSync, sync).leases(0);
  sync = ASync("poll-8", 0);
  *sync.add_results() = AResult(fourth);
  sync.mutable_results(0)->mutable_failure()->set_message("out of memory");
  *sync.add_results() = AResult(fourth);
  sync.mutable_results(1)->set_lease_token("no-such-token");
  sync.mutable_results(1)->set_contribution("x");
  *sync.add_results() = AResult(fourth);
  sync.mutable_results(2)->set_task(round + "/99");
  sync.mutable_results(2)->set_contribution("x");
  recorder.Ask(kSync, sync);
  // What is refused whole.
  sync = ASync("poll-9");
  sync.set_worker("");
  recorder.Ask(kSync, sync, StatusCode::kInvalidArgument);
  sync = ASync("");
  recorder.Ask(kSync, sync, StatusCode::kInvalidArgument);
  sync = ASync("poll-10", 257);
  recorder.Ask(kSync, sync, StatusCode::kInvalidArgument);
  sync = ASync("poll-11");
  sync.set_protocol_version(0);
  recorder.Ask(kSync, sync, StatusCode::kFailedPrecondition);
  sync.set_protocol_version(2);
  recorder.Ask(kSync, sync, StatusCode::kFailedPrecondition);
}

void PlayInspection(Recorder& recorder, const std::string& round) {
  recorder.Speak("operator");
  v1::ListTasksRequest tasks;
  tasks.set_round(round);
  tasks.set_page_size(3);
  tasks.set_page_token(recorder.Ask(kListTasks, tasks).next_page_token());
  recorder.Ask(kListTasks, tasks);
  for (const std::string& task : {round + "/0", round + "/1", round + "/2", round + "/3"}) {
    v1::GetTaskRequest get;
    get.set_task(task);
    recorder.Ask(kGetTask, get);
  }
  v1::GetTaskRequest get;
  get.set_task(round + "/99");
  recorder.Ask(kGetTask, get, StatusCode::kNotFound);
  get.set_task("no task");
  recorder.Ask(kGetTask, get, StatusCode::kInvalidArgument);
  recorder.Ask(kDescribeQueue, {});
  recorder.Ask(kListWorkers, {});
  v1::ExplainRoundRequest explain;
  explain.set_round(round);
  recorder.Ask(kExplainRound, explain);
  explain.set_round("r-nobody-made-this");
  recorder.Ask(kExplainRound, explain, StatusCode::kNotFound);
  v1::DrainWorkerRequest drain;
  drain.set_request_id("drain-1");
  drain.set_worker("edge-1");
  recorder.Ask(kDrainWorker, drain);
  recorder.Speak("edge-1");
  recorder.Ask(kSync, ASync("poll-20"));
  recorder.Speak("operator");
  drain.set_request_id("drain-2");
  drain.set_undo(true);
  recorder.Ask(kDrainWorker, drain);
  drain.set_request_id("drain-3");
  drain.set_worker("nobody");
  recorder.Ask(kDrainWorker, drain, StatusCode::kNotFound);
  v1::RequeueTaskRequest requeue;
  requeue.set_request_id("requeue-1");
  requeue.set_task(round + "/0");
  recorder.Ask(kRequeueTask, requeue, StatusCode::kFailedPrecondition);
  requeue.set_request_id("requeue-2");
  requeue.set_task(round + "/99");
  recorder.Ask(kRequeueTask, requeue, StatusCode::kNotFound);
  requeue.set_request_id("requeue-3");
  requeue.set_task(round + "/1");
  recorder.Ask(kRequeueTask, requeue);
}

// The round needs two more contributions; it gets one inline and one that is uploaded.
void PlayEnd(Recorder& recorder, const std::string& round, const std::string& other) {
  v1::ReadAggregateRequest read;
  read.set_round(round);
  recorder.Speak("program");
  recorder.Ask(kReadAggregate, read, StatusCode::kFailedPrecondition);
  recorder.Speak("operator");
  for (const int task : {2, 3}) {
    v1::RequeueTaskRequest requeue;
    requeue.set_request_id(fmt::format("requeue-again-{}", task));
    requeue.set_task(fmt::format("{}/{}", round, task));
    recorder.Ask(kRequeueTask, requeue);
  }
  recorder.Speak("edge-1");
  const v1::SyncResponse granted = recorder.Ask(kSync, ASync("poll-30", 3));
  SHEAF_CHECK(granted.leases_size() == 3, "{} leases", granted.leases_size());
  v1::SyncRequest sync = ASync("poll-31", 0);
  *sync.add_results() = AResult(granted.leases(0));
  sync.mutable_results(0)->set_contribution(Serialize(AContribution(-0.25F)));
  AddHeld(sync, granted.leases(1), 1);
  AddHeld(sync, granted.leases(2), 1);
  recorder.Ask(kSync, sync);
  const std::string bytes = Serialize(AContribution(4));
  v1::StartUploadRequest start = AnUpload("upload-9", bytes);
  start.mutable_contribution()->set_task(granted.leases(1).task());
  start.mutable_contribution()->set_lease_token(granted.leases(1).lease_token());
  const std::string upload = recorder.Ask(kStartUpload, start).upload_id();
  recorder.Ask(kWriteChunk, AChunk(upload, 0, bytes));
  recorder.Ask(kFinishUpload, ForUpload<v1::FinishUploadRequest>(upload));
  sync = ASync("poll-32", 0);
  *sync.add_results() = AResult(granted.leases(1));
  sync.mutable_results(0)->set_upload_id(upload);
  AddHeld(sync, granted.leases(2), 2);
  recorder.Ask(kSync, sync);
  // Nobody needs the third.
  start.set_request_id("upload-10");
  start.mutable_contribution()->set_task(granted.leases(2).task());
  start.mutable_contribution()->set_lease_token(granted.leases(2).lease_token());
  recorder.Ask(kStartUpload, start);
  sync = ASync("poll-33", 0);
  AddHeld(sync, granted.leases(2), 3);
  recorder.Ask(kSync, sync);
  sync = ASync("poll-34", 0);
  *sync.add_results() = AResult(granted.leases(2));
  sync.mutable_results(0)->set_contribution(bytes);
  recorder.Ask(kSync, sync);

  recorder.Speak("program");
  v1::GetRoundRequest get;
  get.set_round(round);
  get.set_etag("0");
  recorder.Ask(kGetRound, get);
  recorder.Ask(kReadAggregate, read);
  read.set_offset(8);
  read.set_length(10);
  recorder.Ask(kReadAggregate, read);
  read.set_offset(1 << 20);
  recorder.Ask(kReadAggregate, read, StatusCode::kOutOfRange);
  read.set_round("r-nobody-made-this");
  recorder.Ask(kReadAggregate, read, StatusCode::kNotFound);
  v1::CancelRoundRequest cancel;
  cancel.set_request_id("cancel-1");
  cancel.set_round(other);
  cancel.set_reason("not wanted any more");
  recorder.Ask(kCancelRound, cancel);
  cancel.set_request_id("cancel-2");
  recorder.Ask(kCancelRound, cancel);
  cancel.set_round(round);
  cancel.set_request_id("cancel-3");
  recorder.Ask(kCancelRound, cancel, StatusCode::kFailedPrecondition);
  cancel.set_round("r-nobody-made-this");
  recorder.Ask(kCancelRound, cancel, StatusCode::kNotFound);
  v1::ExplainRoundRequest explain;
  explain.set_round(round);
  recorder.Ask(kExplainRound, explain);
}

void PlayAccess(Recorder& recorder) {
  recorder.Speak("operator");
  v1::CreateTokenRequest create;
  create.set_request_id("token-1");
  create.set_name("fleet");
  create.add_roles(v1::WORKER);
  recorder.Ask(kCreateToken, create, StatusCode::kFailedPrecondition);
  create.set_request_id("token-2");
  create.set_name("root");
  create.set_roles(0, v1::OPERATOR);
  const std::string root = recorder.Ask(kCreateToken, create).secret();
  // From here on nobody gets in without one.
  recorder.Ask(kListTokens, {}, StatusCode::kUnauthenticated);
  recorder.Speak("operator", "s-this-is-no-secret-of-this-server");
  recorder.Ask(kListTokens, {}, StatusCode::kUnauthenticated);
  recorder.Speak("operator", root);
  recorder.Ask(kCreateToken, create);
  // While there is one: tokens come by id, and ids by chance.
  v1::ListTokensRequest list;
  list.set_page_size(1);
  list.set_page_token(recorder.Ask(kListTokens, list).next_page_token());
  recorder.Ask(kListTokens, list);
  create.set_request_id("token-3");
  create.set_name("fleet");
  create.set_roles(0, v1::WORKER);
  create.add_populations("default");
  create.mutable_lifetime()->set_seconds(3600);
  const v1::CreateTokenResponse fleet = recorder.Ask(kCreateToken, create);
  create.set_request_id("token-4");
  create.set_name("");
  recorder.Ask(kCreateToken, create, StatusCode::kInvalidArgument);
  recorder.Speak("edge-1", fleet.secret());
  recorder.Ask(kListTokens, {}, StatusCode::kPermissionDenied);
  recorder.Ask(kGetServerInfo, {});
  v1::SyncRequest elsewhere = ASync("poll-40");
  elsewhere.set_population("elsewhere");
  recorder.Ask(kSync, elsewhere, StatusCode::kPermissionDenied);
  recorder.Speak("operator", root);
  v1::RevokeTokenRequest revoke;
  revoke.set_request_id("revoke-1");
  revoke.set_token(fleet.token().id());
  recorder.Ask(kRevokeToken, revoke);
  revoke.set_request_id("revoke-2");
  recorder.Ask(kRevokeToken, revoke);
  revoke.set_request_id("revoke-3");
  revoke.set_token("t-nobody1");
  recorder.Ask(kRevokeToken, revoke, StatusCode::kNotFound);
  recorder.Speak("edge-1", fleet.secret());
  recorder.Ask(kGetServerInfo, {}, StatusCode::kUnauthenticated);
}

Transcript EveryMethod(const WireScript& script, const std::string& address, const Clock& clock) {
  Recorder recorder(script, address, clock);
  const std::string version = recorder.Ask(kGetServerInfo, {}).version();
  const std::string digest = PlayUploads(recorder);
  PlayReads(recorder, digest);
  const auto [first, second] = PlayRounds(recorder, digest);
  PlayWork(recorder, first);
  PlayInspection(recorder, first);
  PlayEnd(recorder, first, second);
  recorder.Speak("anybody");
  recorder.AskBytes("sheaf.v1.WorkService/Sync", "\x0a\x7f", StatusCode::kInvalidArgument);
  recorder.AskBytes("sheaf.v1.WorkService/NoSuchMethod", "", StatusCode::kUnimplemented);
  PlayAccess(recorder);
  return recorder.Finish(version);
}

Transcript ToldToWait(const WireScript& script, const std::string& address, const Clock& clock) {
  Recorder recorder(script, address, clock);
  const std::string version = recorder.Ask(kGetServerInfo, {}).version();
  recorder.Ask(kGetServerInfo, {}, StatusCode::kResourceExhausted);
  recorder.Ask(kSync, ASync("poll-1"), StatusCode::kResourceExhausted);
  return recorder.Finish(version);
}

const WireScript kScripts[] = {
    {"every_method", "Every method, with what it answers when all is well and when it is not.", {}, EveryMethod},
    {"told_to_wait",
     "A caller over its rate is refused, and told when to come back.",
     {{"calls_per_second_max", 1}},
     ToldToWait},
};

}  // namespace

std::span<const WireScript> WireScripts() { return kScripts; }

const WireScript* FindWireScript(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kScripts), std::end(kScripts), [&](const WireScript& row) { return name == row.name; });
  return found == std::end(kScripts) ? nullptr : found;
}

}  // namespace sheaf::golden
