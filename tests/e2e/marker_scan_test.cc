// Mediated data: a marker planted in one contribution is looked for in every byte of every file of the store.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>

#include "base/checksum.h"
#include "proto/methods.h"
#include "sdk/cpp/client/round_client.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

namespace fs = std::filesystem;

// Coordinates of the sum, and where the marker lies among them.
constexpr int64_t kSize = 4096;
constexpr int64_t kMarkerAt = 1000;
// Of eight floats; each half of four is looked for by itself.
constexpr int64_t kMarkerFloats = 8;
constexpr int kTasks = 6;

template <typename T>
T Ok(absl::StatusOr<T> value) {
  INFO(value.status().ToString());
  REQUIRE(value.ok());
  return *std::move(value);
}

// Values as they come from training: nobody else has the same bits.
std::vector<float> RandomValues(Random& random) {
  std::vector<float> values(kSize);
  for (float& value : values) value = static_cast<float>(random.Below(2'000'001)) / 1'000'003.0F - 1.0F;
  return values;
}

std::string BytesOf(const float* values, int64_t count) {
  std::string bytes(static_cast<size_t>(count) * sizeof(float), '\0');
  std::memcpy(bytes.data(), values, bytes.size());
  return bytes;
}

std::string ContributionOf(const std::vector<float>& values, double metric) {
  v1::Contribution contribution;
  (*contribution.mutable_metrics())["loss"] = metric;
  v1::OutputValue& output = *contribution.add_outputs();
  output.set_name("update");
  output.mutable_dense()->set_dtype(v1::FLOAT32);
  output.mutable_dense()->add_shape(kSize);
  output.mutable_dense()->set_data(BytesOf(values.data(), kSize));
  return contribution.SerializeAsString();
}

v1::RoundSpec UpdateRound(v1::Durability durability, v1::Numerics numerics) {
  v1::RoundSpec spec = OneHotRound({.num_tasks = kTasks, .lease = absl::Minutes(5), .durability = durability});
  spec.mutable_aggregate()->clear_outputs();
  v1::OutputSpec& output = *spec.mutable_aggregate()->add_outputs();
  output.set_name("update");
  output.set_operator_("sum");
  output.set_dtype(v1::FLOAT32);
  output.add_dense_shape(kSize);
  spec.mutable_aggregate()->set_numerics(numerics);
  return spec;
}

// The files below `directory`, relative to it, that hold one of the markers.
std::set<std::string> FilesWith(const std::vector<std::string>& markers, const std::string& directory) {
  std::set<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file(error)) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    for (const std::string& marker : markers) {
      if (bytes.find(marker) != std::string::npos) found.insert(entry.path().lexically_relative(directory).string());
    }
  }
  return found;
}

enum class Way { kInline, kUpload };

// One round, the worker with the marker and the others, all of them the test itself.
class Scene {
 public:
  Scene(v1::Durability durability, v1::Numerics numerics, Way way) : way_(way) {
    marked_ = RandomValues(federation_.random());
    for (int half = 0; half < 2; ++half) {
      markers_.push_back(BytesOf(marked_.data() + kMarkerAt + half * kMarkerFloats / 2, kMarkerFloats / 2));
    }
    // A DURABLE round's database has the sum of metrics with every contribution.
    const double metric = metric_;
    if (durability == v1::EPHEMERAL) markers_.emplace_back(reinterpret_cast<const char*>(&metric), sizeof metric);
    round_ = StartRound(federation_, UpdateRound(durability, numerics));
    leases_ = SyncOnce(federation_.transport(), APoll("hand", "poll", kTasks)).leases();
    REQUIRE(leases_.size() == kTasks);
  }

  Federation& federation() { return federation_; }
  const std::string& round() const { return round_; }
  const std::string& marker() const { return markers_[0]; }
  std::set<std::string> Scan() { return FilesWith(markers_, federation_.data_directory()); }
  std::string Spool() const {
    return "spools/" + round_ + "/1." + (way_ == Way::kInline ? "log" : Sha256Hex(ContributionOf(marked_, metric_)));
  }

