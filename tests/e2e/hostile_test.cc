// Whoever means harm, against a real server over sockets: nonsense in every request, requests that are larger than they
// look, connections that never say anything, names that are paths. After each the same server, not much larger, runs a
// round whose aggregate is right.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/checksum.h"
#include "base/mutex.h"
#include "base/retry_hint.h"
#include "proto/methods.h"
#include "proto/time.h"
#include "sdk/cpp/client/blob_client.h"
#include "tests/e2e/processes.h"
#include "tests/e2e/rounds.h"
#include "tests/e2e/service_methods.h"
#include "tests/fuzz/message_mutator.h"
#include "tests/server/raw_connection.h"
#include "tests/server/unread_calls.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MethodDescriptor;
using Code = absl::StatusCode;

std::string PathOf(const MethodDescriptor& method) { return "/" + method.service()->full_name() + "/" + method.name(); }

// In bytes; 0 if there is no such process any more.
int64_t StatusBytes(pid_t pid, const std::string& field) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

// Sends bytes, whatever they are.
class RawClient {
 public:
  explicit RawClient(const std::string& address, const std::string& secret = "") : secret_(secret) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(64 << 20);
    arguments.SetMaxSendMessageSize(-1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = std::make_unique<Stub>(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }

  struct Options {
    absl::Duration timeout = absl::Seconds(20);
    bool is_compressed = false;
  };
  absl::Status Call(const std::string& path, const std::string& bytes, const Options& options) {
    grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    grpc::ClientContext context;
    if (!secret_.empty()) context.AddMetadata("authorization", "Bearer " + secret_);
    if (options.is_compressed) context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                      gpr_time_from_millis(absl::ToInt64Milliseconds(options.timeout), GPR_TIMESPAN)));
    Mutex mutex;
    CondVar ended;
    std::optional<absl::Status> result;
    stub_->UnaryCall(&context, path, {}, &request, &response, [&](const grpc::Status& status) {
      MutexLock lock(mutex);
      result = absl::Status(static_cast<Code>(status.error_code()), status.error_message());
      ended.NotifyAll();
    });
    MutexLock lock(mutex);
    while (!result) ended.Wait(mutex);
    return *result;
  }

 private:
  using Stub = grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;
  const std::string secret_;
  std::unique_ptr<Stub> stub_;
};

// AddressSanitizer keeps what was freed for a while, and pads what was not.
#ifdef __SANITIZE_ADDRESS__
constexpr int64_t kGrowthOfSanitizer = 512 << 20;
#else
constexpr int64_t kGrowthOfSanitizer = 0;
#endif

// A server under attack, and the proof that it bore it.
class AttackedServer {
 public:
  explicit AttackedServer(std::vector<std::string> arguments = {})
      : federation_({.server_arguments = std::move(arguments)}), pid_(federation_.server().pid()) {
    CheckWell();
    rss_ = Rss();
  }

  Federation& federation() { return federation_; }
  Transport& transport() { return federation_.transport(); }
  const std::string& address() const { return federation_.address(); }
  pid_t pid() const { return pid_; }
  int64_t Rss() const { return StatusBytes(pid_, "VmRSS"); }
  int64_t PeakRss() const { return StatusBytes(pid_, "VmHWM"); }
  // That it has taken so far, of all its threads.
  double CpuSeconds() const {
    std::ifstream file(fmt::format("/proc/{}/stat", pid_));
    std::string word;
    double ticks = 0;
    // The 14th and 15th; no name of ours has a space in it.
    for (int i = 1; i <= 15 && file >> word; ++i) {
      if (i >= 14) ticks += std::stod(word);
    }
    return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }

  // The process is the same, grew by no more than `growth_max` even for a moment, and its rounds are right.
  void CheckWell(int64_t growth_max = 256 << 20) {
    REQUIRE(federation_.server().IsRunning());
    REQUIRE(federation_.server().pid() == pid_);
    if (rss_ > 0) {
      INFO(fmt::format("from {} to {} MiB", rss_ >> 20, PeakRss() >> 20));
      CHECK(PeakRss() - rss_ < growth_max + kGrowthOfSanitizer);
    }
    const SystemClock clock;
    const absl::Time start = clock.Now();
    REQUIRE(BlockingCall(transport(), kGetServerInfo, {}).ok());
    CHECK(clock.Now() - start < absl::Seconds(2));
    constexpr int kNumTasks = 8;
    // Away from what the attack has queued.
    v1::RoundSpec spec = OneHotRound({.num_tasks = kNumTasks});
    spec.set_population("proof");
    const std::string round = StartRound(federation_, spec);
    const auto poll = [&](const std::string& id, int want) {
      v1::SyncRequest request = APoll("honest", fmt::format("{}-{}", id, num_rounds_), want);
      request.set_population("proof");
      return request;
    };
    ++num_rounds_;
    const v1::SyncResponse granted = SyncOnce(transport(), poll("poll", kNumTasks));
    REQUIRE(granted.leases_size() == kNumTasks);
    v1::SyncRequest results = poll("results", 0);
    for (const v1::Lease& lease : granted.leases()) AddResult(lease, results);
    CHECK(VerdictsOf(SyncOnce(transport(), results)) == std::vector<std::string>(kNumTasks, "ACCEPTED"));
    Await(federation_, round);
    CHECK(CountsOf(transport(), round) == std::vector<int64_t>(kNumTasks, 1));
  }

 private:
  Federation federation_;
  const pid_t pid_;
  int64_t rss_ = 0;
  int num_rounds_ = 0;
};

// --- Nonsense -------------------------------------------------------------------------------------

// What fields of these names may hold, so that a request gets past the first check.
using Known = std::map<std::string, std::string>;

