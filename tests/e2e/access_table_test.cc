// Who is let in: every method of every service, as everybody who should not be, and as those who should, by gRPC and by
// HTTP/1.1, in the clear, over TLS and over mutual TLS, against the real server. The methods come from the descriptors:
// a new one without a row here fails the test.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/checksum.h"
#include "proto/methods.h"
#include "sdk/cpp/client/token_file.h"
#include "tests/e2e/certificates.h"
#include "tests/e2e/processes.h"
#include "tests/e2e/rounds.h"
#include "tests/e2e/service_methods.h"

namespace sheaf {
namespace {

using google::protobuf::Message;
using google::protobuf::MethodDescriptor;
using Code = absl::StatusCode;

constexpr char kOther[] = "elsewhere";

std::string PathOf(const MethodDescriptor& method) { return method.service()->full_name() + "/" + method.name(); }

// A way to the server: in the clear or not, with a token or not.
struct Way {
  std::string name;
  std::vector<std::string> server_arguments;
  ChannelSecurity security;
  ServerAddress::Protocol protocol = ServerAddress::Protocol::kGrpc;
};

template <typename Request>
std::unique_ptr<Message> Filled(const std::function<void(Request&)>& fill) {
  auto request = std::make_unique<Request>();
  fill(*request);
  return request;
}

// A server with tokens of all kinds, and a round, a lease, an upload and a broadcast in each of two populations.
class GuardedServer {
 public:
  // Of one population.
  struct World {
    std::string round;
    std::string task;
    std::string lease_token;
    std::string upload;
    std::string digest;
  };

  explicit GuardedServer(const Way& way) : way_(way), federation_(Options(way, directory_.path())) {
    admin_ = Secret({"admin", "--role", "operator"}, "");
    for (const std::string role : {"submitter", "worker", "operator", "viewer", "relay"}) {
      tokens_[role] = Secret({role, "--role", role, "--for", "default"}, admin_);
      tokens_["other " + role] = Secret({"other-" + role, "--role", role, "--for", kOther}, admin_);
    }
    tokens_["thief"] = Secret({"thief", "--role", "worker", "--for", "default"}, admin_);
    for (const std::string role : {"submitter", "worker", "operator", "viewer", "relay"}) {
      tokens_["expired " + role] = Secret({"late", "--role", role, "--expires", "1s"}, admin_);
      tokens_["revoked " + role] = Secret({"gone-" + role, "--role", role}, admin_);
    }
    RevokeThoseGone();
    worlds_["default"] = Build("default", "submitter", "worker");
    worlds_[kOther] = Build(kOther, "other submitter", "other worker");
    const std::string expired = tokens_["expired relay"];
    WaitUntil("the token expires", absl::Seconds(10), [&] {
      return Call(expired, "sheaf.v1.InspectionService/GetServerInfo", v1::GetServerInfoRequest()).code() ==
             Code::kUnauthenticated;
    });
  }

  Federation& federation() { return federation_; }
  const std::string& directory() const { return directory_.path(); }
  const std::string& token(const std::string& who) const { return tokens_.at(who); }
  const std::string& admin() const { return admin_; }
  const World& world(const std::string& population) const { return worlds_.at(population); }
  // Of every token that was ever made.
  std::vector<std::string> Secrets() {
    std::vector<std::string> secrets;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      if (entry.path().extension() != ".token") continue;
      std::ifstream file(entry.path());
      file >> secrets.emplace_back();
    }
    return secrets;
  }

