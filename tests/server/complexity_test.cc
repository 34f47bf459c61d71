// What a stranger's requests cost the server beside the algebra (tests/aggregation/complexity_test.cc): everything that
// walks over what a request holds takes time in proportion to it. One row for each way in.
#include <fmt/format.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <string>

#include "aggregation/wire/safetensors.h"
#include "base/checksum.h"
#include "server/core/broadcasts/broadcast_check.h"
#include "server/core/broadcasts/row_selection.h"
#include "server/core/requests/message_parts.h"
#include "server/core/rounds/requirement_match.h"
#include "server/core/rounds/round_spec.h"
#include "tests/cpu_time.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

std::function<void()> Counting(const google::protobuf::Descriptor& type, std::string bytes) {
  return [&type, bytes = std::move(bytes)] {
    google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
    Limits limits;
    limits.request_parts_max = int64_t{1} << 40;
    REQUIRE(CheckParts(type, stream, &Limits::request_parts_max, limits).ok());
  };
}

std::string Repeated(int64_t n, std::string_view piece) {
  std::string bytes;
  for (int64_t i = 0; i < n; ++i) bytes += piece;
  return bytes;
}

// A file of `num_tensors` tensors "0", "1", ..., the first of them of `num_rows` rows of a byte.
class ABroadcast {
 public:
  ABroadcast(int64_t num_tensors, int64_t num_rows) {
    const std::string data(static_cast<size_t>(num_rows), 'd');
    std::vector<TensorView> tensors;
    for (int64_t i = 0; i < num_tensors; ++i) {
      tensors.push_back({std::to_string(i), v1::UINT8, {i == 0 ? num_rows : 0, 1}, i == 0 ? data : std::string_view()});
    }
    file_ = std::make_unique<MemoryBlobView>(EncodeSafetensors(tensors, {}));
    auto header = ReadSafetensorsHeader(*file_, Limits());
    REQUIRE(header.ok());
    header_ = *std::move(header);
  }
  v1::SelectRowsResponse Select(const v1::SelectRowsRequest& request, int64_t bytes_max) const {
    auto page = SelectRowsOf(header_, *file_, request, bytes_max);
    REQUIRE(page.ok());
    return *std::move(page);
  }

 private:
  std::unique_ptr<MemoryBlobView> file_;
  SafetensorsHeader header_;
};

v1::SelectRowsRequest ManyRows(int64_t n, int64_t num_rows) {
  v1::SelectRowsRequest request;
  v1::RowSelection& selection = *request.add_selections();
  selection.set_tensor("0");
  for (int64_t i = 0; i < n; ++i) selection.add_rows(i % num_rows);
  return request;
}

v1::RoundSpec ASumRound() {
  v1::RoundSpec spec;
  spec.mutable_computation()->set_name("computation");
  v1::OutputSpec& output = *spec.mutable_aggregate()->add_outputs();
  output.set_name("sum");
  output.set_operator_("sum");
  output.set_dtype(v1::FLOAT32);
  output.add_dense_shape(1);
  return spec;
}

std::function<void()> Preparing(v1::RoundSpec spec) {
  return [spec = std::move(spec)] {
    const auto prepared = PrepareRound(spec, Limits());
    INFO(prepared.status().ToString());
    REQUIRE(prepared.ok());
  };
}

using Server = std::shared_ptr<CoreFederation>;

