#include <catch2/catch.hpp>

#include "aggregation/wire/safetensors.h"
#include "base/checksum.h"
#include "cli/files.h"
#include "cli/processes/temporary_directory.h"
#include "tests/cli/command_run.h"
#include "tests/cli/sample_messages.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

// Answers GetRound with these, one after the other; the last one again and again.
void AnswerRound(CommandRun& run, std::vector<v1::Round> states) {
  run.server.On(kGetRound,
                [states, next = size_t{0}](const v1::GetRoundRequest&) mutable -> absl::StatusOr<v1::GetRoundResponse> {
                  v1::GetRoundResponse response;
                  *response.mutable_round() = states[next];
                  if (next + 1 < states.size()) ++next;
                  return response;
                });
}

void AnswerCreate(CommandRun& run) {
  run.server.On(kCreateRound, [](const v1::CreateRoundRequest& request) -> absl::StatusOr<v1::CreateRoundResponse> {
    v1::CreateRoundResponse response;
    response.mutable_round()->set_id("r-8b3n5r6y");
    *response.mutable_round()->mutable_spec() = request.spec();
    return response;
  });
}

void AnswerAggregate(CommandRun& run, const std::string& file, const std::string& digest) {
  run.server.On(kReadAggregate,
                [file, digest](const v1::ReadAggregateRequest& request) -> absl::StatusOr<v1::ReadAggregateResponse> {
                  v1::ReadAggregateResponse response;
                  // In small pieces, as a large file comes.
                  response.set_data(file.substr(static_cast<size_t>(request.offset()), 100));
                  response.set_size_bytes(static_cast<int64_t>(file.size()));
                  response.set_digest(digest);
                  return response;
                });
}

std::string SmallAggregate() {
  const float values[] = {1, 2, 3, 4};
  return EncodeSafetensors(
      std::vector<NamedTensor>{{.name = "w",
                                .dtype = v1::FLOAT32,
                                .shape = {2, 2},
                                .data = std::string(reinterpret_cast<const char*>(values), sizeof values)}},
      {});
}

TEST_CASE("round list shows newest first, with progress and bytes") {
  CommandRun run;
  run.server.On(kListRounds, [](const v1::ListRoundsRequest&) -> absl::StatusOr<v1::ListRoundsResponse> {
    v1::ListRoundsResponse response;
    *response.add_rounds() = CollectingRound();
    *response.add_rounds() = SucceededRound();
    return response;
  });
  CHECK(run({"round", "list", "--state", "collecting", "--job", "tags"}) == 0);
  CHECK(run.out() ==
        "ROUND       JOB   STATE        DONE  QUEUED  LEASED  FAILED      UP    DOWN   TOOK  AGE\n"
        "r-8b3n5r6y  tags  COLLECTING  26/50      20       3       1  5.1 MB  1.2 MB     4s   4s\n"
        "r-7k2m9q4x  tags  SUCCEEDED   50/50       0       0       0  7.4 MB  7.1 MB  1.25s  31s\n");
  CHECK(run.server.requests.back() == "population: \"default\" states: COLLECTING job: \"tags\" page_size: 1000");
}

TEST_CASE("round describe shows spec, progress, where the time went, and each output with its divisor") {
  CommandRun run;
  AnswerRound(run, {SucceededRound()});
  CHECK(run({"round", "describe", "r-7k2m9q4x"}) == 0);
  CHECK(run.out() ==
        R"(Round:          r-7k2m9q4x
State:          SUCCEEDED
Job:            tags
Population:     default
Computation:    tags, version 1 or newer
Contributions:  50 of 50 (enough: 40), combining 50 clients
Tasks:          65: 50 succeeded, 15 cancelled
Attempts:       1 failed, 2 lost
Created:        31s ago
Ended:          29s ago
Took:           1.25s
Bytes:          7.4 MB up, 7.1 MB down
Broadcast:      c0ffee
Priority:       3
Durability:     durable
Result:         5.4 MB, sha256 abad1dea

Phases (where the wall time went)
  wait       112ms   9 %  ████
  download  12.5ms   1 %
  prepare   37.5ms   3 %  █
  compute    762ms  61 %  ████████████████████████
  upload     112ms   9 %  ████
  fold       100ms   8 %  ███
  commit     112ms   9 %  ████

Outputs
  OUTPUT  OPERATOR                  DTYPE    SHAPE         TOUCHED  RELEASED  DIVIDED BY
  rows    weighted_coordinate_mean  FLOAT32  [56942, 500]    2,698     2,698  weight of the contributions that touched the coordinate
  bias    weighted_mean             FLOAT32  [500]             500       500  weight of all contributions (1164)

Metrics (mean over clients)
  examples:  23.28
  loss:      21.3457
)");
}

