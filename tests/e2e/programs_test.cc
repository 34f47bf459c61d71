// Workers that run other people's programs, as real processes: the examples of the docs, and what is left of a program
// when its worker is killed, its round is cancelled, its lease is lost.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "aggregation/wire/safetensors.h"
#include "sdk/cpp/client/round_client.h"
#include "tests/e2e/rounds.h"
#include "tests/worker/living_processes.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

constexpr absl::Duration kSoon = absl::Seconds(20);
// What counts as at once where a worker has to hear of it by a call first.
constexpr absl::Duration kLease = absl::Seconds(2);

std::string Example(const std::string& name) { return SHEAF_SOURCE "/docs/examples/" + name; }

// A federation, and a folder whose path no other process of this machine has in its command line. Nothing of its
// programs is left when it ends.
class Scene {
 public:
  Scene() { Write("empty", ""); }
  ~Scene() noexcept(false) {
    federation_.reset();
    if (std::uncaught_exceptions() > 0) return;
    // Workers end before those who kill and delete after them.
    WaitUntil("nobody is left of their programs", kSoon, [this] { return LivingProcesses(folder()).empty(); });
    WaitUntil("nothing is left of their tasks", kSoon, [this] {
      return !std::filesystem::exists(Path("scratch")) || std::filesystem::is_empty(Path("scratch"));
    });
  }

  Federation& federation() { return *federation_; }
  Transport& transport() { return federation_->transport(); }
  const std::string& folder() const { return folder_.path(); }
  std::string Path(const std::string& name) const { return folder() + "/" + name; }
  std::string Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(Path(name)).parent_path());
    std::ofstream(Path(name)) << text;
    return Path(name);
  }
  std::string Read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(Path(name)).rdbuf();
    return text.str();
  }
  bool Has(const std::string& name) const { return std::filesystem::exists(Path(name)); }
  // Its path. It finds $SHOP, this folder, and $STAY, a command that stays. The path of what that looks at is in no
  // other command line.
  std::string Program(const std::string& name, const std::string& script) const {
    std::string path = Write(name, "#!/bin/sh\nSTAY=\"tail -f $SHOP/empty\"\n" + script + "\n");
    std::filesystem::permissions(path, std::filesystem::perms(0755));
    return path;
  }

  ChildProcess& StartWorker(const std::string& name, std::vector<std::string> arguments) {
    std::filesystem::create_directories(Path("scratch"));
    arguments.insert(arguments.end(), {"--scratch", Path("scratch"), "--env", "SHOP=" + folder()});
    return federation().StartWorker(name, arguments);
  }

  // Each task adds a number to the output "words".
  v1::RoundSpec ARound(const std::string& computation, int num_tasks) const {
    v1::RoundSpec spec;
    spec.set_job("e2e");
    spec.mutable_computation()->set_name(computation);
    v1::OutputSpec& output = *spec.mutable_aggregate()->add_outputs();
    output.set_name("words");
    output.set_operator_("sum");
    output.set_dtype(v1::INT64);
    spec.mutable_open_slots()->set_count(num_tasks);
    spec.mutable_lease_duration()->set_seconds(absl::ToInt64Seconds(kLease));
    spec.mutable_deadline()->set_seconds(300);
    return spec;
  }
  std::string StartRound(const v1::RoundSpec& spec) { return sheaf::StartRound(federation(), spec); }
  int64_t WordsOf(const std::string& round) {
    const absl::StatusOr<std::string> file = ReadAggregate(transport(), round);
    REQUIRE(file.ok());
    const absl::StatusOr<SafetensorsView> view = SafetensorsView::Parse(*file);
    REQUIRE(view.ok());
    const absl::StatusOr<const TensorView*> words = view->Find("words");
    REQUIRE(words.ok());
    int64_t value = 0;
    REQUIRE((*words)->data.size() == sizeof(value));
    std::memcpy(&value, (*words)->data.data(), sizeof(value));
    return value;
  }
  void WaitUntilLeasedBy(const std::string& round, const std::string& worker) {
    WaitUntil(worker + " holds a task", kSoon, [&] {
      for (const v1::Task& task : TasksOf(transport(), round, v1::LEASED)) {
        if (task.worker() == worker) return true;
      }
      return false;
    });
  }
  std::vector<pid_t> living() const { return LivingProcesses(Path("empty")); }

 private:
  TemporaryDirectory folder_ = ScratchDirectory();
  std::optional<Federation> federation_{std::in_place};
};

// What a program does to return the number 7.
constexpr char kReturnsSeven[] =
    "{ printf '\\071\\0\\0\\0\\0\\0\\0\\0'; printf '%s' "
    "'{\"words\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}'; "
    "printf '\\007\\0\\0\\0\\0\\0\\0\\0'; } >\"$SHEAF_TASK_DIR/result.safetensors\"";