  // As whoever has the secret in `token_file`; none if that is empty.
  Transport& As(const std::string& token_file) {
    std::unique_ptr<ServerTransport>& transport = transports_[token_file];
    if (transport == nullptr) {
      ChannelSecurity security = way_.security;
      security.token_file = token_file;
      transport = OpenTransport(federation_.address(), {.security = security});
    }
    return *transport;
  }
  absl::Status Call(const std::string& token_file, const std::string& method, const Message& request,
                    Message* response = nullptr) {
    std::unique_ptr<Message> ignored;
    if (response == nullptr) {
      const auto* found = google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(
          method.substr(0, method.find('/')) + "." + method.substr(method.find('/') + 1));
      REQUIRE(found != nullptr);
      ignored.reset(google::protobuf::MessageFactory::generated_factory()->GetPrototype(found->output_type())->New());
      response = ignored.get();
    }
    return BlockingCallMethod(As(token_file), method, request, response, {});
  }
  template <typename M>
  typename M::Response Must(const std::string& who, const M& method, const typename M::Request& request) {
    const auto response = BlockingCall(As(tokens_.at(who)), method, request);
    INFO(method.name << ": " << response.status().ToString());
    REQUIRE(response.ok());
    return *response;
  }

 private:
  static FederationOptions Options(const Way& way, const std::string&) {
    return {.server_arguments = way.server_arguments, .security = way.security, .protocol = way.protocol};
  }

  std::string Secret(std::vector<std::string> words, const std::string& as) {
    std::string file = directory_.path() + "/" + std::to_string(++num_secrets_) + ".token";
    words.insert(words.begin(), {"token", "create"});
    words.insert(words.end(), {"--to", file});
    if (!as.empty()) words.insert(words.end(), {"--token-file", as});
    const CommandRun run = federation_.Sheaf(words);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    return file;
  }

  void RevokeThoseGone() {
    v1::ListTokensResponse listed;
    REQUIRE(Call(admin_, kListTokens.name, v1::ListTokensRequest(), &listed).ok());
    for (const v1::Token& token : listed.tokens()) {
      if (token.name().rfind("gone-", 0) != 0) continue;
      v1::RevokeTokenRequest revoke;
      revoke.set_request_id("revoke-" + token.id());
      revoke.set_token(token.id());
      REQUIRE(Call(admin_, kRevokeToken.name, revoke).ok());
    }
  }

  v1::StartUploadRequest UploadOf(const std::string& bytes) {
    v1::StartUploadRequest start;
    start.set_request_id(bytes.substr(0, 60));
    start.set_size_bytes(static_cast<int64_t>(bytes.size()));
    start.set_digest(Sha256Hex(bytes));
    return start;
  }

  World Build(const std::string& population, const std::string& submitter, const std::string& worker) {
    World world;
    const std::string bytes = "the broadcast of " + population;
    world.digest = Sha256Hex(bytes);
    const std::string broadcast = Must(submitter, kStartUpload, UploadOf(bytes)).upload_id();
    v1::WriteChunkRequest chunk;
    chunk.set_upload_id(broadcast);
    chunk.set_data(bytes);
    Must(submitter, kWriteChunk, chunk);
    v1::FinishUploadRequest finish;
    finish.set_upload_id(broadcast);
    Must(submitter, kFinishUpload, finish);

    v1::CreateRoundRequest create;
    create.set_request_id("round of " + population);
    *create.mutable_spec() = OneHotRound({.num_tasks = 40});
    create.mutable_spec()->set_population(population);
    create.mutable_spec()->set_broadcast_digest(world.digest);
    world.round = Must(submitter, kCreateRound, create).round().id();

    v1::SyncRequest poll = APoll("holder", "poll-1", 1);
    poll.set_population(population);
    const v1::SyncResponse granted = Must(worker, kSync, poll);
    REQUIRE(granted.leases_size() == 1);
    world.task = granted.leases(0).task();
    world.lease_token = granted.leases(0).lease_token();
    v1::StartUploadRequest start = UploadOf("a contribution to " + population);
    start.mutable_contribution()->set_task(world.task);
    start.mutable_contribution()->set_lease_token(world.lease_token);
    world.upload = Must(worker, kStartUpload, start).upload_id();
    return world;
  }

