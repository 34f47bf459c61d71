#include "tests/golden/staged_server.h"

#include <utility>

#include "base/check.h"
#include "tests/golden/transcript.h"

namespace sheaf::golden {
namespace {

// How late the server may notice that a time has come.
constexpr absl::Duration kBeat = absl::Milliseconds(50);

}  // namespace

Limits LimitsOf(const std::map<std::string, int64_t>& by_name) {
  Limits limits;
  for (const auto& [name, value] : by_name) {
    if (name == "inline_bytes_max") {
      limits.inline_bytes_max = value;
    } else if (name == "chunk_bytes_max") {
      limits.chunk_bytes_max = value;
    } else if (name == "calls_per_second_max") {
      limits.calls_per_second_max = value;
    } else {
      SHEAF_CHECK(false, "a transcript sets the limit {}, which LimitsOf does not know", name);
    }
  }
  return limits;
}

StagedServer::StagedServer(simulation::Agenda& agenda, const Limits& limits) : agenda_(agenda), federation_(limits) {
  Beat();
}

void StagedServer::CatchUp() {
  federation_.clock().Set(agenda_.now());
  federation_.Run();
}

void StagedServer::Beat() {
  CatchUp();
  agenda_.After(kBeat, [this] { Beat(); });
}

void StagedServer::Call(int64_t id, std::string_view method, const std::string& request_bytes, Answer answer) {
  auto request = std::shared_ptr<google::protobuf::Message>(NewRequest(method));
  auto response = std::shared_ptr<google::protobuf::Message>(NewResponse(method));
  SHEAF_CHECK(request != nullptr, "there is no method {}", method);
  SHEAF_CHECK(request->ParseFromString(request_bytes), "a request cannot be parsed");
  const CallId call = federation_.dispatcher().NewCall();
  open_[id] = [this, call, method = std::string(method)] {
    federation_.dispatcher().Abandon(*federation_.parts().methods.Find(method), *Identity::Anybody(), call);
  };
  federation_.clock().Set(agenda_.now());
  federation_.dispatcher().Dispatch(method, {.id = call}, *request, response.get(),
                                    [this, id, life = lives_, request, response, answer](const absl::Status& status) {
                                      if (life != lives_ || open_.erase(id) == 0) return;
                                      answer(status, status.ok() ? Serialize(*response) : "");
                                    });
  CatchUp();
}

void StagedServer::Break(int64_t id) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  const std::function<void()> abandon = std::move(found->second);
  open_.erase(found);
  abandon();
  CatchUp();
}

void StagedServer::KillAndRestart() {
  ++lives_;
  open_.clear();
  federation_.clock().Set(agenda_.now());
  federation_.CrashAndRestart();
}

}  // namespace sheaf::golden