TEST_CASE(
    "The examples of the docs count words: ten lines of shell, and a process that stays in twenty-five of JavaScript") {
  Scene scene;
  scene.Write("texts/a.txt", "to be or not to be\n");
  scene.Write("texts/b.txt", "that is the question\n");
  scene.Write("texts/notes.md", "not counted\n");
  const std::string data = "texts=" + scene.Path("texts");
  struct Case {
    const char* worker;
    std::vector<std::string> arguments;
  };
  std::vector<Case> cases = {{"shell", {"--run", "count_words=" + Example("count_words.sh")}}};
  if (RunCommand({"/bin/sh", "-c", "command -v node"}).exit_code == 0) {
    cases.push_back({"node", {"--serve", "count_words=node " + Example("count_words.js"), "--concurrency", "2"}});
  } else {
    WARN("skipped: there is no node here");
  }
  for (Case& c : cases) {
    INFO(c.worker);
    c.arguments.insert(c.arguments.end(), {"--data", data});
    ChildProcess& worker = scene.StartWorker(c.worker, c.arguments);
    const CommandRun run = scene.federation().Sheaf({"round", "create", "-f", Example("count_words.json"), "--wait"});
    INFO(run.out << run.err);
    REQUIRE(run.exit_code == 0);
    const std::string round = scene.StartRound(scene.ARound("count_words", 20));
    Await(scene.federation(), round);
    CHECK(scene.WordsOf(round) == 20 * 10);
    worker.Terminate();
    CHECK(EndOf(worker, kSoon) == "exit code 0");
  }
}

TEST_CASE("A round survives a worker that is killed, and nobody and nothing of its programs is left") {
  Scene scene;
  const std::string program =
      scene.Program("seven", "[ \"$MODE\" = stay ] && { echo x >\"$HOME/file\"; (setsid $STAY &) ; $STAY; }\n" +
                                 std::string(kReturnsSeven));
  scene.StartWorker("doomed", {"--run", "seven=" + program, "--env", "MODE=stay", "--concurrency", "2"});
  const std::string round = scene.StartRound(scene.ARound("seven", 6));
  WaitUntil("its programs live", kSoon, [&] { return scene.living().size() == 4; });
  scene.federation().KillWorker("doomed");
  const SystemClock clock;
  const absl::Time killed = clock.Now();
  WaitUntil("nobody is left", kSoon, [&] { return LivingProcesses(scene.folder()).empty(); });
  const absl::Duration took = clock.Now() - killed;
  WaitUntil("nothing is left", kSoon, [&] { return std::filesystem::is_empty(scene.Path("scratch")); });
  scene.StartWorker("heir", {"--run", "seven=" + program});
  const v1::Round ended = Await(scene.federation(), round);
  CHECK(scene.WordsOf(round) == 6 * 7);
  CHECK(ended.num_lost_attempts() == 2);
  Measured("nobody was left {} after the kill", absl::FormatDuration(took));
}

TEST_CASE("A worker that is told to stop without grace ends its programs and gives their tasks back") {
  Scene scene;
  ChildProcess& worker =
      scene.StartWorker("hasty", {"--serve", "stay=" + scene.Program("stay", "trap '' TERM; $STAY"), "--grace", "0s"});
  const std::string round = scene.StartRound(scene.ARound("stay", 1));
  WaitUntil("its program lives", kSoon, [&] { return scene.living().size() == 1; });
  worker.Terminate();
  CHECK(EndOf(worker, kSoon) == "exit code 0");
  WaitUntil("nobody is left", kSoon, [&] { return LivingProcesses(scene.folder()).empty(); });
  const std::vector<v1::Task> queued = TasksOf(scene.transport(), round, v1::QUEUED);
  REQUIRE(queued.size() == 1);
  CHECK(TaskOf(scene.transport(), queued[0].id()).attempts(0).outcome() == v1::ATTEMPT_RELEASED);
}

TEST_CASE("A round that is cancelled ends the programs that run for it, and the worker takes the next") {
  Scene scene;
  const std::string program =
      scene.Program("seven", "[ -e $SHOP/go ] || { trap '' TERM; $STAY; }\n" + std::string(kReturnsSeven));
  scene.StartWorker("leaf", {"--run", "seven=" + program, "--concurrency", "2"});
  const std::string cancelled = scene.StartRound(scene.ARound("seven", 2));
  WaitUntil("its programs live", kSoon, [&] { return scene.living().size() == 2; });
  REQUIRE(scene.federation().Sheaf({"round", "cancel", cancelled}).exit_code == 0);
  WaitUntil("nobody is left", 2 * kLease, [&] { return scene.living().empty(); });
  scene.Write("go", "");
  const std::string round = scene.StartRound(scene.ARound("seven", 3));
  Await(scene.federation(), round);
  CHECK(scene.WordsOf(round) == 3 * 7);
}