  const TemporaryDirectory directory_ = ScratchDirectory();
  const Way way_;
  Federation federation_;
  int num_secrets_ = 0;
  std::string admin_;
  std::map<std::string, std::string> tokens_;
  std::map<std::string, World> worlds_;
  std::map<std::string, std::unique_ptr<ServerTransport>> transports_;
};

TEST_CASE("What --print-config shows of a key is where it lies") {
  const TemporaryDirectory directory = ScratchDirectory();
  const Certificates certificates(directory.path());
  const CertificateFiles server = certificates.Issue("server", "IP:127.0.0.1");
  std::ifstream file(server.key);
  std::string key(std::istreambuf_iterator<char>(file), {});
  key = key.substr(key.find('\n') + 1, 32);
  REQUIRE(key.size() == 32);
  const CommandRun run =
      RunCommand({BinaryPath("sheafd"), "--print-config", "--tls-cert", server.certificate, "--tls-key", server.key});
  CHECK(run.exit_code == 0);
  CHECK(run.out.find(server.key) != std::string::npos);
  CHECK(run.out.find(key) == std::string::npos);
}

// One method: a well-formed request about things of `world`, in `population`, and who may make it.
struct MethodRow {
  std::function<std::unique_ptr<Message>(const GuardedServer::World& world, const std::string& population)> request;
  // Those who may; the first of them is let in below.
  std::vector<std::string> roles;
  // What the right caller of another population hears of it. kOk: nothing of it belongs to a population.
  Code foreign = Code::kPermissionDenied;
  // What the right caller hears if not OK: the call gets past the guard.
  Code right = Code::kOk;
};

using World = GuardedServer::World;

template <typename Request>
std::function<std::unique_ptr<Message>(const World&, const std::string&)> Asking(
    std::function<void(Request&, const World&, const std::string&)> fill) {
  return [fill](const World& world, const std::string& population) -> std::unique_ptr<Message> {
    auto request = std::make_unique<Request>();
    fill(*request, world, population);
    return request;
  };
}

std::map<std::string, MethodRow> Table() {
  const std::vector<std::string> looking = {"viewer", "operator", "submitter"};
  std::map<std::string, MethodRow> rows;
  rows["sheaf.v1.WorkService/Sync"] = {
      Asking<v1::SyncRequest>([](auto& r, const World&, const std::string& population) {
        r = APoll("caller", "poll", 0);
        r.set_population(population);
      }),
      {"worker"}};
  rows["sheaf.v1.BlobService/StartUpload"] = {
      Asking<v1::StartUploadRequest>([](auto& r, const World&, const std::string&) {
        r.set_request_id("any");
        r.set_size_bytes(3);
        r.set_digest(Sha256Hex("any"));
      }),
      {"submitter", "relay"},
      Code::kOk};
  rows["sheaf.v1.BlobService/WriteChunk"] = {
      Asking<v1::WriteChunkRequest>([](auto& r, const World& w, const std::string&) {
        r.set_upload_id(w.upload);
        r.set_data("a");
      }),
      {"worker"}};
  rows["sheaf.v1.BlobService/QueryUpload"] = {
      Asking<v1::QueryUploadRequest>([](auto& r, const World& w, const std::string&) { r.set_upload_id(w.upload); }),
      {"worker"}};
  rows["sheaf.v1.BlobService/FinishUpload"] = {
      Asking<v1::FinishUploadRequest>([](auto& r, const World& w, const std::string&) { r.set_upload_id(w.upload); }),
      {"worker"},
      Code::kPermissionDenied,
      Code::kFailedPrecondition};
  rows["sheaf.v1.BlobService/ReadBlob"] = {
      Asking<v1::ReadBlobRequest>([](auto& r, const World& w, const std::string&) { r.set_digest(w.digest); }),
      {"worker"}};
  rows["sheaf.v1.BlobService/SelectRows"] = {
      Asking<v1::SelectRowsRequest>([](auto& r, const World& w, const std::string&) { r.set_digest(w.digest); }),
      {"worker"},
      Code::kPermissionDenied,
      Code::kFailedPrecondition};
  rows["sheaf.v1.RoundService/CreateRound"] = {
      Asking<v1::CreateRoundRequest>([](auto& r, const World&, const std::string& population) {
        r.set_request_id("one more");
        *r.mutable_spec() = OneHotRound({.num_tasks = 1});
        r.mutable_spec()->set_population(population);
        r.set_validate_only(true);
      }),
      {"submitter"}};
  rows["sheaf.v1.RoundService/GetRound"] = {
      Asking<v1::GetRoundRequest>([](auto& r, const World& w, const std::string&) { r.set_round(w.round); }), looking};
  rows["sheaf.v1.RoundService/ListRounds"] = {
      Asking<v1::ListRoundsRequest>([](auto& r, const World&, const std::string& p) { r.set_population(p); }), looking};
  rows["sheaf.v1.RoundService/OpenRound"] = {
      Asking<v1::OpenRoundRequest>([](auto& r, const World& w, const std::string&) {
        // Refused by the handler, past the guard: the round was never announced.
        r.set_round(w.round);
        r.set_request_id("open");
      }),
      {"submitter"},
      Code::kPermissionDenied,
      Code::kFailedPrecondition};
  rows["sheaf.v1.RoundService/CancelRound"] = {
      Asking<v1::CancelRoundRequest>([](auto& r, const World& w, const std::string&) {
        // Refused by the handler, past the guard: the round is still needed.
        r.set_round(w.round);
      }),
      {"submitter", "operator"},
      Code::kPermissionDenied,
      Code::kInvalidArgument};
  rows["sheaf.v1.RoundService/ReadAggregate"] = {
      Asking<v1::ReadAggregateRequest>([](auto& r, const World& w, const std::string&) { r.set_round(w.round); }),
      {"submitter"},
      Code::kPermissionDenied,
      Code::kFailedPrecondition};
  rows["sheaf.v1.InspectionService/ListTasks"] = {
      Asking<v1::ListTasksRequest>([](auto& r, const World&, const std::string& p) { r.set_population(p); }), looking};
  rows["sheaf.v1.InspectionService/GetTask"] = {
      Asking<v1::GetTaskRequest>([](auto& r, const World& w, const std::string&) { r.set_task(w.task); }), looking};
  rows["sheaf.v1.InspectionService/RequeueTask"] = {
      Asking<v1::RequeueTaskRequest>([](auto& r, const World& w, const std::string&) {
        r.set_task(w.round + "/39");
        r.set_request_id("requeue");
      }),
      {"operator"}};
  rows["sheaf.v1.InspectionService/DescribeQueue"] = {
      Asking<v1::DescribeQueueRequest>([](auto& r, const World&, const std::string& p) { r.set_population(p); }),
      looking};
  rows["sheaf.v1.InspectionService/ListWorkers"] = {
      Asking<v1::ListWorkersRequest>([](auto& r, const World&, const std::string& p) { r.set_population(p); }),
      {"viewer", "operator", "submitter", "relay"}};
  rows["sheaf.v1.InspectionService/DrainWorker"] = {
      Asking<v1::DrainWorkerRequest>([](auto& r, const World&, const std::string& p) {
        r.set_request_id("drain");
        r.set_worker("holder");
        r.set_population(p);
        r.set_undo(true);
      }),
      {"operator"}};
  rows["sheaf.v1.InspectionService/ExplainRound"] = {
      Asking<v1::ExplainRoundRequest>([](auto& r, const World& w, const std::string&) { r.set_round(w.round); }),
      looking};
  rows["sheaf.v1.InspectionService/GetServerInfo"] = {
      Asking<v1::GetServerInfoRequest>([](auto&, const World&, const std::string&) {}),
      {"viewer", "operator", "submitter", "worker", "relay"},
      Code::kOk};
  rows["sheaf.v1.InspectionService/ListServers"] = {
      Asking<v1::ListServersRequest>([](auto&, const World&, const std::string&) {}), looking, Code::kOk};
  // A server has rounds of all populations, and these operators reach one.
  rows["sheaf.v1.InspectionService/DrainServer"] = {
      Asking<v1::DrainServerRequest>([](auto& r, const World&, const std::string&) {
        r.set_request_id("drain server");
        r.set_server("server-1");
      }),
      {"operator"},
      Code::kPermissionDenied,
      Code::kPermissionDenied};
  rows["sheaf.v1.AccessService/CreateToken"] = {
      Asking<v1::CreateTokenRequest>([](auto& r, const World&, const std::string& p) {
        r.set_request_id("token of " + p);
        r.set_name("made");
        r.add_roles(v1::VIEWER);
        r.add_populations(p);
      }),
      {"operator"}};
  // Tokens of other populations are left out.
  rows["sheaf.v1.AccessService/ListTokens"] = {
      Asking<v1::ListTokensRequest>([](auto&, const World&, const std::string&) {}), {"operator"}, Code::kOk};
  rows["sheaf.v1.AccessService/RevokeToken"] = {
      Asking<v1::RevokeTokenRequest>([](auto& r, const World&, const std::string&) {
        r.set_request_id("revoke");
        r.set_token("t-nosuch");
      }),
      {"operator"},
      Code::kNotFound,
      Code::kNotFound};
  return rows;
}

struct Counts {
  int methods = 0;
  int refusals = 0;
  int admissions = 0;
};

Counts Walk(GuardedServer& server) {
  const std::map<std::string, MethodRow> table = Table();
  const World& mine = server.world("default");
  const World& theirs = server.world(kOther);
  Counts counts;
  const auto expect = [&](const std::string& case_name, const std::string& method, const std::string& token,
                          const Message& request, Code code) {
    const absl::Status status = server.Call(token, method, request);
    INFO(method << " as " << case_name << ": " << status.ToString());
    CHECK(status.code() == code);
    if (!token.empty()) {
      const absl::StatusOr<std::string> secret = ReadTokenFile(token);
      REQUIRE(secret.ok());
      CHECK(status.ToString().find(*secret) == std::string::npos);
    }
    ++(code == Code::kUnauthenticated || code == Code::kPermissionDenied ? counts.refusals : counts.admissions);
  };
  const std::string forged = server.directory() + "/forged";
  std::ofstream(forged) << "sheaf_" << std::string(32, 'a') << "\n";
  std::filesystem::permissions(forged, std::filesystem::perms(0600));
  for (const MethodDescriptor* descriptor : AllMethods()) {
    const std::string method = PathOf(*descriptor);
    INFO(method);
    REQUIRE(table.contains(method));
    const MethodRow& row = table.at(method);
    ++counts.methods;
    const std::unique_ptr<Message> request = row.request(mine, "default");
    expect("anonymous", method, "", *request, Code::kUnauthenticated);
    expect("forged", method, forged, *request, Code::kUnauthenticated);
    // Sync and blobs of a worker are no less guarded than what only operators may.
    std::set<std::string> allowed(row.roles.begin(), row.roles.end());
    const std::set<std::string> uploads = {"StartUpload", "WriteChunk", "QueryUpload", "FinishUpload"};
    for (const std::string role : {"submitter", "worker", "operator", "viewer", "relay"}) {
      expect("revoked " + role, method, server.token("revoked " + role), *request, Code::kUnauthenticated);
      expect("expired " + role, method, server.token("expired " + role), *request, Code::kUnauthenticated);
      if (allowed.contains(role)) {
        expect(role, method, server.token(role), *request, row.right);
      } else {
        // An upload is its starter's: a submitter's role would do, but the upload is the worker's.
        expect("wrong role " + role, method, server.token(role), *request, Code::kPermissionDenied);
      }
    }
    // The right role, but for another population: about things there.
    const std::unique_ptr<Message> foreign = row.request(theirs, kOther);
    for (const std::string& role : row.roles) {
      if (row.foreign != Code::kOk) expect("foreign " + role, method, server.token(role), *foreign, row.foreign);
    }
  }
  // Every row is of a method.
  CHECK(counts.methods == static_cast<int>(table.size()));
  return counts;
}

// What a worker of the same population hears of another's lease, wherever one can be shown.
int ReplayLeases(GuardedServer& server) {
  const World& world = server.world("default");
  v1::Lease lease;
  lease.set_task(world.task);
  lease.set_lease_token(world.lease_token);
  v1::SyncRequest result = APoll("robber", "poll-9", 0);
  result.add_results()->set_task(world.task);
  result.mutable_results(0)->set_lease_token(world.lease_token);
  result.mutable_results(0)->mutable_failure()->set_message("stolen");
  CHECK(VerdictsOf(server.Must("thief", kSync, result)) == std::vector<std::string>{"LEASE_LOST"});
  v1::SyncRequest held = APoll("robber", "poll-9", 0);
  AddHeld(lease, 7, held);
  CHECK(server.Must("thief", kSync, held).held(0).verdict() == v1::LeaseUpdate::LOST);
  v1::StartUploadRequest upload;
  upload.set_request_id("stolen");
  upload.set_size_bytes(1);
  upload.set_digest(Sha256Hex("a"));
  upload.mutable_contribution()->set_task(world.task);
  upload.mutable_contribution()->set_lease_token(world.lease_token);
  CHECK(server.Must("thief", kStartUpload, upload).verdict() == v1::StartUploadResponse::LEASE_LOST);
  v1::QueryUploadRequest query;
  query.set_upload_id(world.upload);
  CHECK(server.Call(server.token("thief"), kQueryUpload.name, query).code() == Code::kPermissionDenied);
  // Under the holder's own name: neither what it holds is sent again, nor its wait ended.
  v1::SyncRequest named = APoll("holder", "poll-9", 1);
  CHECK(server.Call(server.token("thief"), kSync.name, named).code() == Code::kPermissionDenied);
  // It is still the holder's.
  v1::SyncRequest holder = APoll("holder", "poll-2", 0);
  AddHeld(lease, 1, holder);
  CHECK(server.Must("worker", kSync, holder).held(0).verdict() == v1::LeaseUpdate::HELD);
  return 5;
}

// The secrets of all tokens, and the lease tokens, are in nothing that the server wrote.
int CheckNoSecretIsWritten(GuardedServer& server) {
  std::vector<std::string> secrets = server.Secrets();
  REQUIRE(secrets.size() >= 15);
  server.federation().StopServer();
  const std::string log = server.federation().server().LogTail(1'000'000);
  std::string store;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(server.federation().data_directory())) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    store.append(std::istreambuf_iterator<char>(file), {});
  }
  // What is searched is what it seems to be.
  CHECK(log.find("listening on") != std::string::npos);
  CHECK(store.find("other-submitter") != std::string::npos);
  for (const std::string& secret : secrets) {
    REQUIRE(secret.size() == 38);
    CHECK(store.find(Sha256Hex(secret)) != std::string::npos);
    CHECK(log.find(secret) == std::string::npos);
    CHECK(store.find(secret) == std::string::npos);
    CHECK(store.find(secret.substr(6)) == std::string::npos);
  }
  for (const char* population : {"default", kOther}) {
    CHECK(log.find(server.world(population).lease_token) == std::string::npos);
  }
  return static_cast<int>(secrets.size());
}