  void SendMarked() { Send(0, marked_, metric_); }
  void SendOthers(int from, int to) {
    for (int i = from; i < to; ++i) Send(i, RandomValues(federation_.random()), federation_.random().Fraction());
  }
  // While chunks arrive, and when all did, `look` may look.
  template <typename Look>
  void SendMarkedLooking(Look look) {
    look_ = look;
    SendMarked();
    look_ = nullptr;
  }

  // The verdict on `bytes`, uploaded for the first task.
  std::string SendRefused(const std::string& bytes) {
    v1::SyncRequest request = APoll("hand", "refused", 0);
    v1::TaskResult& result = *request.add_results();
    result.set_task(leases_[0].task());
    result.set_lease_token(leases_[0].lease_token());
    result.set_upload_id(Upload(leases_[0], bytes));
    CHECK_FALSE(Scan().empty());
    return VerdictsOf(SyncOnce(federation_.transport(), request)).at(0);
  }

  // Makes a backup, and a store of it; scans both.
  std::set<std::string> ScanBackup() {
    const std::string backup = fmt::format("{}/backup-{}", federation_.directory(), ++num_backups_);
    for (const auto& arguments :
         {std::vector<std::string>{"store", "backup", federation_.data_directory(), "--to", backup},
          {"store", "restore", backup, "--to", backup + "-restored"}}) {
      const CommandRun run = federation_.Sheaf(arguments);
      INFO(run.err);
      REQUIRE(run.exit_code == 0);
    }
    std::set<std::string> found = FilesWith(markers_, backup);
    found.merge(FilesWith(markers_, backup + "-restored"));
    return found;
  }

  void KillAndStart() {
    federation_.KillServer();
    federation_.StartServer();
  }

 private:
  void Send(int index, const std::vector<float>& values, double metric) {
    const std::string bytes = ContributionOf(values, metric);
    v1::SyncRequest request = APoll("hand", "send", 0);
    v1::TaskResult& result = *request.add_results();
    result.set_task(leases_[index].task());
    result.set_lease_token(leases_[index].lease_token());
    if (way_ == Way::kInline) {
      result.set_contribution(bytes);
    } else {
      result.set_upload_id(Upload(leases_[index], bytes));
    }
    CHECK(VerdictsOf(SyncOnce(federation_.transport(), request)) == std::vector<std::string>{"ACCEPTED"});
    if (look_) look_();
  }

  std::string Upload(const v1::Lease& lease, const std::string& bytes) {
    v1::StartUploadRequest start;
    start.set_request_id(federation_.random().Token(16));
    start.set_size_bytes(static_cast<int64_t>(bytes.size()));
    start.set_digest(Sha256Hex(bytes));
    start.mutable_contribution()->set_task(lease.task());
    start.mutable_contribution()->set_lease_token(lease.lease_token());
    std::string id = Ok(BlockingCall(federation_.transport(), kStartUpload, start)).upload_id();
    constexpr size_t kChunk = 6000;
    for (size_t at = 0; at < bytes.size(); at += kChunk) {
      v1::WriteChunkRequest chunk;
      chunk.set_upload_id(id);
      chunk.set_offset(static_cast<int64_t>(at));
      chunk.set_data(bytes.substr(at, kChunk));
      Ok(BlockingCall(federation_.transport(), kWriteChunk, chunk));
      if (look_) look_();
    }
    v1::FinishUploadRequest finish;
    finish.set_upload_id(id);
    Ok(BlockingCall(federation_.transport(), kFinishUpload, finish));
    if (look_) look_();
    return id;
  }

  const Way way_;
  Federation federation_;
  const double metric_ = federation_.random().Fraction();
  std::vector<float> marked_;
  std::vector<std::string> markers_;
  std::string round_;
  google::protobuf::RepeatedPtrField<v1::Lease> leases_;
  std::function<void()> look_;
  int num_backups_ = 0;
};

const std::set<std::string> kNowhere;

