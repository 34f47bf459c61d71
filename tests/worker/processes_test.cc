// Programs as a worker starts them: what they say, how they end, what they may use, and that nothing of them is left.
// Each test forks its host before it starts a thread, and so does nothing else in this binary.
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/storage/temporary_directory.h"
#include "tests/wait_until.h"
#include "tests/worker/living_processes.h"
#include "worker/processes/command_words.h"
#include "worker/processes/process_host.h"
#include "worker/processes/sandbox.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Kind = ProcessEvent::Kind;

constexpr absl::Duration kSoon = absl::Seconds(20);

struct Heard {
  std::vector<std::string> lines;
  // How it ended; "" if it has not.
  std::string end;
};

// Until it has said so many lines, or has ended.
Heard Hear(Process& process, size_t num_lines_max = 1000) {
  Heard heard;
  WaitUntil("the program says what it should", kSoon, [&] {
    const ProcessEvent event = process.Wait(absl::Milliseconds(50));
    if (event.kind == Kind::kLine) heard.lines.push_back(event.line);
    if (event.kind == Kind::kEnded) heard.end = process.end().Text();
    return event.kind == Kind::kEnded || heard.lines.size() == num_lines_max;
  });
  return heard;
}

// How it ended.
std::string EndOf(Process& process) { return Hear(process).end; }

// Those that started it close their ends a moment after it has begun.
void WaitUntilNobodyReads(Process& process) {
  WaitUntil("nobody reads its lines", kSoon, [&] { return absl::IsUnavailable(process.Say("line", kSoon)); });
}

// A host, and a folder whose path no other process of this machine has in its command line.
class Workshop {
 public:
  Workshop() {
    std::ofstream(folder() + "/empty").flush();
    absl::StatusOr<std::unique_ptr<ProcessHost>> host = ProcessHost::Start(folder(), clock_);
    REQUIRE(host.ok());
    host_ = *std::move(host);
  }

  const std::string& folder() const { return folder_.path(); }
  ProcessHost& host() { return *host_; }
  void EndHost() { host_.reset(); }

  ProcessSpec Spec(std::vector<std::string> arguments, const ProcessLimits& limits = {}) {
    const absl::StatusOr<std::string> directory = host_->MakeDirectory();
    REQUIRE(directory.ok());
    return {.arguments = std::move(arguments),
            .environment = {"PATH=/usr/bin:/bin", "DIR=" + *directory, "STAY=tail -f " + folder() + "/empty"},
            .directory = *directory,
            .limits = limits,
            .is_watched_at_once = true};
  }
  std::unique_ptr<Process> Start(const ProcessSpec& spec) {
    absl::StatusOr<std::unique_ptr<Process>> process = host_->Start(spec);
    INFO(process.status().ToString());
    REQUIRE(process.ok());
    return *std::move(process);
  }
  // The script finds its directory in $DIR, and in $STAY a command that stays until it is killed and can be found.
  std::unique_ptr<Process> Shell(const std::string& script, const ProcessLimits& limits = {}) {
    return Start(Spec({"/bin/sh", "-c", script, folder()}, limits));
  }
  // A file; its path.
  std::string Write(const std::string& name, const std::string& text, mode_t mode = 0755) {
    std::string path = folder() + "/" + name;
    std::ofstream(path) << text;
    REQUIRE(chmod(path.c_str(), mode) == 0);
    return path;
  }

  std::vector<pid_t> living() const { return LivingProcesses(folder()); }
  void WaitUntilNobodyLives() const {
    WaitUntil("all that it started is gone", kSoon, [this] { return living().empty(); });
  }

 private:
  SystemClock clock_;
  TemporaryDirectory folder_;
  std::unique_ptr<ProcessHost> host_;
};

