// SheafdProcess: the real binary, as a child. What it writes to stdout and stderr comes through one pipe. A batch that
// took its core for too long fails the test (see slow_batches.h).
//
//   SheafdProcess sheafd({"--listen", "127.0.0.1:0", "--store", "memory"});
//   std::string line = sheafd.WaitForLine("listening on");
//   sheafd.Signal(SIGTERM);
//   CHECK(sheafd.Wait() == 0);
#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/slow_batches.h"

namespace sheaf {

class SheafdProcess {
 public:
  explicit SheafdProcess(const std::vector<std::string>& arguments) {
    int pipe_ends[2];
    REQUIRE(pipe(pipe_ends) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDERR_FILENO);
    posix_spawn_file_actions_addclose(&actions, pipe_ends[0]);
    posix_spawn_file_actions_addclose(&actions, pipe_ends[1]);
    std::vector<std::string> words = {SHEAFD_PATH};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    REQUIRE(posix_spawn(&pid_, SHEAFD_PATH, &actions, nullptr, argv.data(), environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_ends[1]);
    output_ = fdopen(pipe_ends[0], "r");
  }
  ~SheafdProcess() {
    if (pid_ > 0) {
      Signal(SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    ReadAll();
    fclose(output_);
    CheckNoSlowBatches(read_);
  }
  SheafdProcess(const SheafdProcess&) = delete;
  SheafdProcess& operator=(const SheafdProcess&) = delete;

  // Reads on until a line holds `text`; fails the test if the process ends before.
  std::string WaitForLine(const std::string& text) {
    std::string seen;
    for (std::string line = ReadLine(); !line.empty(); line = ReadLine()) {
      if (line.find(text) != std::string::npos) return line;
      seen += line;
    }
    FAIL("no line with \"" << text << "\" in:\n" << seen);
    return "";
  }
  std::string ReadAll() {
    std::string all;
    for (std::string line = ReadLine(); !line.empty(); line = ReadLine()) all += line;
    return all;
  }
  void Signal(int signal) { kill(pid_, signal); }
  // The exit code, or minus the signal that ended it.
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  std::string ReadLine() {
    std::string line;
    for (int c = fgetc(output_); c != EOF; c = fgetc(output_)) {
      line += static_cast<char>(c);
      if (c == '\n') break;
    }
    read_ += line;
    return line;
  }

  pid_t pid_ = 0;
  FILE* output_ = nullptr;
  // All lines so far.
  std::string read_;
};

}  // namespace sheaf