// Reads a list to its end, and counts its rows.
template <typename Response, typename Request, typename NumRows>
int64_t NumListed(CoreFederation& server, const std::string& method, Request request, NumRows num_of) {
  int64_t num_rows = 0;
  do {
    const auto page = server.Call<Response>(method, request);
    INFO(page.status().ToString());
    REQUIRE(page.ok());
    num_rows += num_of(*page);
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return num_rows;
}
int64_t NumRounds(CoreFederation& server, int page_size) {
  v1::ListRoundsRequest request;
  request.set_page_size(page_size);
  return NumListed<v1::ListRoundsResponse>(server, "RoundService/ListRounds", request,
                                           [](const auto& page) { return page.rounds_size(); });
}
int64_t NumTasks(CoreFederation& server, int page_size) {
  v1::ListTasksRequest request;
  request.set_page_size(page_size);
  return NumListed<v1::ListTasksResponse>(server, "InspectionService/ListTasks", request,
                                          [](const auto& page) { return page.tasks_size(); });
}
int64_t NumWorkers(CoreFederation& server, int page_size) {
  v1::ListWorkersRequest request;
  request.set_page_size(page_size);
  return NumListed<v1::ListWorkersResponse>(server, "InspectionService/ListWorkers", request,
                                            [](const auto& page) { return page.workers_size(); });
}
int64_t NumTokens(CoreFederation& server, int page_size) {
  v1::ListTokensRequest request;
  request.set_page_size(page_size);
  return NumListed<v1::ListTokensResponse>(server, "AccessService/ListTokens", request,
                                           [](const auto& page) { return page.tokens_size(); });
}

// Too large for a page of more than eight.
Server WithLargeRounds(int64_t n) {
  Limits limits;
  limits.page_bytes_max = 8 << 10;
  auto server = std::make_shared<CoreFederation>(limits);
  for (int64_t i = 0; i < n; ++i) {
    v1::RoundSpec spec = SumRound(1);
    spec.mutable_computation()->set_config(std::string(1 << 10, 'c'));
    server->CreateRound(spec);
  }
  return server;
}

v1::CreateTokenRequest ATokenFor(const std::string& population, int64_t number) {
  v1::CreateTokenRequest request;
  request.set_request_id(fmt::format("{}-{}", population, number));
  request.set_name(fmt::format("name-{}", number % 10));
  request.add_roles(population.empty() ? v1::OPERATOR : v1::WORKER);
  if (!population.empty()) request.add_populations(population);
  return request;
}
// Tokens of an operator who reaches one population; and what they say, each.
struct Tokens {
  Server server = std::make_shared<CoreFederation>();
  const Identity creator{.name = "op", .roles = {v1::OPERATOR}, .populations = {"a"}};
  std::vector<std::string> secrets;
  std::vector<std::string> ids;
  int64_t num_made = 0;

  void Make(int64_t n) {
    AccessControl& access = server->core().access();
    REQUIRE(server->store().BeginBatch().ok());
    if (num_made == 0) REQUIRE(access.Create(ATokenFor("", 0), *Identity::Anybody(), server->clock().Now()).ok());
    for (int64_t i = 0; i < n; ++i) {
      const auto made = access.Create(ATokenFor("a", ++num_made), creator, server->clock().Now());
      REQUIRE(made.ok());
      secrets.push_back("Bearer " + made->secret());
      ids.push_back(made->token().id());
    }
    REQUIRE(server->store().CommitBatch().ok());
  }
};

struct Row {
  int64_t size;
  WorkOfSize make;
  double ratio_max = kLinear;
};

const std::map<std::string, Row>& Rows() {
  static const std::map<std::string, Row> rows = {
      {"parts of a request: empty messages",
       {2000,
        [](int64_t n) {
          return Counting(*v1::SyncRequest::descriptor(), Repeated(n, {"\x42\x00", 2}));
        }}},
      {"parts of a request: fields that nobody knows",
       {2000,
        [](int64_t n) {
          return Counting(*v1::SyncRequest::descriptor(), Repeated(n, {"\xf8\x7f\x01", 3}));
        }}},
      {"parts of a contribution: keys",
       {2000,
        [](int64_t n) {
          v1::Contribution contribution;
          for (int64_t i = 0; i < n; ++i) contribution.add_outputs()->mutable_keyed()->add_string_keys("k");
          return Counting(*v1::Contribution::descriptor(), contribution.SerializeAsString());
        }}},
      {"an uploaded contribution, read from its file",
       {60'000,
        [](int64_t n) {
          v1::Contribution contribution;
          contribution.add_outputs()->mutable_dense()->set_data(std::string(static_cast<size_t>(n), 'd'));
          const auto file = std::make_shared<MemoryBlobView>(contribution.SerializeAsString());
          // Its memory is kept from run to run: to touch new pages takes several times as long as to fill them.
          const auto parsed = std::make_shared<v1::Contribution>();
          return [file, parsed] {
            const absl::Status read = file->Visit([&](std::string_view bytes) {
              const bool is_parsed = parsed->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
              return is_parsed ? absl::OkStatus() : absl::InvalidArgumentError("malformed");
            });
            REQUIRE(read.ok());
          };
        }}},
      {"a round: tasks, each with a requirement of its own",
       {50,
        [](int64_t n) {
          v1::RoundSpec spec = ASumRound();
          for (int64_t i = 0; i < n; ++i) {
            (*spec.mutable_listed()->add_tasks()->mutable_requirements())["zone"] = std::to_string(i);
          }
          return Preparing(spec);
        }}},
      {"a round: labels of one requirement",
       {20,
        [](int64_t n) {
          v1::RoundSpec spec = ASumRound();
          v1::TaskSpec& task = *spec.mutable_listed()->add_tasks();
          for (int64_t i = 0; i < n; ++i)
            (*task.mutable_requirements())[fmt::format("{:05}", i * 7919 % 100'003)] = "1";
          const std::string requirement = CanonicalLabels(task.requirements());
          return [prepare = Preparing(spec), labels = task.requirements(), requirement] {
            prepare();
            REQUIRE(Fulfils(labels, requirement));
          };
        }}},
      {"a round: outputs",
       {20,
        [](int64_t n) {
          v1::RoundSpec spec = ASumRound();
          spec.mutable_listed()->add_tasks();
          const v1::OutputSpec output = spec.aggregate().outputs(0);
          for (int64_t i = 1; i < n; ++i) {
            *spec.mutable_aggregate()->add_outputs() = output;
            spec.mutable_aggregate()
                ->mutable_outputs(static_cast<int>(i))
                ->set_name(std::string(100, 'o') + std::to_string(i));
          }
          return Preparing(spec);
        }}},
      {"selected rows: the first page, with which all are checked",
       {1000,
        [](int64_t n) {
          const auto broadcast = std::make_shared<ABroadcast>(1, 100);
          return [broadcast, request = ManyRows(n, 100)] { broadcast->Select(request, 2 << 20); };
        }}},
      // No rows but those that it copies: whoever asks for n rows page by page would have all n checked with each.
      {"selected rows: a later page",
       {20'000,
        [](int64_t n) {
          const auto broadcast = std::make_shared<ABroadcast>(1, 100);
          v1::SelectRowsRequest request = ManyRows(n, 100);
          request.set_cursor(fmt::format("0:{}", n / 2));
          return [broadcast, request] {
            for (int i = 0; i < 100; ++i) broadcast->Select(request, 1000);
          };
        },
        2}},
      {"selected rows: selections, each of another tensor",
       {400,
        [](int64_t n) {
          const auto broadcast = std::make_shared<ABroadcast>(n, 1);
          v1::SelectRowsRequest request;
          for (int64_t i = 0; i < n; ++i) request.add_selections()->set_tensor(std::to_string(i));
          return [broadcast, request] { broadcast->Select(request, 2 << 20); };
        }}},
      {"a Sync: results and held leases of nobody",
       {25,
        [](int64_t n) {
          const auto server = std::make_shared<CoreFederation>();
          v1::SyncRequest request = Ask("worker", 0);
          for (int64_t i = 0; i < n; ++i) {
            request.add_results()->set_task(fmt::format("r-aaaaaaaa/{}", i));
            request.add_held()->set_task(fmt::format("r-aaaaaaaa/{}", i));
          }
          return [server, request] { REQUIRE(server->Call<v1::SyncResponse>("WorkService/Sync", request).ok()); };
        }}},
      {"a Sync: labels and computations of a worker",
       {12,
        [](int64_t n) {
          const auto server = std::make_shared<CoreFederation>();
          v1::SyncRequest request = Ask("worker", 0);
          request.clear_computations();
          for (int64_t i = 0; i < n; ++i) {
            request.add_computations()->set_name(fmt::format("c{:04}", i));
            (*request.mutable_labels())[fmt::format("l{:04}", i)] = "1";
          }
          return [server, request] { REQUIRE(server->Call<v1::SyncResponse>("WorkService/Sync", request).ok()); };
        }}},
      {"an upload of chunks of one byte",
       {300,
        [](int64_t n) {
          const auto server = std::make_shared<CoreFederation>();
          const auto number = std::make_shared<int>(0);
          return [server, number, n] {
            const std::string bytes(static_cast<size_t>(n), 'b');
            v1::StartUploadRequest start;
            start.set_request_id(std::to_string(++*number));
            start.set_size_bytes(n);
            start.set_digest(Sha256Hex(bytes + std::to_string(*number)));
            const auto started = server->Call<v1::StartUploadResponse>("BlobService/StartUpload", start);
            REQUIRE(started.ok());
            v1::WriteChunkRequest chunk;
            chunk.set_upload_id(started->upload_id());
            chunk.set_data("b");
            for (int64_t i = 0; i < n; ++i) {
              chunk.set_offset(i);
              REQUIRE(server->Call<v1::WriteChunkResponse>("BlobService/WriteChunk", chunk).ok());
            }
          };
        }}},
      {"rounds, page by page",
       {60,
        [](int64_t n) {
          const auto server = std::make_shared<CoreFederation>();
          for (int64_t i = 0; i < n; ++i) server->CreateRound(SumRound(1));
          return [server, n] { REQUIRE(NumRounds(*server, 6) == n); };
        }}},
      {"rounds of which few fill a page",
       {30, [](int64_t n) { return [server = WithLargeRounds(n), n] { REQUIRE(NumRounds(*server, 1000) == n); }; }}},
      {"rounds, made one after the other",
       {50,
        [](int64_t n) {
          return [n] {
            CoreFederation server;
            for (int64_t i = 0; i < n; ++i) server.CreateRound(SumRound(1));
          };
        }}},
      {"tasks, page by page",
       {300,
        [](int64_t n) {
          const auto server = std::make_shared<CoreFederation>();
          server->CreateRound(SumRound(static_cast<int>(n)));
          return [server, n] { REQUIRE(NumTasks(*server, 20) == n); };
        }}},
      {"workers, page by page",
       {150,
        [](int64_t n) {
          const auto server = std::make_shared<CoreFederation>();
          for (int64_t i = 0; i < n; ++i) server->Sync(Ask(fmt::format("w{}", i), 0));
          return [server, n] { REQUIRE(NumWorkers(*server, 10) == n); };
        }}},
      {"workers, each calling for the first time",
       {100,
        [](int64_t n) {
          return [n] {
            CoreFederation server;
            for (int64_t i = 0; i < n; ++i) server.Sync(Ask(fmt::format("w{}", i), 0));
          };
        }}},
      // Forgetting looks at some of the records each time that it comes to it, at no more for there being more.
      {"workers: a part of looking which are to be forgotten",
       {1500,
        [](int64_t n) {
          const auto server = std::make_shared<CoreFederation>();
          REQUIRE(server->store().BeginBatch().ok());
          for (int64_t i = 0; i < n; ++i) {
            REQUIRE(server->store()
                        .SawWorker({.name = WorkerName(fmt::format("w{}", i)),
                                    .population = fmt::format("p{}", i % 10),
                                    .description = "a worker",
                                    .now = server->clock().Now()})
                        .ok());
          }
          REQUIRE(server->store().CommitBatch().ok());
          return [server] {
            for (int i = 0; i < 10; ++i) server->Advance(absl::Minutes(10));
          };
        },
        4}},
      {"tokens, page by page",
       {150,
        [](int64_t n) {
          const auto tokens = std::make_shared<Tokens>();
          tokens->Make(n);
          return [tokens, n] { REQUIRE(NumTokens(*tokens->server, 10) == n + 1); };
        }}},
      {"tokens, made by who reaches one population", {100, [](int64_t n) { return [n] { Tokens().Make(n); }; }}},
      {"tokens, looked up",
       {150,
        [](int64_t n) {
          const auto tokens = std::make_shared<Tokens>();
          tokens->Make(n);
          return [tokens] {
            for (const std::string& secret : tokens->secrets) {
              REQUIRE(tokens->server->core().access().Authenticate(secret, {}).ok());
            }
          };
        }}},
      {"tokens, made and revoked while there are as many",
       {25,
        [](int64_t n) {
          const auto tokens = std::make_shared<Tokens>();
          // What is revoked stays: all runs together are within tokens_max.
          tokens->Make(n);
          return [tokens, n] {
            REQUIRE(tokens->server->store().BeginBatch().ok());
            for (const std::string& id : tokens->ids) {
              v1::RevokeTokenRequest request;
              request.set_request_id("request");
              request.set_token(id);
              REQUIRE(
                  tokens->server->core().access().Revoke(request, tokens->creator, tokens->server->clock().Now()).ok());
            }
            REQUIRE(tokens->server->store().CommitBatch().ok());
          };
        }}},
      {"tokens that expire one after the other",
       {50,
        [](int64_t n) {
          return [n] {
            Tokens tokens;
            tokens.Make(0);
            AccessControl& access = tokens.server->core().access();
            REQUIRE(tokens.server->store().BeginBatch().ok());
            for (int64_t i = 1; i <= n; ++i) {
              v1::CreateTokenRequest request = ATokenFor("a", i);
              request.mutable_lifetime()->set_seconds(i);
              REQUIRE(access.Create(request, tokens.creator, tokens.server->clock().Now()).ok());
            }
            REQUIRE(tokens.server->store().CommitBatch().ok());
            for (int64_t i = 1; i <= n; ++i) access.Tick(tokens.server->clock().Now() + absl::Seconds(i));
          };
        }}},
  };
  return rows;
}

TEST_CASE("Ten times as much in a request takes ten times as long to look at") {
  for (const auto& [name, row] : Rows()) {
    INFO(name);
    CHECK(CpuRatio(row.make, row.size, row.ratio_max) <= row.ratio_max);
  }
}

}  // namespace
}  // namespace sheaf