TEST_CASE("A program hears lines, answers with lines, and its end comes after them") {
  Workshop shop;
  const auto process =
      shop.Shell("while read -r line <&3; do echo \"heard $line\" >&4; [ $line = last ] && exit 7; done");
  REQUIRE(process->Say("one", kSoon).ok());
  CHECK(Hear(*process, 1).lines == std::vector<std::string>{"heard one"});
  REQUIRE(process->Say("two", kSoon).ok());
  REQUIRE(process->Say("last", kSoon).ok());
  const Heard heard = Hear(*process);
  CHECK(heard.lines == std::vector<std::string>{"heard two", "heard last"});
  CHECK(heard.end == "exit code 7");
  // As often as one asks.
  CHECK(process->Wait(absl::ZeroDuration()).kind == Kind::kEnded);
}

TEST_CASE("How a program ended is told by its exit code, its signal, or why it never began") {
  Workshop shop;
  struct Case {
    const char* script;
    const char* end;
    std::vector<std::string> lines = {};
  };
  for (const Case& c :
       std::initializer_list<Case>{{"exit 0", "exit code 0"},
                                   {"exit 137", "exit code 137"},
                                   {"kill -KILL $$", "signal 9 (Killed)"},
                                   {"kill -SEGV $$", "signal 11 (Segmentation fault)"},
                                   {"printf 'one\\n\\ntwo\\nno end of a line' >&4", "exit code 0", {"one", "", "two"}},
                                   {"exec 3<&- 4>&- 1>&- 2>&-; exit 5", "exit code 5"}}) {
    INFO(c.script);
    const Heard heard = Hear(*shop.Shell(c.script));
    CHECK(heard.end == c.end);
    CHECK(heard.lines == c.lines);
  }
  const std::string nothing = shop.folder() + "/nothing";
  for (const auto& [program, end] : {std::pair(nothing, "No such file or directory"),
                                     {shop.Write("not_executable", "#!/bin/sh\n", 0644), "Permission denied"},
                                     {shop.Write("no_program", "words\n"), "Exec format error"},
                                     {shop.Write("no_interpreter", "#!" + nothing + "\n"), "No such file or directory"},
                                     {shop.folder(), "Permission denied"}}) {
    const auto process = shop.Start(shop.Spec({program}));
    CHECK(EndOf(*process) == fmt::format("it could not be started: {}", end));
    CHECK(process->end().exit_code == -1);
    // Nobody is there to hear.
    WaitUntilNobodyReads(*process);
  }
}

TEST_CASE("A program finds nothing open but its own descriptors, and no variable that nobody gave it") {
  Workshop shop;
  // Somebody left this open when the worker started.
  const Descriptor left(dup(STDERR_FILENO));
  const auto printed_by = [&](std::vector<std::string> arguments) {
    ProcessSpec spec = shop.Spec(std::move(arguments));
    spec.environment = {"PATH=/usr/bin:/bin", "TEXT=not \xff UTF-8"};
    const auto process = shop.Start(spec);
    CHECK(EndOf(*process) == "exit code 0");
    return process->printed();
  };
  // The last is the folder that it lists.
  CHECK(printed_by({"/bin/ls", "/proc/self/fd"}) == "0\n1\n2\n3\n4\n5\n");
  CHECK(printed_by({"/usr/bin/env"}) == "PATH=/usr/bin:/bin\nTEXT=not \xff UTF-8\n");
}

TEST_CASE("Arguments that no message holds are refused before anything is started") {
  Workshop shop;
  const absl::Status status = shop.host().Start(shop.Spec({"/bin/true", std::string(200 << 10, 'x')})).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Contains("at most 131072 are taken"));
  CHECK(EndOf(*shop.Shell("exit 3")) == "exit code 3");
}

TEST_CASE("Of what a program prints the end is kept, also if it prints for ever") {
  Workshop shop;
  const auto process = shop.Shell("head -c 1000000 /dev/zero | tr '\\0' x; echo; echo 'the end' >&2; exit 3");
  CHECK(EndOf(*process) == "exit code 3");
  CHECK(process->printed().size() == Process::kPrintedBytesMax);
  CHECK_THAT(process->printed(), Catch::Matchers::EndsWith("x\nthe end\n"));

  const auto endless = shop.Shell("yes 'the same again'");
  for (int turn = 0; turn < 200; ++turn) {
    REQUIRE(endless->Wait(absl::Milliseconds(50)).kind == Kind::kNothing);
    REQUIRE(endless->printed().size() <= Process::kPrintedBytesMax);
  }
  CHECK_THAT(endless->printed(), Contains("\nthe same again\nthe same again\n"));
  endless->Kill();
  CHECK(shop.living().empty());
}