// Fills every field with something plausible, by its name.
void Fill(const Known& known, Random& random, Message& message, int depth = 0) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    if (field->is_map() || random.Chance(0.2)) continue;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (depth == 4) continue;
      Fill(known, random,
           field->is_repeated() ? *reflection.AddMessage(&message, field) : *reflection.MutableMessage(&message, field),
           depth + 1);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      const auto found = known.find(field->name());
      const std::string text = found != known.end() ? found->second : random.Token(8);
      field->is_repeated() ? reflection.AddString(&message, field, text) : reflection.SetString(&message, field, text);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32 && !field->is_repeated()) {
      reflection.SetInt32(&message, field, static_cast<int32_t>(random.Below(4)));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
      const auto number = static_cast<int64_t>(random.Below(16));
      field->is_repeated() ? reflection.AddInt64(&message, field, number)
                           : reflection.SetInt64(&message, field, number);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      const int number =
          field->enum_type()
              ->value(static_cast<int>(random.Below(static_cast<uint64_t>(field->enum_type()->value_count()))))
              ->number();
      field->is_repeated() ? reflection.AddEnumValue(&message, field, number)
                           : reflection.SetEnumValue(&message, field, number);
    }
  }
}

SeededRandom* byte_random = nullptr;
size_t MutateSomeBytes(uint8_t* data, size_t size, size_t size_max) {
  const size_t new_size = size_max == 0 ? 0 : byte_random->Below(size_max + 1);
  for (size_t i = size; i < new_size; ++i) data[i] = static_cast<uint8_t>(byte_random->Bits());
  if (new_size > 0) data[byte_random->Below(new_size)] = static_cast<uint8_t>(byte_random->Bits());
  return new_size;
}

std::string RandomBytes(Random& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random.Bits());
  return bytes;
}

// A request for this method that is wrong, or at least odd.
std::string Nonsense(const MethodDescriptor& method, const Known& known, Random& random) {
  const Message& prototype = *google::protobuf::MessageFactory::generated_factory()->GetPrototype(method.input_type());
  std::unique_ptr<Message> request(prototype.New());
  Fill(known, random, *request);
  for (uint64_t n = random.Below(4); n > 0; --n) fuzz::MutateMessage(*request, random);
  std::string bytes = request->SerializeAsString();
  if (random.Chance(0.3) && !bytes.empty())
    bytes[random.Below(bytes.size())] ^= static_cast<char>(1 << random.Below(8));
  if (random.Chance(0.1)) bytes.resize(random.Below(bytes.size() + 1));
  if (random.Chance(0.1)) bytes = RandomBytes(random, random.Below(2000));
  return bytes;
}

// Never the server's own fault. (What waits as it was told to runs into the deadline.)
void CheckIsNoFault(const MethodDescriptor& method, const absl::Status& status) {
  INFO(method.full_name() << ": " << status.ToString());
  CHECK(status.code() != Code::kInternal);
  CHECK(status.code() != Code::kUnknown);
  CHECK(status.code() != Code::kUnavailable);
}

TEST_CASE("Nonsense in every request of every service: answered with an error, and nothing else happens") {
  AttackedServer server;
  Federation& federation = server.federation();
  SeededRandom random(20221101);
  byte_random = &random;
  fuzz::SetByteMutator(MutateSomeBytes);
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = 20, .lease = absl::Minutes(10)}));
  const v1::SyncResponse granted = SyncOnce(server.transport(), APoll("victim", "poll", 1));
  const Known known = {{"round", round},
                       {"task", granted.leases(0).task()},
                       {"lease_token", granted.leases(0).lease_token()},
                       {"population", "default"},
                       {"worker", "attacker"},
                       {"digest", Sha256Hex("anything")},
                       {"broadcast_digest", ""},
                       {"operator", "sum"},
                       {"page_token", ""}};
  RawClient client(federation.address());
  std::map<Code, int> answers;
  constexpr int kPerMethod = 120;
  for (const MethodDescriptor* method : AllMethods()) {
    // Its first success locks everybody out who has no token: it has a test of its own.
    if (method->name() == "CreateToken") continue;
    for (int i = 0; i < kPerMethod; ++i) {
      const absl::Status status =
          client.Call(PathOf(*method), Nonsense(*method, known, random), {.timeout = absl::Milliseconds(250)});
      ++answers[status.code()];
      CheckIsNoFault(*method, status);
    }
  }
  server.CheckWell();
  std::string counted;
  for (const auto& [code, count] : answers) counted += fmt::format(" {} {}", count, absl::StatusCodeToString(code));
  Measured("{} requests to each of {} methods:{}; peak RSS {} MiB", kPerMethod, AllMethods().size() - 1, counted,
           server.PeakRss() >> 20);
}

