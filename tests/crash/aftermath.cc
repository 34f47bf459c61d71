#include "tests/crash/aftermath.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "aggregation/wire/safetensors.h"
#include "server/core/inspection/views.h"

namespace sheaf::crash {
namespace {

template <typename T>
std::vector<T> Values(std::string_view bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

absl::StatusOr<v1::Round> GetRound(DiskServer& server, const std::string& id) {
  const auto record = server.tasks().GetRound(RoundId(id));
  if (!record.ok()) return record.status();
  return ToProto(*record);
}

// Coordinate to count.
absl::StatusOr<std::map<int64_t, int64_t>> ReadAggregate(DiskServer& server, const v1::Round& round) {
  const auto blob = server.payloads().OpenBlob(round.aggregate().digest());
  if (!blob.ok()) return blob.status();
  const auto bytes = (*blob)->Read(0, (*blob)->size_bytes());
  if (!bytes.ok()) return bytes.status();
  const auto file = SafetensorsView::Parse(*bytes);
  if (!file.ok()) return file.status();
  std::map<int64_t, int64_t> counts;
  if (round.spec().aggregate().outputs().empty()) return absl::InternalError("its spec says nothing of outputs");
  if (round.spec().aggregate().outputs(0).operator_() == "sum") {
    const auto tensor = file->Find("x");
    if (!tensor.ok()) return tensor.status();
    const auto values = Values<int32_t>((*tensor)->data);
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] != 0) counts[static_cast<int64_t>(i)] = values[i];
    }
    return counts;
  }
  const auto indices = file->Find("x.indices");
  const auto values = file->Find("x.values");
  if (!indices.ok() || !values.ok()) return absl::DataLossError("the aggregate lacks a tensor");
  const auto places = Values<int64_t>((*indices)->data);
  const auto numbers = Values<int32_t>((*values)->data);
  for (size_t i = 0; i < places.size(); ++i) counts[places[i]] += numbers[i];
  return counts;
}

class Aftermath {
 public:
  Aftermath(DiskServer& server, ManualClock& clock, const Ledger& ledger, const Ledger::Mark& mark)
      : server_(server), clock_(clock), ledger_(ledger), mark_(mark), attempted_(ledger.attempted) {
    attempted_.resize(mark.attempted);
  }

  std::string Check(bool may_leave_payloads) {
    CheckPromises();
    CheckBroadcasts();
    CheckUploads();
    // Leases expire, backoffs pass.
    clock_.Advance(absl::Minutes(3));
    server_.Run();
    for (int i = 0; i < 8 && violation_.empty() && WorkOnce(); ++i) {
      clock_.Advance(absl::Seconds(20));
      server_.Run();
    }
    // What cannot reach its goal ends at its deadline.
    clock_.Advance(absl::Hours(2));
    server_.Run();
    CheckRounds();
    CheckPromises();
    if (may_leave_payloads) return violation_;
    const auto left = server_.payloads().ListRounds();
    if (!left.ok() || !left->empty()) Violate("payloads are left of rounds that ended");
    return violation_;
  }

 private:
  template <typename... Args>
  void Violate(fmt::format_string<Args...> format, Args&&... args) {
    if (violation_.empty()) violation_ = fmt::format(format, std::forward<Args>(args)...);
  }

  void CheckPromises() {
    for (size_t i = 0; i < mark_.created; ++i) {
      const auto round = GetRound(server_, ledger_.created[i]);
      if (!round.ok()) Violate("round {} was created: {}", ledger_.created[i], round.status().ToString());
    }
    for (size_t i = 0; i < mark_.ended; ++i) {
      const Ledger::End& end = ledger_.ended[i];
      const auto round = GetRound(server_, end.round);
      if (!round.ok() || round->state() != end.state || round->aggregate().digest() != end.digest) {
        Violate("round {} had ended {} with {}, and is {} with {}", end.round, v1::RoundState_Name(end.state),
                end.digest, round.ok() ? v1::RoundState_Name(round->state()) : round.status().ToString(),
                round.ok() ? round->aggregate().digest() : "");
      }
    }
  }