TEST_CASE("A line may be as long as a line may be; a longer one ends the program, and the sentence says how long") {
  Workshop shop;
  const auto line_of = [&](size_t bytes) {
    return shop.Shell(fmt::format("head -c {} /dev/zero | tr '\\0' x >&4; echo >&4; $STAY", bytes));
  };
  const Heard longest = Hear(*line_of(Process::kLineBytesMax), 1);
  REQUIRE(longest.lines.size() == 1);
  CHECK(longest.lines.front().size() == Process::kLineBytesMax);
  CHECK(EndOf(*line_of(Process::kLineBytesMax + (64 << 10))) == "it said a line of more than 1048576 bytes");
  // Also if it never ends.
  CHECK(EndOf(*shop.Shell("cat /dev/zero >&4")) == "it said a line of more than 1048576 bytes");
  shop.WaitUntilNobodyLives();
}

TEST_CASE("Who does not read is not waited for, and who reads no more does not hurt the one who speaks") {
  Workshop shop;
  const auto deaf = shop.Shell("echo ready >&4; $STAY");
  Hear(*deaf, 1);
  absl::Status said;
  for (int line = 0; line < 10 && said.ok(); ++line) {
    said = deaf->Say(std::string(60'000, 'x'), absl::Milliseconds(20));
  }
  CHECK(absl::IsDeadlineExceeded(said));
  const auto closed = shop.Shell("exec 3<&-; echo ready >&4; $STAY");
  Hear(*closed, 1);
  WaitUntilNobodyReads(*closed);
  const auto gone = shop.Shell("exit 0");
  CHECK(EndOf(*gone) == "exit code 0");
  WaitUntilNobodyReads(*gone);
}

// --- Nobody is left ---

TEST_CASE("All that a program started goes with it, wherever it hides and however it ends") {
  Workshop shop;
  // A comet: each generation starts the next, and ends.
  const std::string comet = shop.Write("comet", "#!/bin/sh\n\"$0\" &\n");
  struct Hiding {
    const char* how;
    std::string script;
    size_t num_processes;
  };
  for (const Hiding& hiding : std::initializer_list<Hiding>{
           {"a child", "$STAY & ", 2},
           {"a session of its own", "setsid $STAY & ", 2},
           {"no parent", "($STAY &) ; (setsid sh -c '(setsid $STAY &)' $0 &) ; ", 3},
           {"signals ignored", "trap '' TERM INT HUP QUIT; $STAY & ", 2},
           {"a burst of forks", "i=0; while [ $i -lt 100 ]; do ($STAY &) ; i=$((i+1)); done; ", 101},
           {"forks without end", fmt::format("for i in 1 2 3 4 5 6 7 8; do {} & done; ", comet), 2}}) {
    for (const char* const end : {"killed", "destroyed", "by itself"}) {
      INFO(hiding.how << ", " << end);
      const bool ends_itself = end == std::string("by itself");
      auto process =
          shop.Shell(hiding.script + "echo ready >&4; read -r line <&3; " + (ends_itself ? "exit 4" : "$STAY"));
      Hear(*process, 1);
      WaitUntil("all of them live", kSoon, [&] { return shop.living().size() >= hiding.num_processes; });
      const std::string directory = process->directory();
      if (ends_itself) {
        REQUIRE(process->Say("go", kSoon).ok());
        CHECK(EndOf(*process) == "exit code 4");
        // It is told when all are gone.
        CHECK(shop.living().empty());
        // Whoever asked for it may look at what it left.
        CHECK(std::filesystem::exists(directory));
      } else if (end == std::string("killed")) {
        process->Kill();
        CHECK(shop.living().empty());
        CHECK(process->Wait(absl::ZeroDuration()).kind == Kind::kEnded);
      }
      process.reset();
      shop.WaitUntilNobodyLives();
      WaitUntil("its directory is gone", kSoon, [&] { return !std::filesystem::exists(directory); });
    }
  }
}

TEST_CASE("A program whose keeper is killed goes with it, and others are kept and started as before") {
  Workshop shop;
  auto other = shop.Shell("echo ready >&4; read -r line <&3; exit 5");
  Hear(*other, 1);
  auto process = shop.Shell("(setsid $STAY &) ; $STAY & kill -9 $PPID; $STAY");
  CHECK(EndOf(*process) == "the process that kept it was killed");
  WaitUntil("one is left", kSoon, [&] { return shop.living().size() == 1; });
  REQUIRE(other->Say("go", kSoon).ok());
  CHECK(EndOf(*other) == "exit code 5");
  CHECK(EndOf(*shop.Shell("exit 6")) == "exit code 6");
  other.reset();
  process.reset();
  const std::string scratch = shop.host().scratch();
  shop.EndHost();
  WaitUntil("the scratch directory is gone", kSoon, [&] { return !std::filesystem::exists(scratch); });
}

TEST_CASE("When its host ends, programs end, and the scratch directory goes") {
  Workshop shop;
  const std::string scratch = shop.host().scratch();
  struct stat status = {};
  REQUIRE(stat(scratch.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);
  auto process = shop.Shell("echo x >$DIR/file; $STAY");
  WaitUntil("it has written", kSoon, [&] { return std::filesystem::exists(process->directory() + "/file"); });
  process.reset();
  shop.EndHost();
  shop.WaitUntilNobodyLives();
  WaitUntil("the scratch directory is gone", kSoon, [&] { return !std::filesystem::exists(scratch); });
}

TEST_CASE("A worker that is killed where it stands leaves no process and no file") {
  const TemporaryDirectory folder;
  std::ofstream(folder.path() + "/empty").flush();
  int ready[2];
  REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
  const pid_t worker = fork();
  REQUIRE(worker >= 0);
  if (worker == 0) {
    const SystemClock clock;
    const auto host = ProcessHost::Start(folder.path(), clock);
    if (!host.ok()) _exit(1);
    std::vector<std::unique_ptr<Process>> processes;
    for (const char* const script :
         {"trap '' TERM; setsid tail -f $0/empty & wait", "(tail -f $0/empty &) ; tail -f $0/empty"}) {
      const std::string directory = *(*host)->MakeDirectory();
      processes.push_back(*(*host)->Start({.arguments = {"/bin/sh", "-c", script, folder.path()},
                                           .environment = {"PATH=/usr/bin:/bin"},
                                           .directory = directory}));
    }
    [[maybe_unused]] const ssize_t written = write(ready[1], "x", 1);
    for (;;) pause();
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  // Two shells, and what they started.
  WaitUntil("its programs live", kSoon, [&] { return LivingProcesses(folder.path()).size() == 5; });
  REQUIRE(kill(worker, SIGKILL) == 0);
  REQUIRE(waitpid(worker, nullptr, 0) == worker);
  WaitUntil("its programs are gone", kSoon, [&] { return LivingProcesses(folder.path()).empty(); });
  WaitUntil("its files are gone", kSoon,
            [&] { return std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1; });
  close(ready[0]);
  close(ready[1]);
}

// --- Limits ---

TEST_CASE("A program over a limit is ended with all that it started, and the limit is said") {
  Workshop shop;
  const std::string comet = shop.Write("comet", "#!/bin/sh\n\"$0\" &\n");
  constexpr int64_t kMegabyte = 1 << 20;
  const ProcessLimits cpu = {.cpu = absl::Milliseconds(300)};
  const ProcessLimits time = {.time = absl::Milliseconds(300)};
  const ProcessLimits memory = {.memory_bytes = 64 * kMegabyte};
  const ProcessLimits output = {.output_bytes = kMegabyte};
  struct Case {
    const char* what;
    std::string script;
    ProcessLimits limits;
    ProcessLimit exceeded;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"it computes", "while :; do :; done", cpu, ProcessLimit::kCpu},
           {"its children compute", "for i in 1 2 3; do (setsid sh -c 'while :; do :; done' $0 &) ; done; $STAY", cpu,
            ProcessLimit::kCpu},
           {"its children compute, and end",
            "while :; do sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'; done", cpu, ProcessLimit::kCpu},
           {"it waits", "$STAY", time, ProcessLimit::kTime},
           {"it ignores signals", "trap '' TERM INT HUP XCPU XFSZ; while :; do $STAY; done", time, ProcessLimit::kTime},
           {"children without parents end all the time", comet + " & $STAY", time, ProcessLimit::kTime},
           {"it eats memory", "tail </dev/zero", memory, ProcessLimit::kMemory},
           {"its children eat memory", "for i in 1 2 3; do (head -c 30000000 /dev/zero; $STAY) | tail & done; wait",
            memory, ProcessLimit::kMemory},
           {"one file grows", "cat /dev/zero >$DIR/file; $STAY", output, ProcessLimit::kOutput},
           {"one file grew, and it ends", "head -c 1048577 /dev/zero >$DIR/file", output, ProcessLimit::kOutput},
           {"it heeds no error", "trap '' XFSZ; cat /dev/zero >$DIR/file; exit 0", output, ProcessLimit::kOutput},
           {"many files", "i=0; while :; do i=$((i+1)); echo x >$DIR/$i; done", output, ProcessLimit::kOutput},
           {"files in folders", "d=$DIR; while :; do d=$d/f; mkdir $d; head -c 100000 /dev/zero >$d/file; done", output,
            ProcessLimit::kOutput},
           {"files of several names",
            "for i in 1 2 3; do head -c 600000 /dev/zero >$DIR/$i; ln $DIR/$i $DIR/again$i; done; $STAY", output,
            ProcessLimit::kOutput}}) {
    INFO(c.what);
    const auto process = shop.Shell(c.script, c.limits);
    const std::string end = EndOf(*process);
    CHECK(end == fmt::format("killed over its limit of {}", ProcessLimitName(c.exceeded)));
    CHECK(process->end().exceeded == c.exceeded);
    CHECK(shop.living().empty());
  }
}

TEST_CASE("A program within its limits is left alone") {
  Workshop shop;
  const ProcessLimits limits = {
      .cpu = absl::Seconds(20), .time = absl::Seconds(20), .memory_bytes = 256 << 20, .output_bytes = 1 << 20};
  // What it maps of files, and what a link leads to, is not its own.
  const auto process = shop.Shell(
      "head -c 1000000 /dev/zero >$DIR/file; ln -s /usr $DIR/link; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; "
      "exit 6",
      limits);
  CHECK(EndOf(*process) == "exit code 6");
}

TEST_CASE("What a program that stays uses counts while it is watched, from when that begins") {
  Workshop shop;
  ProcessSpec spec =
      shop.Spec({"/bin/sh", "-c",
                 "while read -r line <&3; do i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; echo done >&4; done",
                 shop.folder()},
                {.cpu = absl::Milliseconds(150)});
  spec.is_watched_at_once = false;
  const auto process = shop.Start(spec);
  // Far beyond the limit, and nobody watches.
  for (int turn = 0; turn < 2; ++turn) {
    REQUIRE(process->Say("compute", kSoon).ok());
    REQUIRE(Hear(*process, 1).lines.size() == 1);
  }
  process->Watch(process->directory());
  CHECK(process->is_watched());
  process->Rest();
  CHECK_FALSE(process->is_watched());
  REQUIRE(process->Say("compute", kSoon).ok());
  REQUIRE(Hear(*process, 1).lines.size() == 1);
  process->Watch(process->directory());
  CHECK(process->cpu_time() == absl::ZeroDuration());
  for (int turn = 0; turn < 5; ++turn) {
    if (!process->Say("compute", kSoon).ok()) break;
  }
  CHECK(EndOf(*process) == "killed over its limit of cpu");
  CHECK(process->cpu_time() > absl::Milliseconds(150));
  CHECK(process->cpu_time() < absl::Seconds(5));
}

// --- Commands ---

TEST_CASE("A command is cut into words as a shell does it, and nothing in it means anything else") {
  struct Case {
    const char* command;
    std::vector<std::string> words;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"python3 tags.py --lr 0.1", {"python3", "tags.py", "--lr", "0.1"}},
           {"  \t python3\n tags.py ", {"python3", "tags.py"}},
           {"python3 'my model.py'", {"python3", "my model.py"}},
           {"a\\ b \"c d\"e'f g'", {"a b", "c def g"}},
           {R"("say \"hi\" \\ \n" '\"')", {"say \"hi\" \\ \\n", "\\\""}},
           {"a '' \"\"", {"a", "", ""}},
           {"$HOME *.py | cat && `id` >file #no", {"$HOME", "*.py", "|", "cat", "&&", "`id`", ">file", "#no"}},
           {"caf\xc3\xa9 \xff", {"caf\xc3\xa9", "\xff"}}}) {
    INFO(c.command);
    const absl::StatusOr<std::vector<std::string>> words = CommandWords(c.command);
    REQUIRE(words.ok());
    CHECK(*words == c.words);
  }
  for (const auto& [command, sentence] :
       {std::pair("python3 'my model.py", "the quote ' in the command python3 'my model.py is not closed"),
        {"a \"b", "the quote \" in the command a \"b is not closed"},
        {"", "there is no command"},
        {"  ", "there is no command"}}) {
    CHECK(CommandWords(command).status() == absl::InvalidArgumentError(sentence));
  }
}