TEST_CASE("A marker in a contribution to a DURABLE round is in its spool, and nowhere once a checkpoint contains it") {
  for (const v1::Numerics numerics : {v1::EXACT, v1::F32}) {
    for (const Way way : {Way::kInline, Way::kUpload}) {
      INFO(v1::Numerics_Name(numerics) << (way == Way::kInline ? ", inline" : ", uploaded"));
      Scene scene(v1::DURABLE, numerics, way);
      // That the scan finds it is what makes the rest mean something.
      scene.SendMarked();
      const std::set<std::string> in_spool = {scene.Spool()};
      // An upload that is in the spool goes on a thread of its own, after the answer at times.
      WaitUntil("the upload is gone", absl::Seconds(5), [&] { return scene.Scan().size() <= 1; });
      CHECK(scene.Scan() == in_spool);
      scene.SendOthers(1, 3);
      CHECK(scene.Scan() == in_spool);
      CHECK(scene.ScanBackup() == in_spool);
      scene.KillAndStart();
      CHECK(scene.Scan() == in_spool);

      // A server that stops makes a checkpoint of what it has.
      scene.federation().StopServer();
      CHECK(scene.Scan() == kNowhere);
      scene.federation().StartServer();
      CHECK(RoundOf(scene.federation().transport(), scene.round()).num_contributions() == 3);
      scene.KillAndStart();
      CHECK(scene.Scan() == kNowhere);
      CHECK(scene.ScanBackup() == kNowhere);

      scene.SendOthers(3, kTasks);
      CHECK(Await(scene.federation(), scene.round()).aggregate().num_contributions() == kTasks);
      CHECK(scene.Scan() == kNowhere);
      scene.KillAndStart();
      CHECK(scene.Scan() == kNowhere);
      CHECK(scene.ScanBackup() == kNowhere);
    }
  }
}

TEST_CASE("A marker in a contribution to a DURABLE round is nowhere once the round has sealed, also after a kill") {
  for (const bool is_killed_before : {false, true}) {
    for (const Way way : {Way::kInline, Way::kUpload}) {
      INFO((is_killed_before ? "killed before the last contribution" : "killed after the seal")
           << (way == Way::kInline ? ", inline" : ", uploaded"));
      Scene scene(v1::DURABLE, v1::EXACT, way);
      scene.SendMarked();
      scene.SendOthers(1, kTasks - 1);
      REQUIRE_FALSE(scene.Scan().empty());
      if (is_killed_before) scene.KillAndStart();
      REQUIRE_FALSE(scene.Scan().empty());
      scene.SendOthers(kTasks - 1, kTasks);
      // At once: what is accepted is sealed by whoever comes next.
      scene.KillAndStart();
      Await(scene.federation(), scene.round());
      WaitUntil("the spool is gone", absl::Seconds(5), [&] { return scene.Scan().empty(); });
      scene.KillAndStart();
      CHECK(scene.Scan() == kNowhere);
      scene.federation().StopServer();
      CHECK(scene.Scan() == kNowhere);
      CHECK(scene.ScanBackup() == kNowhere);
    }
  }
}

TEST_CASE("A marker in a contribution to an EPHEMERAL round is nowhere at any moment") {
  for (const v1::Numerics numerics : {v1::EXACT, v1::F32}) {
    for (const Way way : {Way::kInline, Way::kUpload}) {
      INFO(v1::Numerics_Name(numerics) << (way == Way::kInline ? ", inline" : ", uploaded"));
      int num_looks = 0;
      {
        // All the way.
        Scene scene(v1::EPHEMERAL, numerics, way);
        const auto look = [&] {
          ++num_looks;
          CHECK(scene.Scan() == kNowhere);
        };
        scene.SendMarkedLooking(look);
        CHECK(scene.ScanBackup() == kNowhere);
        scene.SendOthers(1, 3);
        look();
        // Its checkpoint is one of three.
        scene.federation().StopServer();
        look();
        scene.federation().StartServer();
        CHECK(RoundOf(scene.federation().transport(), scene.round()).num_contributions() == 3);
        scene.KillAndStart();
        look();
        CHECK(RoundOf(scene.federation().transport(), scene.round()).num_contributions() == 3);
        CHECK(scene.ScanBackup() == kNowhere);
        scene.SendOthers(3, kTasks);
        Await(scene.federation(), scene.round());
        look();
        scene.KillAndStart();
        look();
      }
      {
        // Alone: a checkpoint of one contribution would be that contribution. It is asked for again instead.
        Scene scene(v1::EPHEMERAL, numerics, way);
        scene.SendMarked();
        scene.federation().StopServer();
        CHECK(scene.Scan() == kNowhere);
        CHECK_FALSE(fs::exists(scene.federation().data_directory() + "/checkpoints/" + scene.round()));
        scene.federation().StartServer();
        CHECK(RoundOf(scene.federation().transport(), scene.round()).num_contributions() == 0);
        ++num_looks;
      }
      CHECK(num_looks >= 7);
    }
  }
}

