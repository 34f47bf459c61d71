#include "cli/command_line.h"

#include <catch2/catch.hpp>

#include "cli/commands.h"
#include "tests/cli/command_run.h"
#include "tests/cli/sample_messages.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

void AnswerRounds(CommandRun& run) {
  run.server.On(kListRounds, [](const v1::ListRoundsRequest&) -> absl::StatusOr<v1::ListRoundsResponse> {
    v1::ListRoundsResponse response;
    *response.add_rounds() = SucceededRound();
    return response;
  });
}

TEST_CASE("sheaf alone shows the commands and examples") {
  CommandRun run;
  CHECK(run({}) == 0);
  CHECK_THAT(run.out(), StartsWith("sheaf inspects a Sheaf server and gives it work.\n"));
  CHECK_THAT(run.out(), Contains("  round    create|open|list|describe|watch|wait|cancel|explain|result|trace\n"));
  CHECK_THAT(run.out(), Contains("sheaf demo tags"));
  CHECK(run.err().empty());
}

TEST_CASE("Every command has help with an example, and no line of it ends in blanks") {
  CommandRun run;
  for (const CommandRow& row : CommandTable()) {
    std::vector<std::string> words;
    if (!row.noun.empty()) words.emplace_back(row.noun);
    words.emplace_back(row.verb);
    words.emplace_back("--help");
    CAPTURE(words);
    CHECK(run(words) == 0);
    CHECK_THAT(run.out(), Contains("Usage: sheaf " + CommandName(row)));
    CHECK_THAT(run.out(), Contains("\nExample\n  sheaf "));
    CHECK_THAT(run.out(), Contains("--server ADDRESS"));
    CHECK(run.out().find(" \n") == std::string::npos);
    CHECK(run.err().empty());
  }
}

TEST_CASE("The options of every command may stand before the noun or after the verb") {
  CommandRun run;
  AnswerRounds(run);
  CHECK(run({"-s", "one:1", "round", "list"}) == 0);
  CHECK(run.connected_to == "one:1");
  CHECK(run({"round", "list", "--server", "two:2"}) == 0);
  CHECK(run.connected_to == "two:2");
  CHECK(run({"round", "--server=three:3", "list"}) == 0);
  CHECK(run.connected_to == "three:3");
}

TEST_CASE("A flag beats the environment, and the environment beats the default") {
  CommandRun run;
  AnswerRounds(run);
  CHECK(run({"round", "list"}) == 0);
  CHECK(run.connected_to == "127.0.0.1:7433");
  run.environment["SHEAF_SERVER"] = "from-environment:1";
  run.environment["SHEAF_POPULATION"] = "hospital";
  CHECK(run({"round", "list"}) == 0);
  CHECK(run.connected_to == "from-environment:1");
  CHECK_THAT(run.server.requests.back(), Contains("population: \"hospital\""));
  CHECK(run({"round", "list", "-s", "from-flag:1", "--population", "lab"}) == 0);
  CHECK(run.connected_to == "from-flag:1");
  CHECK_THAT(run.server.requests.back(), Contains("population: \"lab\""));
}

TEST_CASE("Every call takes the time limit of --timeout, in units or in bare seconds") {
  CommandRun run;
  AnswerRounds(run);
  CHECK(run({"round", "list"}) == 0);
  CHECK(run.server.timeouts.back() == absl::Seconds(30));
  CHECK(run({"round", "list", "--timeout", "1m30s"}) == 0);
  CHECK(run.server.timeouts.back() == absl::Seconds(90));
  CHECK(run({"round", "list", "--timeout", "2.5"}) == 0);
  CHECK(run.server.timeouts.back() == absl::Seconds(2.5));
  CHECK(run({"round", "list", "--timeout", "soon"}) == 2);
  CHECK_THAT(run.err(), Contains("error: --timeout: 'soon' is not a duration such as 30s, 5m or 1h30m\n"));
}

