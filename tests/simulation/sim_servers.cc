#include "tests/simulation/sim_servers.h"

#include <algorithm>
#include <utility>

namespace sheaf::simulation {
namespace {

double Rate(Random& random, double most) {
  if (random.Chance(0.3)) return 0;
  const double fraction = random.Fraction();
  return fraction * fraction * most;
}

// From one server to another, one way.
constexpr absl::Duration kHopMax = absl::Milliseconds(2);
// When a server finds that its connection to the owner is broken.
constexpr absl::Duration kBrokenWithin = absl::Seconds(1);

}  // namespace

SimServers::Plan SimServers::Draw(Random& chance) {
  Plan plan;
  plan.takeover_after = chance.Between(absl::Seconds(1), absl::Seconds(5));
  plan.pause = Rate(chance, 0.1);
  plan.cut = Rate(chance, 0.1);
  plan.answer_lost = Rate(chance, 0.05);
  plan.forward_lost = Rate(chance, 0.3);
  plan.forward_repeated = Rate(chance, 0.4);
  return plan;
}

SimServers::SimServers(Weather& weather, const SimServer::Parts& parts, int num_servers, uint64_t seed)
    : weather_(weather),
      storage_(parts.storage),
      chance_(seed ^ 0x73657276),
      plan_(Draw(chance_)),
      monitor_(parts.storage.tasks(), parts.ledger, parts.journal, parts.statistics) {
  if (num_servers > 1) {
    database_ = std::make_unique<SimDatabase>(SimDatabase::Parts{.agenda = parts.agenda,
                                                                 .journal = parts.journal,
                                                                 .statistics = parts.statistics,
                                                                 .storage = parts.storage,
                                                                 .chance = chance_,
                                                                 .takeover_after = plan_.takeover_after,
                                                                 .answer_lost = plan_.answer_lost},
                                              num_servers);
  }
  for (int i = 0; i < num_servers; ++i) {
    servers_.push_back(std::make_unique<SimServer>(parts, monitor_, i, database_.get()));
  }
}

// --- Calls ---------------------------------------------------------------------------------------

void SimServers::Call(std::string_view method, const std::string& authorization, std::shared_ptr<const Message> request,
                      std::unique_ptr<Message> response, OnAnswer on_answer) {
  SimServer& server = Any();
  if (const std::optional<int> owner = server.ForwardsTo(); owner.has_value()) {
    return Forward(*owner, method, authorization, request, std::move(response), std::move(on_answer));
  }
  server.Call(method, authorization, std::move(request), std::move(response), std::move(on_answer));
}

void SimServers::Forward(int to, std::string_view method, const std::string& authorization,
                         const std::shared_ptr<const Message>& request, std::unique_ptr<Message> response,
                         OnAnswer on_answer) {
  ++weather_.statistics.shared["calls forwarded"];
  // The first answer to come back ends the call.
  auto end = std::make_shared<OnAnswer>(std::move(on_answer));
  const auto hop = [this] { return chance_.Between(absl::ZeroDuration(), kHopMax); };
  const auto is_lost = [this] { return weather_.is_stormy && chance_.Chance(plan_.forward_lost); };
  const auto give_up = [this, end] {
    ++weather_.statistics.shared["forwarded calls lost"];
    weather_.agenda.After(kBrokenWithin, [end] {
      if (*end) std::exchange(*end, nullptr)(absl::UnavailableError("the owner has gone"), nullptr);
    });
  };
  const bool is_repeated = weather_.is_stormy && chance_.Chance(plan_.forward_repeated);
  weather_.statistics.shared["forwarded calls repeated"] += is_repeated;
  const std::shared_ptr<const Message> prototype = std::move(response);
  for (int copy = 0; copy < (is_repeated ? 2 : 1); ++copy) {
    std::shared_ptr<Message> sent(request->New());
    sent->CopyFrom(*request);
    if (is_lost()) {
      give_up();
      continue;
    }
    weather_.agenda.After(hop(), [=, this, name = std::string(method)] {
      servers_[static_cast<size_t>(to)]->Call(name, authorization, sent, std::unique_ptr<Message>(prototype->New()),
                                              [=, this](absl::Status status, const Message* answer) {
                                                if (is_lost()) return give_up();
                                                std::shared_ptr<Message> copied;
                                                if (answer != nullptr) {
                                                  copied.reset(answer->New());
                                                  copied->CopyFrom(*answer);
                                                }
                                                weather_.agenda.After(hop(), [end, status = std::move(status), copied] {
                                                  if (*end) std::exchange(*end, nullptr)(status, copied.get());
                                                });
                                              });
    });
  }
}

// --- Faults --------------------------------------------------------------------------------------

void SimServers::Strike() {
  if (database_ == nullptr || !weather_.is_stormy) return;
  for (const auto& server : servers_) {
    const absl::Duration most = 3 * plan_.takeover_after;
    if (chance_.Chance(plan_.pause)) server->Pause(chance_.Between(absl::ZeroDuration(), most));
    if (chance_.Chance(plan_.cut)) server->CutFromDatabase(chance_.Between(absl::ZeroDuration(), most));
  }
}

void SimServers::BecomeFaulty() {
  for (const auto& server : servers_) server->BecomeFaulty();
}

void SimServers::Mend() {
  if (database_ != nullptr) database_->BecomeCalm();
  for (const auto& server : servers_) server->Mend();
}

// --- Looking -------------------------------------------------------------------------------------

const SimServer* SimServers::Owner() const {
  if (database_ == nullptr) return servers_.front().get();
  const auto found = std::find_if(servers_.begin(), servers_.end(), [](const auto& server) { return server->Owns(); });
  return found == servers_.end() ? nullptr : found->get();
}

void SimServers::CheckService() {
  for (const auto& server : servers_) server->CheckService();
  if (Owner() == nullptr) monitor_.CheckTimely(weather_.agenda.now(), false);
}

bool SimServers::is_up() const { return Owner() != nullptr && Owner()->is_up(); }

absl::Time SimServers::last_crash() const {
  absl::Time last = database_ == nullptr ? absl::InfinitePast() : database_->last_taken();
  for (const auto& server : servers_) last = std::max(last, server->last_crash());
  return last;
}

int64_t SimServers::num_passages() const {
  int64_t sum = 0;
  for (const auto& server : servers_) sum += server->num_passages();
  return sum;
}

size_t SimServers::num_open_calls() const {
  size_t sum = 0;
  for (const auto& server : servers_) sum += server->num_open_calls();
  return sum;
}

std::string SimServers::Leaks() {
  for (const auto& server : servers_) {
    if (database_ == nullptr || server->Owns()) return server->Leaks();
  }
  return "no server owns the database";
}

}  // namespace sheaf::simulation