TEST_CASE("An upload that is refused does not stay on the disk") {
  Scene scene(v1::DURABLE, v1::EXACT, Way::kUpload);
  // Of another shape than the round asks for.
  v1::Contribution contribution;
  v1::OutputValue& output = *contribution.add_outputs();
  output.set_name("update");
  output.mutable_dense()->set_dtype(v1::FLOAT32);
  output.mutable_dense()->add_shape(kMarkerFloats);
  output.mutable_dense()->set_data(scene.marker() + scene.marker());
  const std::string verdict = scene.SendRefused(contribution.SerializeAsString());
  CHECK(verdict == "REJECTED");
  // It is deleted beside the core.
  WaitUntil("the upload is gone", absl::Seconds(5), [&] { return scene.Scan() == kNowhere; });
}

// --- What workers say beside their contributions ---

constexpr char kMarker[] = "patient-4711: HIV positive";
constexpr char kMarkedIndex[] = "987654321";

// Five tasks; a contribution holds a table by names and a sparse tensor.
v1::RoundSpec RefusingRound(v1::Durability durability) {
  v1::RoundSpec spec = OneHotRound({.num_tasks = 5, .durability = durability});
  spec.mutable_retry()->set_failed_max(1);
  spec.mutable_aggregate()->clear_outputs();
  v1::OutputSpec& keys = *spec.mutable_aggregate()->add_outputs();
  keys.set_name("keys");
  keys.set_operator_("keyed_sum");
  keys.set_dtype(v1::FLOAT32);
  keys.set_key_type(v1::STRING_KEYS);
  v1::OutputSpec& rows = *spec.mutable_aggregate()->add_outputs();
  rows.set_name("rows");
  rows.set_operator_("sparse_sum");
  rows.set_dtype(v1::FLOAT32);
  rows.add_dense_shape(1000);
  return spec;
}

void SetFloat(float value, v1::Tensor& tensor) {
  tensor.set_dtype(v1::FLOAT32);
  tensor.add_shape(1);
  tensor.set_data(BytesOf(&value, 1));
}

v1::Contribution AnEntry(const std::string& key, float value, int64_t index) {
  v1::Contribution contribution;
  v1::OutputValue& keys = *contribution.add_outputs();
  keys.set_name("keys");
  keys.mutable_keyed()->add_string_keys(key);
  SetFloat(value, *keys.mutable_keyed()->mutable_values());
  v1::OutputValue& rows = *contribution.add_outputs();
  rows.set_name("rows");
  v1::SparseTensor& sparse = *rows.mutable_sparse();
  sparse.add_dense_shape(1000);
  sparse.mutable_indices()->set_dtype(v1::INT64);
  sparse.mutable_indices()->add_shape(1);
  sparse.mutable_indices()->set_data(std::string(reinterpret_cast<const char*>(&index), sizeof index));
  SetFloat(1, *sparse.mutable_values());
  return contribution;
}