TEST_CASE(
    "A program that hangs loses its lease and is ended, and the task goes on elsewhere; one that says it lives keeps "
    "it") {
  Scene scene;
  const std::string hangs = scene.Program("hangs", "$STAY");
  // For longer than a lease: its number grows.
  const std::string slow = scene.Program(
      "slow", "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do echo '{\"progress\": '$n'}' >&4; sleep 0.25; done\n" +
                  std::string(kReturnsSeven));
  scene.StartWorker("hung", {"--run", "seven=" + hangs});
  const std::string round = scene.StartRound(scene.ARound("seven", 1));
  scene.WaitUntilLeasedBy(round, "hung");
  const std::string task = TasksOf(scene.transport(), round)[0].id();
  scene.StartWorker("slow", {"--run", "seven=" + slow});
  const v1::Round ended = Await(scene.federation(), round);
  CHECK(scene.WordsOf(round) == 7);
  CHECK(ended.num_failed_attempts() == 0);
  const v1::Task done = TaskOf(scene.transport(), task);
  REQUIRE(done.attempts_size() == 2);
  CHECK(done.attempts(0).worker() == "hung");
  CHECK(done.attempts(0).outcome() == v1::ATTEMPT_LOST);
  CHECK(done.attempts(1).worker() == "slow");
  CHECK(done.attempts(1).outcome() == v1::ATTEMPT_SUCCEEDED);
  WaitUntil("the hung program is gone", kSoon, [&] { return scene.living().empty(); });
}

TEST_CASE(
    "What a program said of its failure is on the worker's log; the server hears its message only with "
    "--share-errors") {
  Scene scene;
  const std::string program = scene.Program(
      "fails",
      "read -r line <&3; echo 'Traceback of patient 4711' >&2\n"
      "echo '{\"failed\": \"ValueError in tags.py:31\", \"message\": \"no age of patient 4711\"}' >&4; $STAY");
  ChildProcess& closed = scene.StartWorker("closed", {"--serve", "closed=" + program});
  ChildProcess& open = scene.StartWorker("open", {"--serve", "open=" + program, "--share-errors"});
  for (ChildProcess* const worker : {&closed, &open}) {
    const bool is_open = worker == &open;
    v1::RoundSpec spec = scene.ARound(is_open ? "open" : "closed", 1);
    spec.mutable_retry()->set_failed_max(1);
    const std::string round = scene.StartRound(spec);
    const std::string task = TasksOf(scene.transport(), round)[0].id();
    WaitUntil("its attempt has failed", kSoon,
              [&] { return RoundOf(scene.transport(), round).num_failed_attempts() == 1; });
    const CommandRun run = scene.federation().Sheaf({"task", "describe", task});
    CHECK(run.exit_code == 0);
    CHECK_THAT(run.out, Contains("failed: ValueError in tags.py:31"));
    CHECK((run.out.find("no age of patient 4711") != std::string::npos) == is_open);
    // Never what it printed.
    CHECK_THAT(run.out, !Contains("Traceback"));
    const std::string log = worker->LogTail(100);
    CHECK_THAT(log, Contains("Traceback of patient 4711") && Contains("no age of patient 4711"));
  }
}

TEST_CASE("A task that a worker has no data for is done by another, and costs no attempt") {
  Scene scene;
  const std::string program = scene.Program("seven", "[ \"$SHEAF_DATA\" ] || exit 10\n" + std::string(kReturnsSeven));
  scene.StartWorker("poor", {"--run", "seven=" + program});
  const std::string round = scene.StartRound(scene.ARound("seven", 4));
  const std::string task = TasksOf(scene.transport(), round)[0].id();
  WaitUntil("it has declined", kSoon, [&] {
    for (const v1::Task& each : TasksOf(scene.transport(), round)) {
      if (TaskOf(scene.transport(), each.id()).attempts_size() > 0) return true;
    }
    return false;
  });
  scene.Write("texts/a.txt", "x");
  scene.StartWorker("rich", {"--run", "seven=" + program, "--data", "texts=" + scene.Path("texts")});
  const v1::Round ended = Await(scene.federation(), round);
  CHECK(scene.WordsOf(round) == 4 * 7);
  CHECK(ended.num_failed_attempts() == 0);
  CHECK(ended.num_lost_attempts() == 0);
}

TEST_CASE("A worker whose program declined offers it again after the pause, and not when its next call happens to be") {
  Scene scene;
  const std::string program =
      scene.Program("seven", "[ -e $SHOP/data ] || { touch $SHOP/declined; exit 10; }\n" + std::string(kReturnsSeven));
  scene.StartWorker("leaf", {"--run", "seven=" + program});
  const std::string round = scene.StartRound(scene.ARound("seven", 2));
  WaitUntil("it has declined", kSoon, [&] { return scene.Has("declined"); });
  scene.Write("data", "");
  const absl::Time start = scene.federation().clock().Now();
  Await(scene.federation(), round);
  const absl::Duration took = scene.federation().clock().Now() - start;
  CHECK(took < absl::Seconds(10));
  Measured("done {} after the data was there", absl::FormatDuration(took));
}

}  // namespace
}  // namespace sheaf
