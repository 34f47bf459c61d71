// CommandRun: one run of the command line against a scripted server, without a process.
//
//   CommandRun run;
//   run.server.On(kDescribeQueue, [](const auto&) { return v1::DescribeQueueResponse(); });
//   CHECK(run({"queue", "describe"}) == 0);
//   CHECK(run.err() == "");
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "tests/cli/scripted_transport.h"

namespace sheaf {

// Stands for the wire; the script outlives it.
class BorrowedTransport final : public Transport {
 public:
  explicit BorrowedTransport(Transport& inner) : inner_(inner) {}
  void CallMethod(std::string_view method, const google::protobuf::Message& request,
                  google::protobuf::Message* response, const CallOptions& options, Done done) override {
    inner_.CallMethod(method, request, response, options, std::move(done));
  }

 private:
  Transport& inner_;
};

// Time passes at once.
class ImmediateTimer final : public Timer {
 public:
  void After(absl::Duration, std::function<void()> callback) override { callback(); }
};

class CommandRun {
 public:
  int operator()(const std::vector<std::string>& args) {
    out_.str("");
    err_.str("");
    Host host{
        .in = in,
        .out = out_,
        .err = err_,
        .out_is_terminal = is_terminal,
        .err_is_terminal = is_terminal,
        .clock = clock,
        .random = random,
        .pause = [this](absl::Duration duration) { clock.Advance(duration); },
        .environment = [this](const std::string& name) -> std::optional<std::string> {
          const auto found = environment.find(name);
          if (found == environment.end()) return std::nullopt;
          return found->second;
        },
        .connect = [this](const std::string& address,
                          const ChannelOptions& options) -> absl::StatusOr<std::unique_ptr<Transport>> {
          connected_to = address;
          connected_with = options.security;
          return std::make_unique<BorrowedTransport>(server);
        },
        .timer = timer,
    };
    return RunCommandLine(args, host);
  }

  std::string out() const { return out_.str(); }
  std::string err() const { return err_.str(); }

  ScriptedTransport server;
  std::map<std::string, std::string> environment;
  bool is_terminal = false;
  // 2026-01-31T12:00:00Z.
  ManualClock clock{absl::FromUnixSeconds(1'769'860'800)};
  SeededRandom random{1};
  std::istringstream in;
  std::string connected_to;
  ChannelSecurity connected_with;

 private:
  ImmediateTimer timer;
  std::ostringstream out_;
  std::ostringstream err_;
};

}  // namespace sheaf