// A worker's words about task `index`, with a marker where a worker has a choice; and what of them others may read.
std::string SayOf(int index, v1::TaskResult& result) {
  v1::Contribution contribution = AnEntry("common", 1, 1);
  std::string kept;
  switch (index) {
    case 0:
      contribution = AnEntry(kMarker, std::nanf(""), 1);
      kept = "output 'keys': a value is not finite";
      break;
    case 1:
      contribution = AnEntry(kMarker, 1, 987'654'321);
      kept = "output 'rows': an index is out of range";
      break;
    case 2:
      contribution.mutable_outputs(0)->set_name(kMarker);
      kept = "an output that the round does not have";
      break;
    case 3:
      (*contribution.mutable_metrics())[kMarker + std::string(200, 'x')] = 1;
      kept = "its metrics are over";
      break;
    default:
      result.set_upload_id(std::string("c-") + kMarker);
      return "an upload that was never begun";
  }
  result.set_contribution(contribution.SerializeAsString());
  return kept;
}

// Whatever anybody can read of the round and its tasks.
std::string EverythingSaid(Federation& federation, const std::string& round);

std::string EverythingSaidOfTasks(Federation& federation, const std::string& round) {
  std::string all = EverythingSaid(federation, round);
  for (const v1::Task& task : TasksOf(federation.transport(), round)) {
    all += TaskOf(federation.transport(), task.id()).DebugString();
    all += federation.Sheaf({"task", "describe", task.id()}).out;
  }
  return all;
}

std::set<std::string> FilesOfStoreAndBackup(Federation& federation, const std::string& backup) {
  const CommandRun run =
      federation.Sheaf({"store", "backup", federation.data_directory(), "--to", federation.directory() + "/" + backup});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  std::set<std::string> found = FilesWith({kMarker, kMarkedIndex}, federation.data_directory());
  found.merge(FilesWith({kMarker, kMarkedIndex}, federation.directory() + "/" + backup));
  return found;
}

TEST_CASE("What is quoted of a refused contribution is told to its worker, and stored, shown and logged nowhere") {
  for (const v1::Durability durability : {v1::DURABLE, v1::EPHEMERAL}) {
    INFO(v1::Durability_Name(durability));
    Federation federation({.server_arguments = {"--log-level", "debug"}});
    const std::string round = StartRound(federation, RefusingRound(durability));
    const v1::SyncResponse granted = SyncOnce(federation.transport(), APoll("hand", "poll", 5));
    REQUIRE(granted.leases_size() == 5);
    v1::SyncRequest request = APoll("hand", "send", 0);
    std::vector<std::string> kept;
    for (int i = 0; i < 5; ++i) {
      v1::TaskResult& result = *request.add_results();
      result.set_task(granted.leases(i).task());
      result.set_lease_token(granted.leases(i).lease_token());
      kept.push_back(SayOf(i, result));
    }
    const v1::SyncResponse answer = SyncOnce(federation.transport(), request);
    REQUIRE(VerdictsOf(answer) == std::vector<std::string>(5, "REJECTED"));
    for (int i = 0; i < 5; ++i) {
      CHECK_THAT(answer.verdicts(i).message(), Catch::Contains(i == 1 ? kMarkedIndex : kMarker));
      CHECK_THAT(TaskOf(federation.transport(), answer.verdicts(i).task()).last_error(), Catch::Contains(kept[i]));
    }
    const auto check_nowhere = [&](const std::string& backup) {
      const std::string said = EverythingSaidOfTasks(federation, round);
      CHECK(said.find("contribution rejected") != std::string::npos);
      for (const char* marker : {kMarker, kMarkedIndex}) {
        INFO(marker);
        CHECK(said.find(marker) == std::string::npos);
        CHECK(federation.server().LogTail(1'000'000).find(marker) == std::string::npos);
      }
      CHECK(FilesOfStoreAndBackup(federation, backup) == kNowhere);
    };
    check_nowhere("backup");
    federation.Sheaf({"round", "cancel", round});
    federation.KillServer();
    federation.StartServer();
    check_nowhere("backup-after");
    federation.StopServer();
    CHECK(FilesWith({kMarker, kMarkedIndex}, federation.data_directory()) == kNowhere);
  }
}