void CheckWay(const Way& way) {
  Way debug = way;
  debug.server_arguments.insert(debug.server_arguments.end(), {"--log-level", "debug"});
  GuardedServer server(debug);
  const Counts counts = Walk(server);
  const int replays = ReplayLeases(server);
  const int secrets = CheckNoSecretIsWritten(server);
  Measured(
      "{}: {} methods, {} refusals and {} admissions as they should be, {} replays refused, {} secrets in neither "
      "log nor store",
      way.name, counts.methods, counts.refusals, counts.admissions, replays, secrets);
}

// The same by gRPC and by HTTP/1.1, which `protocol` is.
void CheckBoth(Way way, ServerAddress::Protocol protocol) {
  CheckWay(way);
  way.name += " over HTTP/1.1";
  way.protocol = protocol;
  CheckWay(way);
}

TEST_CASE("Nobody gets in who should not, in the clear: every method of every service") {
  CheckBoth({.name = "clear"}, ServerAddress::Protocol::kHttp);
}

TEST_CASE("Nobody gets in who should not, over TLS: every method of every service") {
  const TemporaryDirectory directory = ScratchDirectory();
  const Certificates certificates(directory.path());
  const CertificateFiles server = certificates.Issue("server", "IP:127.0.0.1");
  CheckBoth({.name = "TLS",
             .server_arguments = {"--tls-cert", server.certificate, "--tls-key", server.key},
             .security = {.tls_ca = certificates.authority()}},
            ServerAddress::Protocol::kHttps);
}