TEST_CASE("round describe names the critical path in a sentence") {
  CommandRun run;
  AnswerRound(run, {TracedRound()});
  CHECK(run({"round", "describe", "r-7k2m9q4x"}) == 0);
  CHECK_THAT(run.out(),
             Contains("\n  The critical path: 40 % computing on edge-7, 16 % an attempt that was lost on edge-1, "
                      "16 % waiting for a worker, 8 % folding.\n"));
}

TEST_CASE("round describe -o json is the API's own message") {
  CommandRun run;
  AnswerRound(run, {SucceededRound()});
  CHECK(run({"round", "describe", "r-7k2m9q4x", "-o", "json"}) == 0);
  CHECK_THAT(run.out(), Contains("\"numContributions\": \"50\"") && Contains("\"broadcastDigest\": \"c0ffee\"") &&
                            Contains("\"createTime\": \"2026-01-31T11:59:29Z\""));
}

TEST_CASE("round create reads a spec, fills the population, and prints the round's id") {
  CommandRun run;
  AnswerCreate(run);
  run.in.str(R"({"job": "tags", "computation": {"name": "tags"}, "openSlots": {"count": 5}, "deadline": "60s"})");
  CHECK(run({"round", "create", "-f", "-", "--population", "lab", "--request-id", "once"}) == 0);
  CHECK(run.out() == "r-8b3n5r6y\n");
  CHECK(run.server.requests.back() ==
        "request_id: \"once\" spec { population: \"lab\" job: \"tags\" computation { name: \"tags\" } open_slots { "
        "count: "
        "5 } deadline { seconds: 60 } }");
}

TEST_CASE("round create --announce leaves the broadcast to round open") {
  CommandRun run;
  AnswerCreate(run);
  run.in.str(R"({"computation": {"name": "tags"}, "openSlots": {"count": 5}})");
  CHECK(run({"round", "create", "-f", "-", "--announce"}) == 0);
  CHECK(run.out() == "r-8b3n5r6y\n");
  CHECK_THAT(run.server.requests.back(), Contains("announced: true"));
  CHECK(run({"round", "create", "-f", "-", "--announce", "--broadcast", "model.safetensors"}) == 2);
  CHECK_THAT(run.err(), Contains("gets its broadcast when it is opened") && Contains("sheaf round open"));
}

TEST_CASE("round open gives an announced round its broadcast, in one call if it is small") {
  CommandRun run;
  run.server.On(kOpenRound, [](const v1::OpenRoundRequest& request) -> absl::StatusOr<v1::OpenRoundResponse> {
    v1::OpenRoundResponse response;
    response.mutable_round()->set_id(request.round());
    return response;
  });
  CHECK(run({"round", "open", "r-8b3n5r6y"}) == 0);
  CHECK(run.out() == "round r-8b3n5r6y is open\n");
  CHECK_THAT(run.server.requests.back(), Contains("round: \"r-8b3n5r6y\"") && !Contains("broadcast"));

  absl::StatusOr<TemporaryDirectory> directory = TemporaryDirectory::Create("/tmp", "sheaf-cli-test-");
  REQUIRE(directory.ok());
  const std::string path = directory->path() + "/model.safetensors";
  REQUIRE(WriteFile(path, SmallAggregate(), Overwrite::kNo).ok());
  CHECK(run({"round", "open", "r-8b3n5r6y", "--broadcast", path}) == 0);
  CHECK_THAT(run.server.requests.back(), Contains("broadcast: "));
  CHECK(run({"round", "open", "r-8b3n5r6y", "--broadcast", path + ".not"}) != 0);
  CHECK_THAT(run.err(), Contains("model.safetensors.not"));
}