// A computation's error may quote the data that it met.
TEST_CASE(
    "What a worker says of a failed or released task is stored for a DURABLE round, and never for an EPHEMERAL one") {
  for (const v1::Durability durability : {v1::DURABLE, v1::EPHEMERAL}) {
    INFO(v1::Durability_Name(durability));
    Federation federation({.server_arguments = {"--log-level", "debug"}});
    const std::string round = StartRound(federation, UpdateRound(durability, v1::EXACT));
    const v1::SyncResponse granted = SyncOnce(federation.transport(), APoll("hand", "poll", 2));
    REQUIRE(granted.leases_size() == 2);
    v1::SyncRequest request = APoll("hand", "send", 0);
    for (const v1::Lease& lease : granted.leases()) {
      v1::TaskResult& result = *request.add_results();
      result.set_task(lease.task());
      result.set_lease_token(lease.lease_token());
    }
    request.mutable_results(0)->mutable_failure()->set_message(kMarker);
    request.mutable_results(1)->mutable_release()->set_reason(kMarker);
    REQUIRE(VerdictsOf(SyncOnce(federation.transport(), request)) == std::vector<std::string>(2, "ACCEPTED"));
    const bool is_kept = durability == v1::DURABLE;
    for (const v1::Lease& lease : granted.leases()) {
      CHECK_THAT(TaskOf(federation.transport(), lease.task()).last_error(),
                 Catch::Contains(is_kept ? kMarker : "which logged why"));
    }
    CHECK((EverythingSaidOfTasks(federation, round).find(kMarker) != std::string::npos) == is_kept);
    CHECK(FilesOfStoreAndBackup(federation, "backup").empty() == !is_kept);
    CHECK(federation.server().LogTail(1'000'000).find(kMarker) == std::string::npos);
    federation.StopServer();
    CHECK(FilesWith({kMarker}, federation.data_directory()).empty() == !is_kept);
  }
}

// --- Thresholds of release, on every path ---

constexpr char kRareKey[] = "a key that only one client has ever seen";

// Three contributions to a keyed sum: each has the key "common", the first also kRareKey.
v1::RoundSpec KeyedRound(int64_t min_clients) {
  v1::RoundSpec spec = OneHotRound({.num_tasks = 3});
  spec.mutable_aggregate()->clear_outputs();
  v1::OutputSpec& output = *spec.mutable_aggregate()->add_outputs();
  output.set_name("keys");
  output.set_operator_("keyed_sum");
  output.set_dtype(v1::INT64);
  output.set_key_type(v1::STRING_KEYS);
  output.set_min_contributors(2);
  spec.set_min_clients(min_clients);
  return spec;
}

void SendKeys(Federation& federation, const std::string& poll_id, int count) {
  const v1::SyncResponse granted = SyncOnce(federation.transport(), APoll("hand", poll_id, count));
  REQUIRE(granted.leases_size() == count);
  v1::SyncRequest request = APoll("hand", poll_id + "-done", 0);
  for (int i = 0; i < count; ++i) {
    v1::Contribution contribution;
    v1::OutputValue& output = *contribution.add_outputs();
    output.set_name("keys");
    output.mutable_keyed()->add_string_keys("common");
    std::vector<int64_t> values = {1};
    if (i == 0) {
      output.mutable_keyed()->add_string_keys(kRareKey);
      values.push_back(1);
    }
    v1::Tensor& tensor = *output.mutable_keyed()->mutable_values();
    tensor.set_dtype(v1::INT64);
    tensor.add_shape(static_cast<int64_t>(values.size()));
    tensor.set_data(std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t)));
    (*contribution.mutable_metrics())["planted_metric"] = 41.5 + i;
    v1::TaskResult& result = *request.add_results();
    result.set_task(granted.leases(i).task());
    result.set_lease_token(granted.leases(i).lease_token());
    result.set_contribution(contribution.SerializeAsString());
  }
  CHECK(VerdictsOf(SyncOnce(federation.transport(), request)) ==
        std::vector<std::string>(static_cast<size_t>(count), "ACCEPTED"));
}