TEST_CASE("A program is looked for on the PATH, or is where its path says, and may be executed") {
  const TemporaryDirectory folder;
  for (const char* const name : {"/one", "/two", "/two/dir"}) std::filesystem::create_directory(folder.path() + name);
  const auto make = [&](const std::string& name, mode_t mode) {
    std::ofstream(folder.path() + name) << "#!/bin/sh\n";
    REQUIRE(chmod((folder.path() + name).c_str(), mode) == 0);
    return folder.path() + name;
  };
  const std::string first = make("/one/both", 0755);
  make("/two/both", 0755);
  const std::string second = make("/two/second", 0755);
  make("/one/second", 0644);
  const std::string plain = make("/one/plain", 0644);
  const std::string path = fmt::format("/nowhere::{0}/one:{0}/two", folder.path());
  CHECK(*FindExecutable("both", path) == first);
  // One that may not be executed is passed over, as a shell does it.
  CHECK(*FindExecutable("second", path) == second);
  CHECK(*FindExecutable(second, "") == second);
  for (const auto& [word, code, sentence] :
       {std::tuple(std::string("third"), absl::StatusCode::kNotFound,
                   "there is no executable third on the PATH " + path),
        {std::string("dir"), absl::StatusCode::kNotFound, "there is no executable dir on the PATH " + path},
        {folder.path() + "/three", absl::StatusCode::kNotFound,
         fmt::format("there is no file {}/three", folder.path())},
        {folder.path() + "/two", absl::StatusCode::kNotFound, "there is no file"},
        {std::string("plain"), absl::StatusCode::kPermissionDenied,
         fmt::format("{0} may not be executed: chmod +x {0}", plain)},
        {plain, absl::StatusCode::kPermissionDenied, fmt::format("{0} may not be executed: chmod +x {0}", plain)}}) {
    const absl::Status status = FindExecutable(word, path).status();
    CHECK(status.code() == code);
    CHECK_THAT(std::string(status.message()), Contains(sentence));
  }
}