TEST_CASE("round open uploads a large broadcast for the population that the round has") {
  absl::StatusOr<TemporaryDirectory> directory = TemporaryDirectory::Create("/tmp", "sheaf-cli-test-");
  REQUIRE(directory.ok());
  const std::string path = directory->path() + "/model.safetensors", bytes((1 << 20) + 1, 'x');
  REQUIRE(WriteFile(path, bytes, Overwrite::kNo).ok());
  CommandRun run;
  v1::Round announced = CollectingRound();
  announced.set_state(v1::ANNOUNCED);
  announced.mutable_spec()->set_population("lab");
  AnswerRound(run, {announced});
  std::string population;
  run.server.On(kStartUpload, [&](const v1::StartUploadRequest& request) -> absl::StatusOr<v1::StartUploadResponse> {
    population = request.population();
    v1::StartUploadResponse response;
    response.set_verdict(v1::StartUploadResponse::ALREADY_STORED);
    return response;
  });
  run.server.On(kOpenRound, [&](const v1::OpenRoundRequest& request) -> absl::StatusOr<v1::OpenRoundResponse> {
    CHECK(request.broadcast_digest() == Sha256Hex(bytes));
    return v1::OpenRoundResponse();
  });
  CHECK(run({"round", "open", announced.id(), "--broadcast", path}) == 0);
  CHECK(population == "lab");
}

TEST_CASE("round open says in the server's words why a round cannot be opened") {
  CommandRun run;
  run.server.On(kOpenRound, [](const v1::OpenRoundRequest&) -> absl::StatusOr<v1::OpenRoundResponse> {
    return absl::FailedPreconditionError("round r-8b3n5r6y was not announced: it was open from its creation on");
  });
  CHECK(run({"round", "open", "r-8b3n5r6y"}) == 7);
  CHECK_THAT(run.err(), Contains("round r-8b3n5r6y was not announced: it was open from its creation on"));
}

TEST_CASE("round describe says of an announced round until when it waits for its broadcast") {
  CommandRun run;
  v1::Round round = CollectingRound();
  round.set_state(v1::ANNOUNCED);
  round.mutable_spec()->clear_broadcast_digest();
  round.mutable_deadline_time()->set_seconds(1769860800 + 1800);
  AnswerRound(run, {round});
  CHECK(run({"round", "describe", "r-8b3n5r6y"}) == 0);
  CHECK_THAT(run.out(), Contains("State:          ANNOUNCED\n") && Contains("Opens before:   in 30m\n") &&
                            Contains("Broadcast:      comes with 'sheaf round open'\n") && !Contains("Deadline"));
}

TEST_CASE("A field that a spec does not have is refused by name") {
  CommandRun run;
  AnswerCreate(run);
  run.in.str(R"({"computation": {"name": "tags", "verison": 1}})");
  CHECK(run({"round", "create", "-f", "-"}) == 2);
  CHECK_THAT(run.err(), Contains("error: stdin:1: computation.verison: there is no such field") && Contains("hint: "));
  CHECK(run.server.requests.empty());
  run.in.clear();
  run.in.str("{");
  CHECK(run({"round", "create", "-f", "-"}) == 2);
}

TEST_CASE("round create reads YAML from a file that is named so") {
  auto directory = TemporaryDirectory::Create("/tmp", "sheaf-cli-");
  REQUIRE(directory.ok());
  for (const std::string& path : {directory->path() + "/round.yaml", directory->path() + "/round.yml"}) {
    REQUIRE(WriteFile(path, "job: tags\ndeadline: 60s\n", Overwrite::kNo).ok());
    CommandRun run;
    AnswerCreate(run);
    CHECK(run({"round", "create", "-f", path}) == 0);
    CHECK_THAT(run.server.requests.back(), Contains("job: \"tags\" deadline { seconds: 60 }"));
  }
  const std::string json = directory->path() + "/round.json";
  REQUIRE(WriteFile(json, "job: tags\n", Overwrite::kNo).ok());
  CommandRun run;
  CHECK(run({"round", "create", "-f", json}) == 2);
  CHECK_THAT(run.err(), Contains("round.json:1: this is not JSON"));
}

TEST_CASE("A spec that is not there is exit code 3, and named") {
  CommandRun run;
  CHECK(run({"round", "create", "-f", "/tmp/sheaf-no-such-spec.json"}) == 3);
  CHECK_THAT(run.err(), Contains("/tmp/sheaf-no-such-spec.json"));
}

TEST_CASE("round create --validate-only creates nothing") {
  CommandRun run;
  AnswerCreate(run);
  run.in.str("{}");
  CHECK(run({"round", "create", "-f", "-", "--validate-only"}) == 0);
  CHECK(run.out() == "valid\n");
  CHECK_THAT(run.server.requests.back(), Contains("validate_only: true"));
}