// What anybody can get of a round, by every way that the API and the command line have: answers and files, in one text.
std::string EverythingSaid(Federation& federation, const std::string& round) {
  std::string all;
  v1::ReadAggregateRequest read;
  read.set_round(round);
  const auto aggregate = BlockingCall(federation.transport(), kReadAggregate, read);
  if (aggregate.ok()) all += aggregate->data();
  v1::GetRoundRequest get;
  get.set_round(round);
  const v1::GetRoundResponse found = Ok(BlockingCall(federation.transport(), kGetRound, get));
  all += found.DebugString();
  v1::ReadBlobRequest blob;
  blob.set_digest(found.round().aggregate().digest());
  const auto bytes = BlockingCall(federation.transport(), kReadBlob, blob);
  if (bytes.ok()) all += bytes->data();
  for (const v1::Task& task : TasksOf(federation.transport(), round)) all += task.DebugString();
  const std::string npz = fmt::format("{}/{}.npz", federation.directory(), round);
  const std::string safetensors = fmt::format("{}/{}.safetensors", federation.directory(), round);
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"round", "result", round, "-o", npz, "--force"},
        {"round", "result", round, "-o", safetensors, "--force"},
        {"round", "describe", round},
        {"round", "describe", round, "-o", "json"},
        {"round", "explain", round},
        {"round", "list", "-o", "json"},
        {"round", "wait", round, "--timeout", "1s", "-o", "json"},
        {"round", "watch", round, "--timeout", "1s"},
        {"task", "list", "--round", round, "-o", "json"},
        {"task", "describe", round + "/0", "-o", "json"},
        {"queue", "describe", "-o", "json"}}) {
    const CommandRun run = federation.Sheaf(arguments);
    all += run.out + run.err;
  }
  for (const std::string& path : {npz, safetensors}) {
    if (!fs::exists(path)) continue;
    std::ifstream file(path, std::ios::binary);
    all.append(std::istreambuf_iterator<char>(file), {});
    fs::remove(path);
  }
  return all;
}

TEST_CASE("min_contributors and min_clients hold on every way to what a round has: RPC, command line, files") {
  const auto has = [](const std::string& text, const std::string& what) {
    return text.find(what) != std::string::npos;
  };
  // A server for each: lists show all rounds of one.
  {
    Federation federation;
    // A key that too few touched is held back; what enough touched shows that the ways lead somewhere.
    const std::string round = StartRound(federation, KeyedRound(3));
    SendKeys(federation, "poll-a", 2);
    const std::string before = EverythingSaid(federation, round);
    for (const char* what : {kRareKey, "common", "planted_metric", "plantedMetric"}) CHECK_FALSE(has(before, what));
    SendKeys(federation, "poll-b", 1);
    Await(federation, round);
    const std::string after = EverythingSaid(federation, round);
    CHECK(has(after, "common"));
    CHECK(has(after, "planted_metric"));
    // Two of the three had it.
    CHECK(has(after, kRareKey));
  }
  {
    Federation federation;
    const std::string round = StartRound(federation, KeyedRound(3));
    SendKeys(federation, "poll-c", 3);
    Await(federation, round);
    const std::string after = EverythingSaid(federation, round);
    CHECK(has(after, "common"));
    CHECK_FALSE(has(after, kRareKey));
  }
  {
    Federation federation;
    const std::string round = StartRound(federation, KeyedRound(4));
    SendKeys(federation, "poll-d", 3);
    WaitUntil("it has ended", absl::Seconds(10),
              [&] { return RoundOf(federation.transport(), round).state() == v1::FAILED; });
    const std::string said = EverythingSaid(federation, round);
    CHECK(has(said, "min_clients = 4"));
    for (const char* what : {kRareKey, "common", "planted_metric", "plantedMetric"}) {
      INFO(what);
      CHECK_FALSE(has(said, what));
    }
    CHECK(FilesWith({kRareKey}, federation.data_directory() + "/blobs").empty());
    CHECK(FilesWith({kRareKey}, federation.data_directory() + "/spools").empty());
  }
}

}  // namespace
}  // namespace sheaf