// --- The sandbox ---

// A socket of ours that others can connect to, while it can be asked.
class Listening {
 public:
  Listening() {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    REQUIRE(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(listen(socket_.get(), 5) == 0);
    REQUIRE(getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port = ntohs(address.sin_port);
  }
  int port = 0;

 private:
  Descriptor socket_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
};

TEST_CASE("A program in the sandbox reaches no network, reads nothing hidden, and writes to its own directory only") {
  const absl::StatusOr<std::string> bwrap = FindExecutable("bwrap", std::getenv("PATH"));
  if (!bwrap.ok()) {
    WARN("skipped: there is no bubblewrap here");
    return;
  }
  Workshop shop;
  const Listening listening;
  const TemporaryDirectory data;
  std::ofstream(data.path() + "/ages.csv") << "31\n";
  const std::string secret = shop.Write("secret", "a secret\n");
  const auto run = [&](const std::string& script, bool is_sandboxed, const ProcessLimits& limits = {}) {
    ProcessSpec spec = shop.Spec({"/bin/bash", "-c", script, shop.folder()}, limits);
    spec.environment.push_back("DATA=" + data.path());
    if (is_sandboxed) {
      spec.arguments = Sandboxed(*bwrap, spec.arguments, {.writable = spec.directory, .readable = {data.path()}});
    }
    return shop.Start(spec);
  };
  const auto probe = run("exit 0", true);
  if (EndOf(*probe) != "exit code 0" && probe->printed().find("namespace") != std::string::npos) {
    WARN("skipped: bubblewrap may not make name spaces here: " + probe->printed());
    return;
  }
  struct Case {
    const char* what;
    std::string script;
    bool may;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"it connects to this machine", fmt::format("exec 9<>/dev/tcp/127.0.0.1/{}", listening.port), false},
           {"it reads what is hidden", "cat " + secret, false},
           {"it reads of other processes", fmt::format("ls /proc/{}", getpid()), false},
           {"it kills other processes", fmt::format("kill -0 {}", getpid()), false},
           {"it writes to what is hidden", "mkdir -p /tmp && echo x >/tmp/file.$$", false},
           {"it writes to its data", "echo x >$DATA/file.$$", false},
           {"it writes beside its directory", "echo x >${DIR%/*}/file.$$", false},
           {"it writes to the system", "echo x >/usr/file.$$ && rm /usr/file.$$", false},
           {"it writes to its memory disk", "echo x >/dev/file.$$", false},
           {"it writes through a link", "ln -s /usr $DIR/usr; echo x >$DIR/usr/file.$$ && rm /usr/file.$$", false},
           {"it reads its data", "[ $(cat $DATA/ages.csv) = 31 ]", true},
           {"it writes to its directory", "echo x >$DIR/file && mkdir $DIR/folder && echo x >$DIR/folder/file", true},
           {"it finds its programs", "ls / >/dev/null && head -c 5 /dev/zero >/dev/null", true},
           {"it speaks and hears", "read -r line <&3 && [ $line = hello ] && echo yes >&4", true},
           {"its semaphores have a place", "echo x >/dev/shm/sem.x && rm /dev/shm/sem.x", true}}) {
    INFO(c.what);
    const auto free = run(c.script, false);
    // It may have ended by now.
    free->Say("hello", kSoon).IgnoreError();
    // As root it may all of it, and the question is a good one.
    if (getuid() == 0) CHECK(EndOf(*free) == "exit code 0");
    const auto sandboxed = run(c.script, true);
    sandboxed->Say("hello", kSoon).IgnoreError();
    const std::string end = EndOf(*sandboxed);
    INFO(sandboxed->printed());
    CHECK((end == "exit code 0") == c.may);
  }
  // Its limits are the same, also for what a memory disk holds, and so is its death.
  CHECK(EndOf(*run("cat /dev/zero >/dev/shm/x", true, {.output_bytes = 1 << 20})) == "killed over its limit of output");
  CHECK(EndOf(*run("while :; do :; done", true, {.cpu = absl::Milliseconds(300)})) == "killed over its limit of cpu");
  const auto stays = run("(setsid tail -f $DATA/ages.csv &) ; echo ready >&4; tail -f $DATA/ages.csv", true);
  Hear(*stays, 1);
  WaitUntil("both live", kSoon, [&] { return LivingProcesses(data.path()).size() >= 2; });
  stays->Kill();
  CHECK(LivingProcesses(data.path()).empty());
}

}  // namespace
}  // namespace sheaf
