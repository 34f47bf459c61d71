#include "cli/commands.h"

#include <fmt/format.h>

namespace sheaf {
namespace {

constexpr Noun kNouns[] = {
    {"demo", "train a model on this machine, to see it all work"},
    {"round", "create rounds, follow them, read what they release"},
    {"task", "look at the tasks of rounds, and at every attempt"},
    {"queue", "look at what waits and what runs"},
    {"worker", "look at the workers, take one out of service"},
    {"token", "say who may do what"},
    {"server", "look at the server, try it"},
    {"store", "look after a server's data directory: copy it, check it, bring it up to date"},
};

constexpr CommandRow kCommands[] = {
    {"demo", "tags", "Train a tag model on this machine's package index, with a server and workers of its own.",
     "sheaf demo tags --rounds 20 --workers 8", MakeDemoTags},
    {"demo", "reco", "Train a recommender of dependencies on this machine's package index, one client per package.",
     "sheaf demo reco --rounds 50 --workers 8", MakeDemoReco},
    {"demo", "hitters", "Count dependency names over this machine's package index, one client per maintainer.",
     "sheaf demo hitters --top 10 --min-contributors 2", MakeDemoHitters},
    {"round", "create", "Create a round from a spec in JSON or YAML; prints its id.",
     "sheaf round create -f round.json --wait", MakeRoundCreate},
    {"round", "open", "Open a round that was announced: give it its broadcast, and let it run.",
     "sheaf round open r-7k2m9q4x --broadcast model.safetensors", MakeRoundOpen},
    {"round", "list", "List rounds, newest first.", "sheaf round list --state collecting", MakeRoundList},
    {"round", "describe", "Show one round: spec, progress, where its time went, what it released.",
     "sheaf round describe r-7k2m9q4x", MakeRoundDescribe},
    {"round", "watch", "Follow a round until it ends.", "sheaf round watch r-7k2m9q4x", MakeRoundWatch},
    {"round", "wait", "Wait until a round ends, without output.", "sheaf round wait r-7k2m9q4x --timeout 10m",
     MakeRoundWait},
    {"round", "cancel", "End a round without a result.", "sheaf round cancel r-7k2m9q4x --reason 'wrong data'",
     MakeRoundCancel},
    {"round", "explain", "Say what a round waits for, and what to do about it.", "sheaf round explain r-7k2m9q4x",
     MakeRoundExplain},
    {"round", "result", "Write what a round released to a file, .npz or .safetensors.",
     "sheaf round result r-7k2m9q4x -o w.npz", MakeRoundResult},
    {"round", "trace", "Write where a round's time went as a trace, which Perfetto opens.",
     "sheaf round trace r-7k2m9q4x -o trace.json", MakeRoundTrace},
    {"task", "list", "List tasks.", "sheaf task list --round r-7k2m9q4x --state buried", MakeTaskList},
    {"task", "describe", "Show one task and every attempt at it.", "sheaf task describe r-7k2m9q4x/17",
     MakeTaskDescribe},
    {"task", "requeue", "Put a failed or buried task back, or take it away from its worker.",
     "sheaf task requeue r-7k2m9q4x/17", MakeTaskRequeue},
    {"queue", "describe", "Show what waits, what runs, and how fast it moves.", "sheaf queue describe",
     MakeQueueDescribe},
    {"worker", "list", "List workers.", "sheaf worker list --state waiting", MakeWorkerList},
    {"worker", "drain", "Let a worker finish what it holds and give it nothing more.", "sheaf worker drain edge-17",
     MakeWorkerDrain},
    {"token", "create", "Make a token; its secret is shown once.",
     "sheaf token create edge --role worker --for default --to edge.token", MakeTokenCreate},
    {"token", "list", "List tokens, without their secrets.", "sheaf token list", MakeTokenList},
    {"token", "revoke", "End a token at once, for good.", "sheaf token revoke t-7k2m9q4x", MakeTokenRevoke},
    {"server", "info", "Show the server's version, store and limits.", "sheaf server info", MakeServerInfo},
    {"server", "list", "List the servers that share the store.", "sheaf server list", MakeServerList},
    {"server", "drain", "Let a server give what it owns to the others and take nothing more.",
     "sheaf server drain server-7k2m9q4x", MakeServerDrain},
    {"server", "selftest",
     "Test a deployment: run rounds under faults, and check that no contribution is lost or counted twice.",
     "sheaf server selftest --workers 16 --loops 5", MakeServerSelftest},
    {"store", "backup", "Copy a store to a new directory, also while a server works on it.",
     "sheaf store backup /var/lib/sheaf --to /backup/monday", MakeStoreBackup},
    {"store", "restore", "Make a store out of a backup.", "sheaf store restore /backup/monday --to /var/lib/sheaf",
     MakeStoreRestore},
    {"store", "verify", "Check that a store holds what it promises; changes nothing.",
     "sheaf store verify /var/lib/sheaf", MakeStoreVerify},
    {"store", "inspect", "Show what a store holds, and how large it is; changes nothing.",
     "sheaf store inspect /var/lib/sheaf", MakeStoreInspect},
    {"store", "migrate", "Migrate a store to this version's schema, while no server runs.",
     "sheaf store migrate /var/lib/sheaf --dry-run", MakeStoreMigrate},
    {"store", "copy", "Copy a store into an empty PostgreSQL database, live rounds included, while no server runs.",
     "sheaf store copy /var/lib/sheaf postgresql://sheaf@db.example/sheaf", MakeStoreCopy},
    {"", "version", "Show the version of this program.", "sheaf version", MakeVersion},
    {"", "help", "Explain a noun, or a topic: round-spec, exit-codes, environment.", "sheaf help exit-codes", MakeHelp},
};

}  // namespace

std::span<const Noun> NounTable() { return kNouns; }
std::span<const CommandRow> CommandTable() { return kCommands; }

std::string CommandName(const CommandRow& row) {
  return row.noun.empty() ? std::string(row.verb) : fmt::format("{} {}", row.noun, row.verb);
}

}  // namespace sheaf