TEST_CASE("round create --broadcast uploads the file for the round's population and names its digest in the spec") {
  auto directory = TemporaryDirectory::Create("/tmp", "sheaf-cli-");
  REQUIRE(directory.ok());
  const std::string path = directory->path() + "/w.safetensors", bytes = SmallAggregate();
  REQUIRE(WriteFile(path, bytes, Overwrite::kNo).ok());
  CommandRun run;
  AnswerCreate(run);
  run.server.On(kStartUpload, [&](const v1::StartUploadRequest& request) -> absl::StatusOr<v1::StartUploadResponse> {
    CHECK(request.digest() == Sha256Hex(bytes));
    CHECK(request.population() == "lab");
    v1::StartUploadResponse response;
    response.set_verdict(v1::StartUploadResponse::ALREADY_STORED);
    return response;
  });
  run.in.str("{}");
  CHECK(run({"round", "create", "-f", "-", "--broadcast", path, "--population", "lab"}) == 0);
  CHECK_THAT(run.server.requests.back(), Contains(Sha256Hex(bytes)));
  CHECK_THAT(run.err(), StartsWith("uploaded "));
}

TEST_CASE("round wait is silent and ends with the round: 0 if it succeeded, 1 if not") {
  CommandRun run;
  v1::Round failed = CollectingRound();
  failed.set_state(v1::FAILED);
  failed.set_error("the deadline passed with 26 of 50");
  failed.set_etag("5");
  AnswerRound(run, {CollectingRound(), SucceededRound()});
  CHECK(run({"round", "wait", "r-7k2m9q4x"}) == 0);
  CHECK(run.out() == "r-7k2m9q4x  SUCCEEDED  50/50 contributions  1.25s\n");
  CHECK(run.err().empty());
  AnswerRound(run, {CollectingRound(), failed});
  CHECK(run({"round", "wait", "r-8b3n5r6y"}) == 1);
  CHECK_THAT(run.out(), StartsWith("r-8b3n5r6y  FAILED"));
  CHECK_THAT(run.err(), StartsWith("error: round r-8b3n5r6y failed: the deadline passed with 26 of 50\nhint: "));
}

TEST_CASE("round wait gives up after --timeout with exit code 6, and says that the round goes on") {
  CommandRun run;
  run.server.On(kGetRound, [&run](const v1::GetRoundRequest&) -> absl::StatusOr<v1::GetRoundResponse> {
    run.clock.Advance(absl::Seconds(4));
    v1::GetRoundResponse response;
    *response.mutable_round() = CollectingRound();
    return response;
  });
  CHECK(run({"round", "wait", "r-8b3n5r6y", "--timeout", "10s"}) == 6);
  CHECK(run.err() ==
        "error: round r-8b3n5r6y did not end within 10s\n"
        "hint: it goes on; 'sheaf round explain r-8b3n5r6y' says what it waits for\n");
}

TEST_CASE("round wait outlives a restart of the server, but not a wrong address") {
  CommandRun run;
  int calls = 0;
  run.server.On(kGetRound, [&calls](const v1::GetRoundRequest&) -> absl::StatusOr<v1::GetRoundResponse> {
    if (++calls > 1 && calls < 5) return absl::UnavailableError("restarting");
    v1::GetRoundResponse response;
    *response.mutable_round() = calls == 1 ? CollectingRound() : SucceededRound();
    return response;
  });
  CHECK(run({"round", "wait", "r-8b3n5r6y"}) == 0);
  calls = 1;
  CHECK(run({"round", "wait", "r-8b3n5r6y"}) == 5);
}

TEST_CASE("round watch shows progress on stderr and the end on stdout") {
  CommandRun run;
  AnswerRound(run, {CollectingRound(), SucceededRound()});
  CHECK(run({"round", "watch", "r-7k2m9q4x"}) == 0);
  CHECK(run.out() == "r-7k2m9q4x  SUCCEEDED  50/50 contributions  1.25s\n");
  CHECK(run.err() ==
        "[##########----------] 26/50  3 leased  20 queued  1 failed  5.1 MB up  1.2 MB down  00:04\n"
        "[####################] 50/50  0 leased  0 queued  0 failed  7.4 MB up  7.1 MB down  00:01  SUCCEEDED\n");
  run.is_terminal = true;
  AnswerRound(run, {CollectingRound(), SucceededRound()});
  CHECK(run({"round", "watch", "r-7k2m9q4x", "-o", "json"}) == 0);
  CHECK_THAT(run.out(), StartsWith("{\n \"round\": {\n") && Contains("\"state\": \"SUCCEEDED\""));
}