TEST_CASE("Colours appear on a terminal, not in a pipe, not with NO_COLOR, and always when asked for") {
  CommandRun run;
  AnswerRounds(run);
  const auto is_coloured = [&](std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"round", "list"};
    words.insert(words.end(), more.begin(), more.end());
    CHECK(run(words) == 0);
    return run.out().find('\x1b') != std::string::npos;
  };
  CHECK_FALSE(is_coloured());
  run.is_terminal = true;
  CHECK(is_coloured());
  CHECK_FALSE(is_coloured({"--color", "never"}));
  run.environment["NO_COLOR"] = "1";
  CHECK_FALSE(is_coloured());
  CHECK(is_coloured({"--color", "always"}));
  run.environment.clear();
  run.environment["TERM"] = "dumb";
  CHECK_FALSE(is_coloured());
}

TEST_CASE("The round that the help shows is one") {
  CommandRun run;
  CHECK(run({"help", "round-spec"}) == 0);
  const size_t begin = run.out().find("  {\n");
  const size_t end = run.out().find("\n  }\n");
  REQUIRE(end != std::string::npos);
  run.server.On(kCreateRound, [](const v1::CreateRoundRequest& request) -> absl::StatusOr<v1::CreateRoundResponse> {
    CHECK(request.spec().deadline().seconds() == 600);
    CHECK(request.spec().listed().tasks(2).payload() == "3");
    return v1::CreateRoundResponse();
  });
  run.in.str(run.out().substr(begin, end + 4 - begin));
  CHECK(run({"round", "create", "-f", "-"}) == 0);
}

TEST_CASE("A mistyped noun, verb or option gets the nearest right one, and exit code 2") {
  CommandRun run;
  CHECK(run({"rond", "list"}) == 2);
  CHECK(run.err() == "error: there is no command 'rond'\nhint: did you mean 'round'?\n");
  CHECK(run({"round", "lst"}) == 2);
  CHECK(run.err() == "error: unknown verb 'lst'\nhint: did you mean 'list'?\n");
  CHECK(run({"round", "desc", "r-1"}) == 2);
  CHECK_THAT(run.err(), Contains("did you mean 'describe'?"));
  CHECK(run({"round", "list", "--stat", "FAILED"}) == 2);
  CHECK(run.err() == "error: unknown option '--stat'\nhint: did you mean '--state'?\n");
  CHECK(run({"round", "create", "-w", "-f", "-"}) == 2);
  CHECK(run.err() == "error: unknown option '-w'\nhint: did you mean '--wait'?\n");
  CHECK(run({"round", "create", "-x"}) == 2);
  CHECK(run.err() == "error: unknown option '-x'\nhint: 'sheaf round create --help' shows the options\n");
  CHECK(run({"frobnicate"}) == 2);
  CHECK_THAT(run.err(), Contains("hint: 'sheaf --help' shows the commands\n"));
  CHECK(run({"--bogus"}) == 2);
  CHECK(run.out().empty());
}

TEST_CASE("Usage errors are exit code 2, whatever the argument library calls them") {
  CommandRun run;
  CHECK(run({"round"}) == 2);
  CHECK_THAT(run.err(), Contains("error: 'sheaf round' needs a verb"));
  CHECK(run({"round", "describe"}) == 2);
  CHECK_THAT(run.err(), StartsWith("error: ROUND is missing: the round's id\n"));
  CHECK(run({"round", "describe", "r-1", "r-2"}) == 2);
  CHECK_THAT(run.err(), StartsWith("error: 'r-2' is one argument too many\n"));
  CHECK(run({"round", "list", "--limit", "many"}) == 2);
  CHECK_THAT(run.err(), StartsWith("error: --limit: 'many' is not a whole number\n"));
  CHECK(run({"round", "list", "--limit", "-1"}) == 2);
  CHECK(run({"round", "list", "--limit"}) == 2);
  CHECK(run({"round", "list", "--state", "RUNNING"}) == 2);
  CHECK_THAT(run.err(), Contains("'RUNNING' is none of ANNOUNCED, COLLECTING"));
  CHECK(run({"round", "list", "-o", "yaml"}) == 2);
  CHECK(run({"round", "create"}) == 2);
  CHECK_THAT(run.err(), StartsWith("error: -f,--file FILE is missing\n"));
}

