#include "worker/relay/offers_below.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/time/time.h"
#include "base/status_macros.h"
#include "sheaf/v1/inspection_service.pb.h"

namespace sheaf {
namespace {

constexpr int kPagesMax = 10;
constexpr int kPageSize = 1000;
constexpr absl::Duration kTimeout = absl::Seconds(5);

}  // namespace

absl::StatusOr<std::vector<v1::OfferedComputation>> OffersBelow::Ask() const {
  // 0.1 releases values where it is asked for partial aggregates, which it does not know. It does not say who calls,
  // either.
  ASSIGN_OR_RETURN(const v1::GetServerInfoResponse info,
                   BlockingCall(below_, kGetServerInfo, v1::GetServerInfoRequest(), {.timeout = kTimeout}));
  if (!info.has_caller()) {
    return absl::FailedPreconditionError(
        "its rounds release no partial aggregates, because it is older than 0.2: upgrade that server");
  }
  std::map<std::string, int32_t> versions;
  v1::ListWorkersRequest request;
  request.set_population(filter_.population);
  request.set_page_size(kPageSize);
  for (int page = 0; page < kPagesMax; ++page) {
    ASSIGN_OR_RETURN(const v1::ListWorkersResponse response,
                     BlockingCall(below_, kListWorkers, request, {.timeout = kTimeout}));
    for (const v1::Worker& worker : response.workers()) {
      if (worker.is_draining()) continue;
      for (const v1::OfferedComputation& offer : worker.computations()) {
        int32_t& version = versions[offer.name()];
        version = std::max(version, offer.version());
      }
    }
    if (response.next_page_token().empty()) break;
    request.set_page_token(response.next_page_token());
  }
  std::vector<v1::OfferedComputation> offers;
  for (const auto& [name, version] : versions) {
    const std::vector<std::string>& allow = filter_.allow;
    if (!allow.empty() && std::find(allow.begin(), allow.end(), name) == allow.end()) continue;
    v1::OfferedComputation& offer = offers.emplace_back();
    offer.set_name(name);
    offer.set_version(version);
  }
  return offers;
}

absl::Status OffersBelow::Look() {
  absl::StatusOr<std::vector<v1::OfferedComputation>> offers = Ask();
  const absl::Status asked = offers.status();
  MutexLock lock(mutex_);
  newest_ = asked.ok() ? *std::move(offers) : std::vector<v1::OfferedComputation>();
  return asked;
}

void OffersBelow::Withdraw() {
  MutexLock lock(mutex_);
  newest_.clear();
}

std::vector<v1::OfferedComputation> OffersBelow::newest() const {
  MutexLock lock(mutex_);
  return newest_;
}

}  // namespace sheaf