TEST_CASE("Nobody gets in who should not, over mutual TLS: every method of every service") {
  const TemporaryDirectory directory = ScratchDirectory();
  const Certificates certificates(directory.path());
  const CertificateFiles server = certificates.Issue("server", "IP:127.0.0.1");
  const CertificateFiles client = certificates.Issue("client");
  CheckBoth({.name = "mutual TLS",
             .server_arguments = {"--tls-cert", server.certificate, "--tls-key", server.key, "--tls-client-ca",
                                  certificates.authority()},
             .security = {.tls_ca = certificates.authority(), .tls_cert = client.certificate, .tls_key = client.key}},
            ServerAddress::Protocol::kHttps);
}

TEST_CASE("A client certificate is an identity: it may what its token says, and nothing without one") {
  const auto protocol = GENERATE(ServerAddress::Protocol::kGrpc, ServerAddress::Protocol::kHttps);
  const TemporaryDirectory directory = ScratchDirectory();
  const Certificates certificates(directory.path());
  const CertificateFiles server = certificates.Issue("server", "IP:127.0.0.1");
  const CertificateFiles client = certificates.Issue("edge-7");
  const CertificateFiles named = certificates.Issue("edge-8", "DNS:edge-8.example.org");
  const ChannelSecurity security = {
      .tls_ca = certificates.authority(), .tls_cert = client.certificate, .tls_key = client.key};
  Federation federation({.server_arguments = {"--tls-cert", server.certificate, "--tls-key", server.key,
                                              "--tls-client-ca", certificates.authority()},
                         .security = security,
                         .protocol = protocol});
  const std::string admin = directory.path() + "/admin.token";
  REQUIRE(federation.Sheaf({"token", "create", "admin", "--role", "operator", "--to", admin}).exit_code == 0);
  // The certificate alone is nobody yet.
  CHECK(federation.Sheaf({"server", "info"}).exit_code == 4);
  const auto make = [&](const std::string& name, const std::string& certificate) {
    const CommandRun run = federation.Sheaf(
        {"token", "create", name, "--role", "viewer", "--certificate", certificate, "--token-file", admin});
    INFO(run.err);
    CHECK(run.exit_code == 0);
    CHECK(run.out.empty());
  };
  make("edge-7", "edge-7");
  make("edge-8", "edge-8.example.org");
  CHECK(federation.Sheaf({"server", "info"}).exit_code == 0);
  CHECK(federation.Sheaf({"worker", "drain", "w"}).exit_code == 4);
  CHECK(federation.Sheaf({"server", "info", "--tls-cert", named.certificate, "--tls-key", named.key}).exit_code == 0);
}