TEST_CASE("A worker or round may bear the name of a noun") {
  CommandRun run;
  run.server.On(kDrainWorker, [](const v1::DrainWorkerRequest& request) -> absl::StatusOr<v1::DrainWorkerResponse> {
    v1::DrainWorkerResponse response;
    response.mutable_worker()->set_name(request.worker());
    response.mutable_worker()->set_is_parked(true);
    return response;
  });
  CHECK(run({"worker", "drain", "demo"}) == 0);
  CHECK(run.out() == "worker demo is drained: it holds nothing and gets nothing\n");
}

TEST_CASE("A call whose connection is closed in the middle is made once more, with the same request id") {
  for (const std::string lost : {"Socket closed", "recvmsg:Connection reset by peer"}) {
    for (const int num_lost : {1, 2}) {
      CAPTURE(lost, num_lost);
      CommandRun run;
      std::vector<std::string> request_ids;
      run.server.On(kDrainWorker,
                    [&](const v1::DrainWorkerRequest& request) -> absl::StatusOr<v1::DrainWorkerResponse> {
                      request_ids.push_back(request.request_id());
                      if (static_cast<int>(request_ids.size()) <= num_lost) return absl::UnavailableError(lost);
                      return v1::DrainWorkerResponse();
                    });
      CHECK(run({"worker", "drain", "w1"}) == (num_lost == 1 ? 0 : 5));
      REQUIRE(request_ids.size() == 2);
      CHECK(request_ids[0] == request_ids[1]);
    }
  }
  // Whom nobody listens to need not wait.
  CommandRun run;
  int num_calls = 0;
  run.server.On(kDescribeQueue, [&](const v1::DescribeQueueRequest&) -> absl::StatusOr<v1::DescribeQueueResponse> {
    ++num_calls;
    return absl::UnavailableError("failed to connect to all addresses");
  });
  CHECK(run({"queue", "describe"}) == 5);
  CHECK(num_calls == 1);
}

TEST_CASE("A server that is drained is said to be, and that nobody is there to take over if nobody is") {
  CommandRun run;
  v1::DrainServerResponse drained;
  run.server.On(kDrainServer, [&](const v1::DrainServerRequest& request) -> absl::StatusOr<v1::DrainServerResponse> {
    drained.mutable_server()->set_name(request.server());
    drained.mutable_server()->set_is_draining(!request.undo());
    return drained;
  });
  v1::ListServersResponse servers;
  run.server.On(kListServers,
                [&](const v1::ListServersRequest&) -> absl::StatusOr<v1::ListServersResponse> { return servers; });
  v1::Server* const itself = servers.add_servers();
  itself->set_name("blue");
  itself->set_is_draining(true);
  v1::Server* const other = servers.add_servers();
  other->set_name("red");
  drained.mutable_server()->set_is_owner(true);
  CHECK(run({"server", "drain", "blue"}) == 0);
  CHECK(
      run.out() ==
      "server blue gives what it owns to the others, and takes nothing more until 'sheaf server drain --undo blue'\n");
  CHECK(run.err().empty());
  drained.mutable_server()->set_is_owner(false);
  other->mutable_silent_for()->set_seconds(60);
  CHECK(run({"server", "drain", "blue"}) == 0);
  CHECK(run.out() == "server blue owns nothing, and takes nothing more until 'sheaf server drain --undo blue'\n");
  CHECK(run.err() == "note: no other server is in service: blue goes on until there is one\n");
  other->clear_silent_for();
  other->set_is_draining(true);
  CHECK(run({"server", "drain", "blue"}) == 0);
  CHECK_THAT(run.err(), StartsWith("note: no other server is in service"));
  other->set_is_owner(true);
  CHECK(run({"server", "list"}) == 0);
  CHECK_THAT(run.out(), Contains("DRAINED"));
  CHECK_THAT(run.out(), Contains("DRAINING"));
  CHECK(run({"server", "drain", "--undo", "blue"}) == 0);
  CHECK(run.out() == "server blue is back in service\n");
  CHECK(run.err().empty());
  CHECK(run({"server", "drain"}) == 2);
}

