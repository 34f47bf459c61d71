// What a server's answers cost the command line: time in proportion to what they hold. One row for each way in.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "cli/json_output.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/table.h"
#include "tests/cli/command_run.h"
#include "tests/cpu_time.h"

namespace sheaf {
namespace {

// Runs a command whose list has n rows, so many with each page; `fill` makes the i-th.
template <typename M, typename Fill>
std::function<void()> Listing(const M& method, std::vector<std::string> command, int64_t n, Fill fill) {
  auto run = std::make_shared<CommandRun>();
  run->server.On(method, [n, fill](const typename M::Request& request) -> absl::StatusOr<typename M::Response> {
    typename M::Response response;
    const int64_t first = request.page_token().empty() ? 0 : std::stoll(request.page_token());
    const int64_t end = std::min<int64_t>(n, first + 10);
    for (int64_t i = first; i < end; ++i) fill(i, response);
    if (end < n) response.set_next_page_token(std::to_string(end));
    return response;
  });
  command.insert(command.end(), {"--limit", "0"});
  return [run, command] { REQUIRE((*run)(command) == 0); };
}

struct Row {
  int64_t size;
  WorkOfSize make;
};

const std::map<std::string, Row>& Rows() {
  static const auto add_task = [](int64_t i, v1::ListTasksResponse& response) {
    v1::Task& task = *response.add_tasks();
    task.set_id(fmt::format("r-1/{}", i));
    task.set_state(v1::QUEUED);
    task.set_last_error(std::string(50, 'e'));
  };
  static const std::map<std::string, Row> rows = {
      {"tasks, page by page",
       {200,
        [](int64_t n) {
          return Listing(kListTasks, {"task", "list"}, n, add_task);
        }}},
      {"tasks, page by page, as JSON",
       {60,
        [](int64_t n) {
          return Listing(kListTasks, {"task", "list", "-o", "json"}, n, add_task);
        }}},
      {"rounds, page by page",
       {200,
        [](int64_t n) {
          return Listing(kListRounds, {"round", "list"}, n, [](int64_t i, v1::ListRoundsResponse& response) {
            v1::Round& round = *response.add_rounds();
            round.set_id(fmt::format("r-{}", i));
            round.set_state(v1::COLLECTING);
          });
        }}},
      {"workers, page by page",
       {200,
        [](int64_t n) {
          return Listing(kListWorkers, {"worker", "list"}, n, [](int64_t i, v1::ListWorkersResponse& response) {
            v1::Worker& worker = *response.add_workers();
            worker.set_name(fmt::format("w{}", i));
            worker.add_computations()->set_name("noop");
          });
        }}},
      {"one worker: labels and computations",
       {100,
        [](int64_t n) {
          return Listing(kListWorkers, {"worker", "list"}, 1, [n](int64_t, v1::ListWorkersResponse& response) {
            v1::Worker& worker = *response.add_workers();
            worker.set_name("w");
            for (int64_t i = 0; i < n; ++i) {
              worker.add_computations()->set_name(fmt::format("c{}", i));
              (*worker.mutable_labels())[fmt::format("l{}", i)] = "1";
            }
          });
        }}},
      {"tokens, page by page",
       {200,
        [](int64_t n) {
          return Listing(kListTokens, {"token", "list"}, n, [](int64_t i, v1::ListTokensResponse& response) {
            v1::Token& token = *response.add_tokens();
            token.set_id(fmt::format("t-{}", i));
            token.set_name("name");
            token.add_roles(v1::WORKER);
          });
        }}},
      {"one task: attempts",
       {100,
        [](int64_t n) {
          auto run = std::make_shared<CommandRun>();
          run->server.On(kGetTask, [n](const v1::GetTaskRequest&) -> absl::StatusOr<v1::GetTaskResponse> {
            v1::GetTaskResponse response;
            response.mutable_task()->set_id("r-1/0");
            for (int64_t i = 0; i < n; ++i) {
              v1::Attempt& attempt = *response.mutable_task()->add_attempts();
              attempt.set_number(static_cast<int32_t>(i));
              attempt.set_error(std::string(50, 'e'));
            }
            return response;
          });
          return [run] { REQUIRE((*run)({"task", "describe", "r-1/0"}) == 0); };
        }}},
      {"why a round waits: reasons and hints",
       {500,
        [](int64_t n) {
          auto run = std::make_shared<CommandRun>();
          run->server.On(kExplainRound,
                         [n](const v1::ExplainRoundRequest&) -> absl::StatusOr<v1::ExplainRoundResponse> {
                           v1::ExplainRoundResponse response;
                           for (int64_t i = 0; i < n; ++i) {
                             response.add_reasons("a reason of some length");
                             response.add_hints("a hint of some length");
                           }
                           return response;
                         });
          return [run] { REQUIRE((*run)({"round", "explain", "r-1"}) == 0); };
        }}},
      {"the limits of a server",
       {100,
        [](int64_t n) {
          auto run = std::make_shared<CommandRun>();
          run->server.On(kGetServerInfo,
                         [n](const v1::GetServerInfoRequest&) -> absl::StatusOr<v1::GetServerInfoResponse> {
                           v1::GetServerInfoResponse response;
                           for (int64_t i = 0; i < n; ++i) {
                             (*response.mutable_limits())[fmt::format("limit_{}", i)] = i;
                             response.add_operators(fmt::format("operator_{}", i));
                           }
                           return response;
                         });
          return [run] { REQUIRE((*run)({"server", "info"}) == 0); };
        }}},
      {"a long error",
       {20'000,
        [](int64_t n) {
          const absl::Status status = absl::UnavailableError("failed to connect to all addresses" +
                                                             std::string(static_cast<size_t>(n), ':') + "\x1b[2J");
          return [status] {
            std::ostringstream err;
            PrintError(err, status, {.server = "127.0.0.1:1", .noun = "round"}, false);
            REQUIRE(err.str().find('\x1b') == std::string::npos);
          };
        }}},
  };
  return rows;
}

TEST_CASE("Ten times as much in a server's answer takes the command line ten times as long") {
  for (const auto& [name, row] : Rows()) {
    INFO(name);
    CHECK(CpuRatio(row.make, row.size) <= kLinear);
  }
}

}  // namespace
}  // namespace sheaf
