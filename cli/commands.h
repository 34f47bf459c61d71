// The commands of `sheaf`: one row each, in one table (commands.cc). The parser, the help and the suggestions all read
// it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cli/command.h"

namespace sheaf {

struct Noun {
  std::string_view name;
  std::string_view summary;
};

struct CommandRow {
  // Empty for commands of one word.
  std::string_view noun;
  std::string_view verb;
  std::string_view summary;
  // A whole line somebody could type.
  std::string_view example;
  std::unique_ptr<Command> (*make)();
};

std::span<const Noun> NounTable();
std::span<const CommandRow> CommandTable();

// As typed: "round list", "version".
std::string CommandName(const CommandRow& row);

std::unique_ptr<Command> MakeDemoTags();
std::unique_ptr<Command> MakeDemoHitters();
std::unique_ptr<Command> MakeDemoReco();
std::unique_ptr<Command> MakeRoundCreate();
std::unique_ptr<Command> MakeRoundOpen();
std::unique_ptr<Command> MakeRoundList();
std::unique_ptr<Command> MakeRoundDescribe();
std::unique_ptr<Command> MakeRoundWatch();
std::unique_ptr<Command> MakeRoundWait();
std::unique_ptr<Command> MakeRoundCancel();
std::unique_ptr<Command> MakeRoundExplain();
std::unique_ptr<Command> MakeRoundResult();
std::unique_ptr<Command> MakeRoundTrace();
std::unique_ptr<Command> MakeTaskList();
std::unique_ptr<Command> MakeTaskDescribe();
std::unique_ptr<Command> MakeTaskRequeue();
std::unique_ptr<Command> MakeQueueDescribe();
std::unique_ptr<Command> MakeWorkerList();
std::unique_ptr<Command> MakeWorkerDrain();
std::unique_ptr<Command> MakeTokenCreate();
std::unique_ptr<Command> MakeTokenList();
std::unique_ptr<Command> MakeTokenRevoke();
std::unique_ptr<Command> MakeServerInfo();
std::unique_ptr<Command> MakeServerList();
std::unique_ptr<Command> MakeServerDrain();
std::unique_ptr<Command> MakeServerSelftest();
std::unique_ptr<Command> MakeStoreBackup();
std::unique_ptr<Command> MakeStoreRestore();
std::unique_ptr<Command> MakeStoreVerify();
std::unique_ptr<Command> MakeStoreInspect();
std::unique_ptr<Command> MakeStoreMigrate();
std::unique_ptr<Command> MakeStoreCopy();
std::unique_ptr<Command> MakeVersion();
std::unique_ptr<Command> MakeHelp();

}  // namespace sheaf