TEST_CASE("The status of a call decides the exit code") {
  const std::pair<absl::Status, int> kCases[] = {
      {absl::InternalError("x"), 1},           {absl::DataLossError("x"), 1},
      {absl::ResourceExhaustedError("x"), 1},  {absl::UnknownError("x"), 1},
      {absl::InvalidArgumentError("x"), 2},    {absl::NotFoundError("x"), 3},
      {absl::PermissionDeniedError("x"), 4},   {absl::UnauthenticatedError("x"), 4},
      {absl::UnavailableError("x"), 5},        {absl::DeadlineExceededError("x"), 6},
      {absl::FailedPreconditionError("x"), 7},
  };
  for (const auto& [status, code] : kCases) {
    CommandRun run;
    run.server.On(kDescribeQueue,
                  [&status = status](const v1::DescribeQueueRequest&) -> absl::StatusOr<v1::DescribeQueueResponse> {
                    return status;
                  });
    CAPTURE(status.ToString());
    CHECK(run({"queue", "describe"}) == code);
    CHECK(run.out().empty());
    CHECK_THAT(run.err(), StartsWith("error: "));
    CHECK_THAT(run.err(), Contains("\nhint: "));
  }
}

TEST_CASE("help exit-codes prints the table that scripts can rely on") {
  CommandRun run;
  CHECK(run({"help", "exit-codes"}) == 0);
  CHECK(run.out() ==
        "Exit codes of sheaf:\n"
        "    0  it worked\n"
        "    1  it failed; or the round that it waited for failed or was cancelled\n"
        "    2  the command line or the file given to it is wrong\n"
        "    3  no such round, task, worker or file\n"
        "    4  the server or the file system refused\n"
        "    5  the server cannot be reached\n"
        "    6  it took longer than --timeout\n"
        "    7  the state of the round, task or store does not allow it (yet, or any more)\n"
        "  130  interrupted by Ctrl-C\n");
  CHECK(run({"help", "environment"}) == 0);
  CHECK_THAT(run.out(), Contains("SHEAF_SERVER") && Contains("NO_COLOR"));
  CHECK(run({"help", "round"}) == 0);
  CHECK(run({"help", "love"}) == 2);
}

TEST_CASE("A server that cannot be reached is named, with the way to start or find one") {
  CommandRun run;
  run.server.On(kGetServerInfo, [](const v1::GetServerInfoRequest&) -> absl::StatusOr<v1::GetServerInfoResponse> {
    return absl::UnavailableError(
        "the server at edge.example.org:7433 cannot be reached: failed to connect to all addresses; last error: "
        "UNKNOWN: "
        "ipv4:192.0.2.1:7433: Failed to connect to remote host: Connection refused");
  });
  CHECK(run({"server", "info", "-s", "edge.example.org:7433"}) == 5);
  CHECK(run.err() ==
        "error: cannot reach a Sheaf server at edge.example.org:7433: Connection refused\n"
        "hint: start one with 'sheafd', or name another with --server HOST:PORT or SHEAF_SERVER\n");
}

TEST_CASE("What does not exist is exit code 3, with the way to what does") {
  CommandRun run;
  run.server.On(kGetTask, [](const v1::GetTaskRequest& request) -> absl::StatusOr<v1::GetTaskResponse> {
    return absl::NotFoundError("there is no task " + request.task());
  });
  CHECK(run({"task", "describe", "r-1/0"}) == 3);
  CHECK(run.err() == "error: there is no task r-1/0\nhint: 'sheaf task list' shows those there are\n");
}

TEST_CASE("A server's text cannot move the cursor of a terminal") {
  CommandRun run;
  run.server.On(kExplainRound, [](const v1::ExplainRoundRequest&) -> absl::StatusOr<v1::ExplainRoundResponse> {
    v1::ExplainRoundResponse response;
    response.set_summary("waits\x1b[2J\nfor workers");
    return response;
  });
  CHECK(run({"round", "explain", "r-1"}) == 0);
  CHECK(run.out() == "waits?[2J?for workers\n");
}

}  // namespace
}  // namespace sheaf