TEST_CASE("Nonsense about tokens, of an operator: answered with an error, and the tokens that there are hold") {
  Federation federation;
  SeededRandom random(20221102);
  byte_random = &random;
  fuzz::SetByteMutator(MutateSomeBytes);
  v1::CreateTokenRequest create;
  create.set_request_id("admin");
  create.set_name("admin");
  for (const v1::Role role : {v1::OPERATOR, v1::SUBMITTER, v1::WORKER}) create.add_roles(role);
  const auto admin = BlockingCall(federation.transport(), kCreateToken, create);
  REQUIRE(admin.ok());
  const std::string file = federation.directory() + "/admin.token";
  std::ofstream(file) << admin->secret();
  std::filesystem::permissions(file, std::filesystem::perms(0600));
  GrpcTransport as_admin(federation.address(), {.security = {.token_file = file}});
  const Known known = {{"token", "t-aaaaaaaa"}, {"name", "made"}, {"populations", "default"}, {"page_token", ""}};
  RawClient client(federation.address(), admin->secret());
  constexpr int kPerMethod = 300;
  int num_errors = 0;
  for (const MethodDescriptor* method : AllMethods()) {
    if (method->service()->name() != "AccessService") continue;
    for (int i = 0; i < kPerMethod; ++i) {
      const absl::Status status =
          client.Call(PathOf(*method), Nonsense(*method, known, random), {.timeout = absl::Seconds(5)});
      num_errors += status.ok() ? 0 : 1;
      CheckIsNoFault(*method, status);
    }
  }
  CHECK(num_errors > kPerMethod);
  REQUIRE(federation.server().IsRunning());
  CHECK(BlockingCall(federation.impatient_transport(), kListTokens, {}).status().code() == Code::kUnauthenticated);
  const auto tokens = BlockingCall(as_admin, kListTokens, {});
  REQUIRE(tokens.ok());
  // And the same server runs a round.
  v1::CreateRoundRequest round;
  round.set_request_id("proof");
  *round.mutable_spec() = OneHotRound({.num_tasks = 3});
  const auto created = BlockingCall(as_admin, kCreateRound, round);
  REQUIRE(created.ok());
  const v1::SyncResponse granted = SyncOnce(as_admin, APoll("honest", "poll", 3));
  REQUIRE(granted.leases_size() == 3);
  v1::SyncRequest results = APoll("honest", "results", 0);
  for (const v1::Lease& lease : granted.leases()) AddResult(lease, results);
  CHECK(VerdictsOf(SyncOnce(as_admin, results)) == std::vector<std::string>(3, "ACCEPTED"));
  WaitUntil("the round has ended", absl::Seconds(10),
            [&] { return RoundOf(as_admin, created->round().id()).state() == v1::SUCCEEDED; });
  CHECK(CountsOf(as_admin, created->round().id()) == std::vector<int64_t>(3, 1));
  Measured("{} requests to each method, {} errors, {} tokens made", kPerMethod, num_errors, tokens->tokens_size() - 1);
}

// --- Larger than they look ------------------------------------------------------------------------

TEST_CASE("A compressed request is refused without being expanded") {
  AttackedServer server;
  RawClient client(server.address());
  const int64_t before = server.PeakRss();
  // A gibibyte of zeros is a mebibyte when it arrives.
  const absl::Status status = client.Call("/sheaf.v1.WorkService/Sync", std::string(size_t{1} << 30, '\0'),
                                          {.timeout = absl::Seconds(60), .is_compressed = true});
  CHECK(status.code() != Code::kOk);
  CHECK(status.code() != Code::kDeadlineExceeded);
  server.CheckWell(64 << 20);
  Measured("{}; peak RSS from {} to {} MiB", status.ToString().substr(0, 120), before >> 20, server.PeakRss() >> 20);
}

TEST_CASE("A request that is too large is refused by every method, and none of them stays in memory") {
  AttackedServer server;
  RawClient client(server.address());
  for (const MethodDescriptor* method : AllMethods()) {
    INFO(method->full_name());
    const absl::Status refused = client.Call(PathOf(*method), std::string(9 << 20, 'x'), {});
    CHECK(refused.code() == Code::kResourceExhausted);
    CHECK_THAT(std::string(refused.message()), Contains("request_bytes_max = 8388608"));
  }
  server.CheckWell(96 << 20);
  Measured("{} methods, peak RSS {} MiB", AllMethods().size(), server.PeakRss() >> 20);
}

TEST_CASE("A request that is far too large is refused, and does not stay in memory") {
  AttackedServer server({"--receive-bytes-max", "96MiB"});
  RawClient client(server.address());
  const absl::Status refused = client.Call("/sheaf.v1.WorkService/Sync", std::string(9 << 20, 'x'), {});
  CHECK(refused.code() == Code::kResourceExhausted);
  CHECK_THAT(std::string(refused.message()), Contains("request_bytes_max = 8388608"));
  // gRPC would gather all of it before it looks at the size; it stops when it has what it may have, and what has
  // arrived by then: on a busy machine some 300 MiB (docs/reference/limits.md).
  const absl::Status stopped = client.Call("/sheaf.v1.WorkService/Sync", std::string(512 << 20, 'x'), {});
  CHECK_FALSE(stopped.ok());
  CHECK(stopped.code() != Code::kDeadlineExceeded);
  const int64_t peak = server.PeakRss();
  server.CheckWell(384 << 20);
  Measured("{}; peak RSS {} MiB", stopped.ToString().substr(0, 100), peak >> 20);
}

TEST_CASE("A request of very many very small parts is refused before it is parsed") {
  AttackedServer server;
  RawClient client(server.address());
  // Two bytes each: an empty TaskResult of a Sync, which takes a hundred once it is parsed; elsewhere another message,
  // a text, or a field that nobody knows.
  std::string bytes;
  for (int i = 0; i < (4 << 20) - 8; ++i) bytes += std::string("\x42\x00", 2);
  for (const MethodDescriptor* method : AllMethods()) {
    INFO(method->full_name());
    const absl::Status status = client.Call(PathOf(*method), bytes, {});
    CHECK(status.code() == Code::kResourceExhausted);
    CHECK_THAT(std::string(status.message()), Contains("request_parts_max = 1048576"));
  }
  // What it takes to receive so many requests of this size (above, 96 MiB, too); one of them parsed takes 400 MiB.
  server.CheckWell(96 << 20);
}

// A safetensors file of `num_tensors` tensors of nothing, and one, "w", of `data`.
std::string FileOfTensors(int num_tensors, const std::string& data) {
  std::string header = fmt::format(R"({{"w":{{"dtype":"U8","shape":[{0},1],"data_offsets":[0,{0}]}})", data.size());
  for (int i = 0; i < num_tensors; ++i) {
    header += fmt::format(R"(,"{0}":{{"dtype":"U8","shape":[0],"data_offsets":[{1},{1}]}})", i, data.size());
  }
  header += "}";
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header + data;
}

v1::SelectRowsRequest LastRowOf(const std::string& digest, int64_t num_rows) {
  v1::SelectRowsRequest request;
  request.set_digest(digest);
  request.add_selections()->set_tensor("w");
  request.mutable_selections(0)->add_rows(num_rows - 1);
  return request;
}