TEST_CASE("round cancel and explain pass on what the server says") {
  CommandRun run;
  run.server.On(kCancelRound, [](const v1::CancelRoundRequest& request) -> absl::StatusOr<v1::CancelRoundResponse> {
    CHECK(request.reason() == "wrong data");
    v1::CancelRoundResponse response;
    response.mutable_round()->set_id(request.round());
    return response;
  });
  CHECK(run({"round", "cancel", "r-1", "--reason", "wrong data"}) == 0);
  CHECK(run.out() == "round r-1 is cancelled\n");
  run.server.On(kExplainRound, [](const v1::ExplainRoundRequest&) -> absl::StatusOr<v1::ExplainRoundResponse> {
    v1::ExplainRoundResponse response;
    response.set_summary("It waits for 24 more contributions.");
    response.add_reasons("20 tasks are queued.");
    response.add_hints("Start more workers.");
    return response;
  });
  CHECK(run({"round", "explain", "r-1"}) == 0);
  CHECK(run.out() == "It waits for 24 more contributions.\n  - 20 tasks are queued.\ntry: Start more workers.\n");
}

TEST_CASE("round result writes .safetensors as it is and .npz for numpy, and overwrites nothing") {
  auto directory = TemporaryDirectory::Create("/tmp", "sheaf-cli-");
  REQUIRE(directory.ok());
  const std::string file = SmallAggregate();
  CommandRun run;
  AnswerAggregate(run, file, Sha256Hex(file));
  const std::string tensors = directory->path() + "/w.safetensors", npz = directory->path() + "/w.npz";
  CHECK(run({"round", "result", "r-1", "-o", tensors}) == 0);
  CHECK(*ReadFile(tensors) == file);
  CHECK(run.out().empty());
  CHECK(run({"round", "result", "r-1", "-o", npz}) == 0);
  CHECK_THAT(run.err(), Contains("w  FLOAT32 [2, 2]"));
  CHECK_THAT(*ReadFile(npz), StartsWith("PK\x03\x04"));
  CHECK(run({"round", "result", "r-1", "-o", npz}) == 7);
  CHECK_THAT(run.err(), Contains("exists already\nhint: add --force"));
  CHECK(run({"round", "result", "r-1", "-o", npz, "--force"}) == 0);
  CHECK(run({"round", "result", "r-1", "-o", directory->path() + "/w.txt"}) == 2);
}

TEST_CASE("round result writes a table with string keys for numpy, too") {
  auto directory = TemporaryDirectory::Create("/tmp", "sheaf-cli-");
  REQUIRE(directory.ok());
  const std::string file = EncodeSafetensors(
      std::vector<NamedTensor>{{.name = "t.keys", .dtype = v1::UINT8, .shape = {2}, .data = "ab"}}, {});
  CommandRun run;
  AnswerAggregate(run, file, Sha256Hex(file));
  const std::string npz = directory->path() + "/t.npz";
  CHECK(run({"round", "result", "r-1", "-o", npz}) == 0);
  CHECK_THAT(run.err(), Contains("t.keys  UINT8 [2]"));
  CHECK_THAT(*ReadFile(npz), Contains("'descr': '|u1'"));
}

TEST_CASE("A result whose bytes do not have the server's digest is not written") {
  auto directory = TemporaryDirectory::Create("/tmp", "sheaf-cli-");
  REQUIRE(directory.ok());
  CommandRun run;
  AnswerAggregate(run, SmallAggregate(), Sha256Hex("something else"));
  const std::string path = directory->path() + "/w.npz";
  CHECK(run({"round", "result", "r-1", "-o", path}) == 1);
  CHECK_FALSE(FileExists(path));
}

TEST_CASE("A result that is not there yet is exit code 7, with the way to wait for it") {
  auto directory = TemporaryDirectory::Create("/tmp", "sheaf-cli-");
  REQUIRE(directory.ok());
  CommandRun run;
  run.server.On(kReadAggregate, [](const v1::ReadAggregateRequest&) -> absl::StatusOr<v1::ReadAggregateResponse> {
    return absl::FailedPreconditionError("round r-1 is COLLECTING and has no aggregate yet");
  });
  CHECK(run({"round", "result", "r-1", "-o", directory->path() + "/w.npz"}) == 7);
  CHECK_THAT(run.err(), Contains("hint: 'sheaf round wait r-1' waits for it"));
}

}  // namespace
}  // namespace sheaf