  void CheckBroadcasts() {
    const auto rounds = server_.tasks().ListRounds({.states = {RoundState::kCollecting}});
    if (!rounds.ok()) return Violate("{}", rounds.status().ToString());
    for (const RoundRecord& round : *rounds) {
      if (round.broadcast_digest.empty()) continue;
      const auto blob = server_.payloads().OpenBlob(round.broadcast_digest);
      if (!blob.ok()) Violate("the broadcast of round {}: {}", round.id, blob.status().ToString());
    }
  }

  // What was uploaded for a lease that is still held is there to be handed in.
  void CheckUploads() {
    for (size_t i = 0; i < mark_.uploaded; ++i) {
      const v1::SyncRequest& hand_in = ledger_.uploaded[i];
      const v1::TaskResult& result = hand_in.results(0);
      const auto task = server_.tasks().GetTask(*TaskId::Parse(result.task()));
      if (!task.ok() || task->state != TaskState::kLeased || task->lease_token.value() != result.lease_token())
        continue;
      const auto round = GetRound(server_, task->id.round.value());
      if (!round.ok()) return Violate("the round of task {}: {}", result.task(), round.status().ToString());
      // What is kept in memory a crash forgets.
      if (round->state() != v1::COLLECTING || round->spec().durability() != v1::DURABLE) continue;
      const auto taken = server_.Call<v1::SyncResponse>("WorkService/Sync", hand_in);
      if (!taken.ok()) return Violate("the upload for task {}: {}", result.task(), taken.status().ToString());
      if (taken->verdicts(0).verdict() == v1::ResultVerdict::ACCEPTED) continue;
      Violate("the upload for task {} was finished, and is {}", result.task(),
              v1::ResultVerdict::Verdict_Name(taken->verdicts(0).verdict()));
    }
  }

  // Leases what there is and hands it in. False if there was nothing.
  bool WorkOnce() {
    v1::SyncRequest ask;
    ask.set_protocol_version(1);
    ask.set_worker("finisher");
    ask.set_poll_id(fmt::format("finish-{}", attempted_.size()));
    ask.add_computations()->set_name("noop");
    ask.mutable_computations(0)->set_version(1);
    ask.set_want(64);
    const auto granted = server_.Call<v1::SyncResponse>("WorkService/Sync", ask);
    if (!granted.ok()) {
      Violate("nothing can be leased: {}", granted.status().ToString());
      return false;
    }
    if (granted->leases().empty()) return false;
    ask.set_want(0);
    ask.clear_poll_id();
    if (attempted_.size() < kFinisherCoordinates) attempted_.resize(kFinisherCoordinates);
    for (const v1::Lease& lease : granted->leases()) {
      if (lease.aggregate().outputs().empty()) Violate("the spec of round {} says nothing of outputs", lease.round());
      if (!violation_.empty()) return false;
      const auto coordinate = static_cast<int>(attempted_.size());
      attempted_.push_back(lease.task());
      v1::TaskResult& result = *ask.add_results();
      result.set_task(lease.task());
      result.set_lease_token(lease.lease_token());
      result.set_contribution(OneHot(coordinate, lease.aggregate()));
    }
    const auto taken = server_.Call<v1::SyncResponse>("WorkService/Sync", ask);
    if (!taken.ok()) {
      Violate("nothing is accepted: {}", taken.status().ToString());
      return false;
    }
    for (const v1::ResultVerdict& verdict : taken->verdicts()) {
      // The goal may be reached by one before it.
      if (verdict.verdict() == v1::ResultVerdict::ACCEPTED || verdict.verdict() == v1::ResultVerdict::NOT_NEEDED)
        continue;
      Violate("task {} is {}: {}", verdict.task(), v1::ResultVerdict::Verdict_Name(verdict.verdict()),
              verdict.message());
    }
    return true;
  }