TEST_CASE("Without tokens a server on loopback is open; the first must be an operator's, and closes it for good") {
  Federation federation;
  CHECK(federation.Sheaf({"round", "list"}).exit_code == 0);
  const CommandRun worker = federation.Sheaf({"token", "create", "edge", "--role", "worker"});
  CHECK(worker.exit_code == 7);
  CHECK_THAT(worker.err, Catch::Matchers::Contains("--role operator"));
  const std::string admin = federation.directory() + "/admin.token";
  REQUIRE(federation.Sheaf({"token", "create", "admin", "--role", "operator", "--to", admin}).exit_code == 0);
  CHECK(std::filesystem::status(admin).permissions() ==
        (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
  const CommandRun closed = federation.Sheaf({"round", "list"});
  CHECK(closed.exit_code == 4);
  CHECK_THAT(closed.err, Catch::Matchers::Contains("--token-file"));
  CHECK(federation.Sheaf({"round", "list", "--token-file", admin}).exit_code == 0);
  const CommandRun list = federation.Sheaf({"token", "list", "--token-file", admin, "-o", "json"});
  REQUIRE(list.exit_code == 0);
  const size_t at = list.out.find("\"t-");
  REQUIRE(at != std::string::npos);
  const std::string id = list.out.substr(at + 1, 10);
  CHECK(federation.Sheaf({"token", "revoke", id, "--token-file", admin}).exit_code == 0);
  CHECK(federation.Sheaf({"round", "list", "--token-file", admin}).exit_code == 4);
  federation.StopServer();
  // Whoever may stop the server and reads its directory is let in again.
  const CommandRun offline =
      RunCommand({BinaryPath("sheafd"), "--create-operator-token", "--data-dir", federation.data_directory()});
  REQUIRE(offline.exit_code == 0);
  const std::string again = federation.directory() + "/again.token";
  std::ofstream(again) << offline.out;
  std::filesystem::permissions(again, std::filesystem::perms(0600));
  federation.StartServer();
  CHECK(federation.Sheaf({"round", "list", "--token-file", admin}).exit_code == 4);
  CHECK(federation.Sheaf({"round", "list", "--token-file", again}).exit_code == 0);
}

TEST_CASE("Beyond loopback a server without an operator's token does not start, and says how to make one") {
  const TemporaryDirectory directory = ScratchDirectory();
  const CommandRun run = RunCommand(
      {BinaryPath("sheafd"), "--listen", "0.0.0.0:0", "--insecure", "--data-dir", directory.path() + "/data"});
  CHECK(run.exit_code == 1);
  CHECK_THAT(run.err, Catch::Matchers::Contains("--create-operator-token"));
}

TEST_CASE("A worker whose token is revoked while it waits is sent away, and its secret may be replaced meanwhile") {
  const TemporaryDirectory directory = ScratchDirectory();
  const std::string admin = directory.path() + "/admin.token";
  const std::string edge = directory.path() + "/edge.token";
  Federation federation;
  REQUIRE(federation.Sheaf({"token", "create", "admin", "--role", "operator", "--to", admin}).exit_code == 0);
  const auto make = [&](const std::string& file) {
    const CommandRun run = federation.Sheaf(
        {"token", "create", "edge", "--role", "worker", "--to", file, "--token-file", admin, "-o", "json"});
    REQUIRE(run.exit_code == 0);
    const size_t at = run.out.find("\"t-");
    REQUIRE(at != std::string::npos);
    return run.out.substr(at + 1, 10);
  };
  const std::string first = make(edge);
  GrpcTransport transport(federation.address(), {.security = {.token_file = edge}});
  const absl::Time start = federation.clock().Now();
  absl::Status ended;
  {
    const v1::SyncRequest poll = APoll("w1", "poll-1", 1, absl::Seconds(50));
    // Revoked from another process while this call waits.
    ChildProcess revoker = [&] {
      auto child = ChildProcess::Start(
          {.argv = {"/bin/sh", "-c",
                    fmt::format(
                        "while ! {0} --server {1} --token-file {2} queue describe -o json | grep -q "
                        "'numParkedPolls.*1'; do :; done; exec {0} --server {1} --token-file {2} token revoke {3}",
                        BinaryPath("sheaf"), federation.address(), admin, first)},
           .log_path = directory.path() + "/revoker.log"});
      REQUIRE(child.ok());
      return *std::move(child);
    }();
    v1::SyncResponse response;
    ended = BlockingCallMethod(transport, kSync.name, poll, &response, {.timeout = absl::Seconds(60)});
    CHECK(EndOf(revoker, absl::Seconds(20)) == "exit code 0");
  }
  CHECK(ended.code() == Code::kUnauthenticated);
  CHECK(federation.clock().Now() - start < absl::Seconds(20));
  // A new secret in the same file: the next call shows it.
  std::filesystem::remove(edge);
  make(edge);
  CHECK(BlockingCall(transport, kSync, APoll("w1", "poll-2", 0)).ok());
}

}  // namespace
}  // namespace sheaf