TEST_CASE("A broadcast of very many tensors is refused when it is uploaded; one of as many as may be delays nobody") {
  AttackedServer server;
  Transport& transport = server.transport();
  Random& random = server.federation().random();
  const absl::Status refused = UploadBlob(transport, random, FileOfTensors(40'000, "data")).status();
  CHECK(refused.code() == Code::kResourceExhausted);
  CHECK_THAT(std::string(refused.message()), Contains("safetensors_tensors_max = 32768"));
  CHECK(BlockingCall(transport, kSelectRows, LastRowOf(Sha256Hex(FileOfTensors(40'000, "data")), 4)).status().code() ==
        Code::kNotFound);

  // Each parsed when it is uploaded, and when a row is first asked for; 0.1 took minutes for one.
  const double seconds_before = server.CpuSeconds();
  for (const char* data : {"one", "two", "three"}) {
    const absl::StatusOr<std::string> digest = UploadBlob(transport, random, FileOfTensors(32'767, data));
    INFO(digest.status().ToString());
    REQUIRE(digest.ok());
    for (int i = 0; i < 50; ++i) {
      REQUIRE(BlockingCall(transport, kSelectRows, LastRowOf(*digest, static_cast<int64_t>(std::strlen(data)))).ok());
    }
  }
  CHECK(server.CpuSeconds() - seconds_before < 5);
  server.CheckWell();
}

TEST_CASE("A broadcast whose file somebody cuts off is refused by name, and the server goes on") {
  AttackedServer server;
  const std::string data(4 << 20, 'd');
  const std::string file = FileOfTensors(1, data);
  const absl::StatusOr<std::string> digest = UploadBlob(server.transport(), server.federation().random(), file);
  REQUIRE(digest.ok());
  const auto num_rows = static_cast<int64_t>(data.size());
  REQUIRE(BlockingCall(server.transport(), kSelectRows, LastRowOf(*digest, num_rows)).ok());
  std::string path;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(server.federation().data_directory())) {
    if (entry.path().filename() == *digest) path = entry.path();
  }
  REQUIRE_FALSE(path.empty());
  v1::ReadBlobRequest end;
  end.set_digest(*digest);
  end.set_offset(static_cast<int64_t>(file.size()) - 10);
  for (const uint64_t left : {file.size() - 1, uint64_t{1} << 20, uint64_t{0}}) {
    std::filesystem::resize_file(path, left);
    for (const absl::Status& status :
         {BlockingCall(server.transport(), kReadBlob, end).status(),
          BlockingCall(server.transport(), kSelectRows, LastRowOf(*digest, num_rows)).status()}) {
      INFO(status.ToString());
      CHECK(status.code() == Code::kDataLoss);
      CHECK_THAT(std::string(status.message()), Contains(*digest) && Contains("cut it off"));
    }
  }
  server.CheckWell();
}

TEST_CASE("Shapes that nobody has memory for are refused when the round is created, and so are payloads times tasks") {
  AttackedServer server;
  const auto create = [&](const std::function<void(v1::RoundSpec&)>& spoil) {
    v1::CreateRoundRequest request;
    request.set_request_id(server.federation().random().Token(16));
    request.set_validate_only(true);
    *request.mutable_spec() = OneHotRound({.num_tasks = 2});
    spoil(*request.mutable_spec());
    return BlockingCall(server.federation().impatient_transport(), kCreateRound, request).status();
  };
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{int64_t{1} << 40},
                                                                             {int64_t{1} << 62},
                                                                             {INT64_MAX},
                                                                             {int64_t{1} << 32, int64_t{1} << 32},
                                                                             {INT64_MAX, INT64_MAX, INT64_MAX},
                                                                             {-1},
                                                                             std::vector<int64_t>(1000, 2)}) {
    for (const char* symbol : {"sum", "sparse_sum_to_dense", "slices_sum", "coordinate_mean"}) {
      const absl::Status status = create([&](v1::RoundSpec& spec) {
        v1::OutputSpec& output = *spec.mutable_aggregate()->mutable_outputs(0);
        output.set_operator_(symbol);
        output.clear_dense_shape();
        for (const int64_t size : shape) output.add_dense_shape(size);
      });
      INFO(symbol << " of " << shape.size() << " dimensions, the first " << shape[0] << ": " << status.ToString());
      // What is sparse takes no memory before somebody contributes.
      const bool is_sparse = symbol[0] == 'c' || std::string(symbol) == "slices_sum";
      const bool is_sane = shape.size() == 1 && shape[0] > 0;
      if (!(is_sparse && is_sane)) {
        CHECK((status.code() == Code::kResourceExhausted || status.code() == Code::kInvalidArgument));
      }
    }
  }
  const absl::Status repeated = create([](v1::RoundSpec& spec) {
    spec.mutable_open_slots()->set_count(100'000);
    spec.mutable_open_slots()->mutable_task()->set_payload(std::string(60'000, 'p'));
  });
  CHECK(repeated.code() == Code::kResourceExhausted);
  CHECK_THAT(std::string(repeated.message()), Contains("round_payload_bytes_max"));
  server.CheckWell(64 << 20);
}

// --- Workers that take, and keys that collide -----------------------------------------------------

TEST_CASE("A worker that asks for 100,000 leases under ever new poll_ids gets as many as it could name") {
  AttackedServer server;
  const std::string round =
      StartRound(server.federation(), OneHotRound({.num_tasks = 2000, .lease = absl::Seconds(3)}));
  for (int i = 0; i < 100'000 / 256; ++i) {
    const v1::SyncResponse response = SyncOnce(server.transport(), APoll("greedy", fmt::format("poll-{}", i), 256));
    REQUIRE(response.leases_size() <= 256);
  }
  CHECK(RoundOf(server.transport(), round).tasks().leased() == 256);
  // The others get theirs meanwhile.
  server.CheckWell();
  WaitUntil("the greedy worker's leases are over", absl::Seconds(10),
            [&] { return RoundOf(server.transport(), round).tasks().leased() == 0; });
}

v1::RoundSpec KeyedRound(v1::KeyType type) {
  v1::RoundSpec spec;
  spec.mutable_computation()->set_name("noop");
  v1::OutputSpec& output = *spec.mutable_aggregate()->add_outputs();
  output.set_name("x");
  output.set_operator_("keyed_sum");
  output.set_dtype(v1::INT64);
  output.set_key_type(type);
  spec.mutable_listed()->add_tasks();
  return spec;
}

// How long the server takes over one contribution of these keys.
absl::Duration TimeToFold(AttackedServer& server, const v1::RoundSpec& spec,
                          const std::function<void(int i, v1::KeyedTable&)>& add_key) {
  // So many travel inside a Sync.
  constexpr int kNumKeys = 40'000;
  const std::string round = StartRound(server.federation(), spec);
  const std::string worker = server.federation().random().Token(8);
  const v1::SyncResponse granted = SyncOnce(server.transport(), APoll(worker, "poll", 1));
  REQUIRE(granted.leases_size() == 1);
  v1::Contribution contribution;
  v1::OutputValue& output = *contribution.add_outputs();
  output.set_name("x");
  v1::KeyedTable& table = *output.mutable_keyed();
  for (int i = 0; i < kNumKeys; ++i) add_key(i, table);
  if (table.has_int_keys()) {
    table.mutable_int_keys()->set_dtype(v1::INT64);
    table.mutable_int_keys()->add_shape(kNumKeys);
  }
  table.mutable_values()->set_dtype(v1::INT64);
  table.mutable_values()->add_shape(kNumKeys);
  table.mutable_values()->set_data(std::string(8 * kNumKeys, '\0'));
  v1::SyncRequest results = APoll(worker, "results", 0);
  v1::TaskResult& result = *results.add_results();
  result.set_task(granted.leases(0).task());
  result.set_lease_token(granted.leases(0).lease_token());
  result.set_contribution(contribution.SerializeAsString());
  const SystemClock clock;
  const absl::Time start = clock.Now();
  REQUIRE(VerdictsOf(SyncOnce(server.transport(), results)) == std::vector<std::string>{"ACCEPTED"});
  Await(server.federation(), round);
  return clock.Now() - start;
}

void AddIntKey(int64_t key, v1::KeyedTable& table) {
  table.mutable_int_keys()->mutable_data()->append(reinterpret_cast<const char*>(&key), sizeof key);
}

TEST_CASE("Keys that were chosen to collide take no longer than others: tables are seeded where the program lies") {
  AttackedServer server;
  SeededRandom random(7);
  const absl::Duration usual = TimeToFold(server, KeyedRound(v1::INT64_KEYS),
                                          [&](int, auto& t) { AddIntKey(static_cast<int64_t>(random.Bits()), t); });
  for (const int shift : {8, 16, 24, 32, 44}) {
    const absl::Duration flooded = TimeToFold(server, KeyedRound(v1::INT64_KEYS),
                                              [&](int i, auto& t) { AddIntKey(static_cast<int64_t>(i) << shift, t); });
    INFO(absl::FormatDuration(usual) << " against " << absl::FormatDuration(flooded));
    CHECK(flooded < 10 * usual + absl::Seconds(1));
  }
  TimeToFold(server, KeyedRound(v1::STRING_KEYS), [&](int i, v1::KeyedTable& table) {
    // The same sum and the same xor of bytes, for hashes that are as simple as that.
    table.add_string_keys(fmt::format("{:06}{:06}", i, 999'999 - i));
  });
  // The seed is an address: it differs from start to start only in a program that may lie anywhere.
  std::ifstream program(BinaryPath("sheafd"), std::ios::binary);
  char header[18] = {};
  program.read(header, sizeof header);
  CHECK(header[16] == 3);  // ET_DYN
  server.CheckWell();
}

// --- Names that are paths -------------------------------------------------------------------------

void SetStrings(const std::string& trick, Message& message, const Known& known, Random& random,
                const FieldDescriptor* only) {
  Fill(known, random, message);
  message.GetReflection()->SetString(&message, only, trick);
}

std::set<std::string> FilesBelow(const std::string& directory, const std::string& without) {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.path().string().rfind(without, 0) != 0) files.insert(entry.path().string());
  }
  return files;
}

TEST_CASE("A path in a name, a digest or an id reaches no file") {
  AttackedServer server;
  Federation& federation = server.federation();
  const std::string secret_file = federation.directory() + "/secret";
  std::ofstream(secret_file) << "the content of a file that is nobody's business";
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = 4}));
  const v1::SyncResponse granted = SyncOnce(server.transport(), APoll("victim", "poll", 1));
  const Known known = {{"round", round},
                       {"task", granted.leases(0).task()},
                       {"lease_token", granted.leases(0).lease_token()},
                       {"population", "default"},
                       {"worker", "attacker"},
                       {"digest", Sha256Hex("anything")},
                       {"operator", "sum"}};
  const std::vector<std::string> tricks = {"../../secret",
                                           "../../../../../../../../etc/passwd",
                                           "/etc/passwd",
                                           secret_file,
                                           "..",
                                           ".",
                                           std::string("a\0../../secret", 14),
                                           "..%2f..%2fsecret",
                                           "%s%n%x{}{0}",
                                           "'; DROP TABLE rounds; --",
                                           "b-" + std::string(64, '.') + "-" + std::string(32, '/'),
                                           std::string(64, '/'),
                                           std::string(100'000, 'n'),
                                           "\xf0\x9f\x92\xa5"};
  const std::set<std::string> before = FilesBelow(federation.directory(), federation.data_directory());
  SeededRandom random(5);
  RawClient client(federation.address());
  int num_calls = 0;
  for (const MethodDescriptor* method : AllMethods()) {
    if (method->name() == "CreateToken") continue;
    const Message& prototype =
        *google::protobuf::MessageFactory::generated_factory()->GetPrototype(method->input_type());
    for (int i = 0; i < method->input_type()->field_count(); ++i) {
      const FieldDescriptor* field = method->input_type()->field(i);
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_STRING || field->is_repeated()) continue;
      for (const std::string& trick : tricks) {
        std::unique_ptr<Message> request(prototype.New());
        SetStrings(trick, *request, known, random, field);
        const absl::Status status =
            client.Call(PathOf(*method), request->SerializeAsString(), {.timeout = absl::Milliseconds(250)});
        INFO(method->full_name() << " with " << field->name() << " = " << trick.substr(0, 60) << ": "
                                 << status.ToString());
        CHECK(status.code() != Code::kInternal);
        CHECK(status.code() != Code::kUnknown);
        ++num_calls;
      }
    }
  }
  // Inside of larger requests.
  for (const std::string& trick : tricks) {
    v1::CreateRoundRequest create;
    create.set_request_id(federation.random().Token(16));
    *create.mutable_spec() = OneHotRound({.num_tasks = 1});
    create.mutable_spec()->set_broadcast_digest(trick);
    CHECK_FALSE(client.Call("/sheaf.v1.RoundService/CreateRound", create.SerializeAsString(), {}).ok());
    create.mutable_spec()->clear_broadcast_digest();
    create.mutable_spec()->set_population(trick);
    const bool is_a_name = trick == "." || trick == "..";
    CHECK(client.Call("/sheaf.v1.RoundService/CreateRound", create.SerializeAsString(), {}).ok() == is_a_name);
    v1::SyncRequest sync = APoll("attacker", "poll", 0);
    v1::TaskResult& result = *sync.add_results();
    result.set_task(granted.leases(0).task());
    result.set_lease_token(granted.leases(0).lease_token());
    result.set_upload_id(trick);
    client.Call("/sheaf.v1.WorkService/Sync", sync.SerializeAsString(), {}).IgnoreError();
  }
  CHECK(FilesBelow(federation.directory(), federation.data_directory()) == before);
  CHECK(std::filesystem::file_size(secret_file) == 47);
  server.CheckWell();
  Measured("{} names", num_calls + 3 * tricks.size());
}

TEST_CASE("A worker's last words are cut between characters: whoever asks for the task can read the answer") {
  AttackedServer server;
  const std::string round = StartRound(server.federation(), OneHotRound({.num_tasks = 1}));
  const v1::SyncResponse granted = SyncOnce(server.transport(), APoll("babbler", "poll", 1));
  v1::SyncRequest failed = APoll("babbler", "poll-2", 0);
  v1::TaskResult& result = *failed.add_results();
  result.set_task(granted.leases(0).task());
  result.set_lease_token(granted.leases(0).lease_token());
  std::string words = "x";
  while (words.size() < 3000) words += "\xe2\x82\xac";
  result.mutable_failure()->set_message(words);
  SyncOnce(server.transport(), failed);
  const v1::Task task = TaskOf(server.transport(), granted.leases(0).task());
  CHECK(task.last_error().size() > 1000);
  CHECK(words.rfind(task.last_error(), 0) == 0);
  // The same of an output's name.
  const v1::SyncResponse again = [&] {
    v1::SyncResponse response;
    WaitUntil("the task is there again", absl::Seconds(10), [&] {
      response = SyncOnce(server.transport(), APoll("babbler", server.federation().random().Token(8), 1));
      return response.leases_size() == 1;
    });
    return response;
  }();
  v1::Contribution contribution;
  contribution.add_outputs()->set_name(words);
  v1::SyncRequest named = APoll("babbler", "poll-4", 0);
  v1::TaskResult& misnamed = *named.add_results();
  misnamed.set_task(again.leases(0).task());
  misnamed.set_lease_token(again.leases(0).lease_token());
  misnamed.set_contribution(contribution.SerializeAsString());
  CHECK(VerdictsOf(SyncOnce(server.transport(), named)) == std::vector<std::string>{"REJECTED"});
  CHECK(TaskOf(server.transport(), again.leases(0).task()).attempts_size() == 2);
}

// --- Connections ----------------------------------------------------------------------------------

TEST_CASE("Connections that say nothing, or a byte at a time, stop nobody else, and are hung up on") {
  AttackedServer server({"--handshake-timeout", "2s"});
  constexpr int kEach = 150;
  std::vector<RawConnection> silent, slow, halfway;
  for (int i = 0; i < kEach; ++i) {
    silent.emplace_back(server.address());
    slow.emplace_back(server.address());
    halfway.emplace_back(server.address());
  }
  const SystemClock clock;
  const absl::Time start = clock.Now();
  std::vector<double> millis;
  size_t next_byte = 0;
  const auto num_over = [](std::vector<RawConnection>& sockets) {
    return std::count_if(sockets.begin(), sockets.end(), [](RawConnection& socket) { return socket.IsOver(); });
  };
  bool is_halfway = false;
  WaitUntil("those who do not get through the handshake are hung up on", absl::Seconds(30), [&] {
    if (!is_halfway) {
      for (RawConnection& socket : halfway) {
        socket.Send(kHttp2Preface);
        socket.Send(kEmptySettings);
        socket.Send(kHalfHeaders);
      }
      is_halfway = true;
    }
    if (next_byte < kHttp2Preface.size() && clock.Now() - start > next_byte * absl::Milliseconds(500)) {
      for (RawConnection& socket : slow) socket.Send(kHttp2Preface.substr(next_byte, 1));
      ++next_byte;
    }
    const absl::Time before = clock.Now();
    REQUIRE(BlockingCall(server.federation().impatient_transport(), kGetServerInfo, {}).ok());
    millis.push_back(absl::ToDoubleMilliseconds(clock.Now() - before));
    return num_over(silent) == kEach && num_over(slow) == kEach;
  });
  const absl::Duration took = clock.Now() - start;
  CHECK(took > absl::Seconds(1));
  std::sort(millis.begin(), millis.end());
  CHECK(millis[millis.size() * 99 / 100] < 500);
  server.CheckWell();
  Measured(
      "{} connections; others answered within {:.1f} ms (p99) meanwhile; hung up on after {}; of those that got half "
      "through a request {} are left, peak RSS {} MiB",
      3 * kEach, millis[millis.size() * 99 / 100], absl::FormatDuration(took), kEach - num_over(halfway),
      server.PeakRss() >> 20);
}

// Whose they are is asked when they are made.
TEST_CASE("Calls that are begun and never made stop nobody else, and are forgotten with their connection") {
  AttackedServer server;
  constexpr int kAttacks = 8;
  constexpr int kConnections = 8;
  constexpr uint32_t kCalls = 1000;
  // Of one such call, at the most.
  constexpr int64_t kCallBytes = 64 << 10;
  for (int attack = 0; attack < kAttacks; ++attack) {
    std::vector<RawConnection> attackers;
    for (int i = 0; i < kConnections; ++i) {
      RawConnection& attacker = attackers.emplace_back(server.address());
      attacker.Send(kHttp2Preface);
      attacker.Send(kEmptySettings);
      for (uint32_t call = 0; call < kCalls; ++call) {
        attacker.Send(HeadersFrame("/sheaf.v1.WorkService/Sync", 2 * call + 1));
      }
      REQUIRE(BlockingCall(server.transport(), kGetServerInfo, {}).ok());
    }
    server.CheckWell(kConnections * kCalls * kCallBytes);
    for (RawConnection& attacker : attackers) CHECK_FALSE(attacker.IsOver());
  }
  Measured("{} times {} connections with {} calls each: peak RSS {} MiB", kAttacks, kConnections, kCalls,
           server.PeakRss() >> 20);
}

// --- Clients that do not read ---------------------------------------------------------------------

// The 99th percentile of a worker's calls elsewhere, in milliseconds.
double BystanderP99(AttackedServer& server, int num_calls = 300) {
  GrpcTransport transport(server.address(), {.own_connection = true});
  const SystemClock clock;
  std::vector<double> millis;
  for (int i = 0; i < num_calls; ++i) {
    v1::SyncRequest request = APoll("bystander", fmt::format("poll-{}", i), 1);
    request.set_population("elsewhere");
    const absl::Time start = clock.Now();
    const absl::Status status = BlockingCall(transport, kSync, request).status();
    millis.push_back(absl::ToDoubleMilliseconds(clock.Now() - start));
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
  std::sort(millis.begin(), millis.end());
  return millis[millis.size() * 99 / 100];
}

constexpr double kBystanderMillisMax = 100;

TEST_CASE("Reads that nobody takes fill no more than their room, keep no worker waiting, and are cut off for others") {
  AttackedServer server({"--answer-time-max", "6s"});
  SeededRandom random(3);
  const std::string bytes = RandomBytes(random, 4 << 20);
  const absl::StatusOr<std::string> digest = UploadBlob(server.transport(), server.federation().random(), bytes);
  REQUIRE(digest.ok());
  v1::RoundSpec spec = OneHotRound({.num_tasks = 1});
  spec.set_broadcast_digest(*digest);
  StartRound(server.federation(), spec);
  v1::ReadBlobRequest read;
  read.set_digest(*digest);
  // One connection has as many calls as it may, of 66 bytes each; and two more.
  std::vector<std::unique_ptr<UnreadCalls>> attackers;
  for (const int num_calls : {1000, 250, 250}) {
    UnreadCalls& attacker = *attackers.emplace_back(std::make_unique<UnreadCalls>(server.address()));
    for (int i = 0; i < num_calls; ++i) attacker.Call(kReadBlob.name, read.SerializeAsString());
  }
  const double p99 = BystanderP99(server);
  CHECK(p99 < kBystanderMillisMax);
  // Half of open_answer_bytes_max is for reads.
  server.CheckWell(320 << 20);
  const int64_t peak = server.PeakRss();
  // Whoever reads what it asks for gets it, for all that.
  const SystemClock clock;
  const absl::Time start = clock.Now();
  const absl::StatusOr<std::string> honest = ReadBlob(server.transport(), *digest);
  REQUIRE(honest.ok());
  CHECK(*honest == bytes);
  const absl::Duration took = clock.Now() - start;
  CHECK(took < absl::Seconds(8));
  // What nobody takes is cut off: at least as many as a connection has room for.
  for (const auto& attacker : attackers) {
    WaitUntil("its answers are cut off", absl::Seconds(20), [&] { return attacker->NumReset() >= 70; });
  }
  server.CheckWell(320 << 20);
  Measured("1,500 reads that nobody takes: peak RSS {} MiB; others' Sync p99 {:.1f} ms, a reader has its file after {}",
           peak >> 20, p99, absl::FormatDuration(took));
}

TEST_CASE("Leases that nobody takes fill no more than their room, and keep no worker elsewhere waiting") {
  AttackedServer server;
  v1::RoundSpec spec = OneHotRound({.num_tasks = 1});
  spec.mutable_computation()->set_config(std::string(60'000, 'c'));
  v1::TaskSpec task = spec.listed().tasks(0);
  spec.mutable_open_slots()->set_count(25'600);
  *spec.mutable_open_slots()->mutable_task() = task;
  StartRound(server.federation(), spec);
  std::vector<std::unique_ptr<UnreadCalls>> attackers;
  for (int i = 0; i < 100; ++i) {
    if (i % 50 == 0) attackers.push_back(std::make_unique<UnreadCalls>(server.address()));
    attackers.back()->Call(kSync.name, APoll(fmt::format("silent-{}", i), "poll", 256).SerializeAsString());
  }
  const double p99 = BystanderP99(server);
  CHECK(p99 < kBystanderMillisMax);
  server.CheckWell(256 << 20);
  // A client with gRPC's usual limit takes every answer.
  std::set<std::string> tasks;
  for (v1::SyncRequest request = APoll("honest", "poll", 256); tasks.size() < 100;) {
    const v1::SyncResponse response = SyncOnce(server.transport(), request);
    CHECK(response.ByteSizeLong() < (4 << 20));
    REQUIRE(response.leases_size() > 0);
    for (const v1::Lease& lease : response.leases()) {
      CHECK(tasks.insert(lease.task()).second);
      AddHeld(lease, 1, request);
    }
    request.set_want(256 - request.held_size());
  }
  Measured("100 Syncs for 256 leases of 60 kB that nobody takes: peak RSS {} MiB; others' Sync p99 {:.1f} ms",
           server.PeakRss() >> 20, p99);
}

TEST_CASE("Streams that strangers open and leave take no threads and little memory, and keep no worker waiting") {
  AttackedServer server;
  constexpr int kStreams = 3000;
  std::vector<std::unique_ptr<UnreadCalls>> attackers;
  for (int i = 0; i < 2 * kStreams; ++i) {
    if (i % 1000 == 0) attackers.push_back(std::make_unique<UnreadCalls>(server.address()));
    if (i < kStreams) {
      attackers.back()->Begin("grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
    } else {
      attackers.back()->Call("grpc.health.v1.Health/Watch", "");
    }
  }
  const double p99 = BystanderP99(server);
  CHECK(p99 < kBystanderMillisMax);
  const int64_t num_threads = StatusBytes(server.pid(), "Threads") / 1024;
  CHECK(num_threads < 64);
  server.CheckWell(128 << 20);
  Measured(
      "{} streams of reflection and as many health watches: {} threads, peak RSS {} MiB; others' Sync p99 {:.1f} ms",
      kStreams, num_threads, server.PeakRss() >> 20, p99);
}

TEST_CASE("A server that has run out of files takes connections again when there are some") {
  FederationOptions options;
  options.server_wrapper = {"/bin/sh", "-c", "ulimit -n 60; exec \"$@\"", "sh"};
  Federation federation(options);
  REQUIRE(BlockingCall(federation.transport(), kGetServerInfo, {}).ok());
  {
    std::vector<RawConnection> sockets;
    for (int i = 0; i < 120; ++i) sockets.emplace_back(federation.address());
    WaitUntil("a call on the old connection", absl::Seconds(5),
              [&] { return BlockingCall(federation.impatient_transport(), kGetServerInfo, {}).ok(); });
  }
  WaitUntil("a new connection is taken", absl::Seconds(20), [&] {
    GrpcTransport other(federation.address(), {.own_connection = true});
    return BlockingCall(other, kGetServerInfo, {}, {.timeout = absl::Seconds(1)}).ok();
  });
}

// Where every call of a virtual function is checked, the check takes two files, and finds them missing.
#ifndef __SANITIZE_ADDRESS__
TEST_CASE(
    "A server that has no file left for an upload or a spool says when to come back, and goes on when there are") {
  FederationOptions options;
  options.server_wrapper = {"/bin/sh", "-c", "ulimit -n 60; exec \"$@\"", "sh"};
  Federation federation(options);
  Transport& wire = federation.impatient_transport();
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = 3}));
  const v1::SyncResponse granted = SyncOnce(wire, APoll("hand", "poll", 3));
  REQUIRE(granted.leases_size() == 3);
  // Each upload takes a file.
  std::map<std::string, std::string> uploads;
  absl::Status refused;
  while (refused.ok()) {
    REQUIRE(uploads.size() < 100);
    const std::string bytes = fmt::format("upload {}", uploads.size());
    v1::StartUploadRequest start;
    start.set_request_id(federation.random().Token(16));
    start.set_size_bytes(static_cast<int64_t>(bytes.size()));
    start.set_digest(Sha256Hex(bytes));
    const absl::StatusOr<v1::StartUploadResponse> started = BlockingCall(wire, kStartUpload, start);
    refused = started.status();
    if (refused.ok()) uploads[started->upload_id()] = bytes;
  }
  v1::SyncRequest results = APoll("hand", "results", 0);
  for (const v1::Lease& lease : granted.leases()) AddResult(lease, results);
  const absl::Status spooled = BlockingCall(wire, kSync, results).status();
  for (const absl::Status& status : {refused, spooled}) {
    INFO(status.ToString());
    CHECK(status.code() == Code::kResourceExhausted);
    CHECK_THAT(std::string(status.message()), Contains("open files"));
    CHECK(RetryAfter(status).has_value());
  }
  // It looks and answers as before, and ends uploads; each that ends leaves a file.
  REQUIRE(federation.server().IsRunning());
  CHECK(RoundOf(wire, round).num_contributions() == 0);
  for (const auto& [id, bytes] : uploads) {
    v1::WriteChunkRequest chunk;
    chunk.set_upload_id(id);
    chunk.set_data(bytes);
    REQUIRE(BlockingCall(wire, kWriteChunk, chunk).ok());
    v1::FinishUploadRequest finish;
    finish.set_upload_id(id);
    const absl::Status finished = BlockingCall(federation.transport(), kFinishUpload, finish).status();
    INFO(finished.ToString());
    CHECK(finished.ok());
  }
  CHECK(VerdictsOf(SyncOnce(federation.transport(), results)) == std::vector<std::string>(3, "ACCEPTED"));
  Await(federation, round);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(3, 1));
  Measured("after {} uploads: {}; Sync: {}", uploads.size(), std::string(refused.message()),
           std::string(spooled.message()));
}
#endif

}  // namespace
}  // namespace sheaf