  void CheckRounds() {
    const auto rounds = server_.tasks().ListRounds({.limit = 1000});
    if (!rounds.ok()) return Violate("{}", rounds.status().ToString());
    for (const RoundRecord& record : *rounds) {
      const std::string& id = record.id.value();
      const auto round = GetRound(server_, id);
      if (!round.ok()) return Violate("round {}: {}", id, round.status().ToString());
      const TaskCounts& tasks = record.tasks;
      switch (round->state()) {
        case v1::SUCCEEDED:
          CheckAggregate(*round);
          break;
        case v1::CANCELLED: {
          const auto end = ledger_.cancelled.begin() + static_cast<std::ptrdiff_t>(mark_.cancelled);
          if (std::find(ledger_.cancelled.begin(), end, id) == end) Violate("nobody cancelled round {}", id);
          break;
        }
        case v1::FAILED:
          if (tasks.failed + tasks.buried == 0) Violate("round {} FAILED: {}", id, record.error);
          break;
        default:
          Violate("round {} is still {}", id, v1::RoundState_Name(round->state()));
      }
    }
  }

  void CheckAggregate(const v1::Round& round) {
    const auto counts = ReadAggregate(server_, round);
    if (!counts.ok()) return Violate("the aggregate of round {}: {}", round.id(), counts.status().ToString());
    std::set<std::string> tasks;
    for (const auto& [coordinate, count] : *counts) {
      if (coordinate >= static_cast<int64_t>(attempted_.size()) || attempted_[coordinate].empty()) {
        return Violate("round {} counts contribution {}, which nobody sent", round.id(), coordinate);
      }
      const std::string& task = attempted_[coordinate];
      if (count != 1) Violate("round {} counts contribution {} {} times", round.id(), coordinate, count);
      if (task.rfind(round.id() + "/", 0) != 0) Violate("round {} counts {}, of task {}", round.id(), coordinate, task);
      if (!tasks.insert(task).second) Violate("round {} counts task {} twice", round.id(), task);
    }
    if (static_cast<int64_t>(tasks.size()) != round.aggregate().num_contributions()) {
      Violate("round {} says that it combines {} contributions, and has {}", round.id(),
              round.aggregate().num_contributions(), tasks.size());
    }
    // What an EPHEMERAL round has accepted may be asked for again.
    if (round.spec().durability() != v1::DURABLE) return;
    for (size_t i = 0; i < mark_.accepted; ++i) {
      const int coordinate = ledger_.accepted[i];
      if (attempted_[coordinate].rfind(round.id() + "/", 0) == 0 && !counts->contains(coordinate)) {
        Violate("contribution {} of task {} was accepted, and is not in the aggregate", coordinate,
                attempted_[coordinate]);
      }
    }
  }

  DiskServer& server_;
  ManualClock& clock_;
  const Ledger& ledger_;
  const Ledger::Mark mark_;
  // Ours are added.
  std::vector<std::string> attempted_;
  std::string violation_;
};

}  // namespace

std::string CheckServer(DiskServer& server, ManualClock& clock, const Ledger& ledger, const Ledger::Mark& mark,
                        bool may_leave_payloads) {
  return Aftermath(server, clock, ledger, mark).Check(may_leave_payloads);
}

std::string CheckAftermath(SimulatedDisk& disk, absl::Time now, const Ledger& ledger, const Ledger::Mark& mark,
                           const DiskServer::Options& options, bool looks_inside) {
  ManualClock clock(now);
  const auto server = DiskServer::Start(disk, clock, options);
  if (!server.ok()) return "the server does not start: " + server.status().ToString();
  if (looks_inside) {
    if (absl::Status status = (*server)->CheckDatabase(); !status.ok()) return status.ToString();
  }
  const std::string violation = CheckServer(**server, clock, ledger, mark);
  return (*server)->stop_status().ok() ? violation : "the server stopped: " + (*server)->stop_status().ToString();
}

}  // namespace sheaf::crash
