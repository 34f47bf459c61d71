#include "tests/server/slow_devices.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <numbers>

#include "proto/time.h"

namespace sheaf {
namespace {

// Contributions travel inside Sync, and aggregates in one answer, whatever their size.
Limits RoomyLimits() {
  Limits limits;
  limits.inline_bytes_max = limits.chunk_bytes_max = limits.contribution_bytes_max;
  return limits;
}

}  // namespace

SlowDevices::SlowDevices(const Options& options, Compute compute)
    : options_(options), compute_(std::move(compute)), server_(RoomyLimits()), random_(options.seed) {
  for (int i = 0; i < options.num_devices; ++i) idle_.insert(fmt::format("w{}", i));
  begin_ = server_.clock().Now();
}

std::string SlowDevices::Announce(v1::RoundSpec spec) {
  spec.mutable_computation()->set_name("noop");
  spec.mutable_computation()->clear_version_min();
  spec.set_announced(true);
  for (auto* duration : {spec.mutable_lease_duration(), spec.mutable_deadline(), spec.mutable_announce_deadline()}) {
    *duration = ToProto(absl::Hours(8'000));
  }
  return server_.CreateRound(spec);
}

void SlowDevices::Open(const std::string& round) {
  v1::OpenRoundRequest request;
  request.set_request_id("open " + round);
  request.set_round(round);
  REQUIRE(server_.Call<v1::OpenRoundResponse>("RoundService/OpenRound", request).ok());
  for (auto it = busy_.begin(); it != busy_.end();) {
    v1::SyncRequest renewal = sheaf::Ask(it->second.device, 0);
    *renewal.add_held() = Held(it->second.lease, ++progress_);
    const bool goes_on = server_.Sync(renewal).held(0).verdict() == v1::LeaseUpdate::HELD;
    if (!goes_on) idle_.insert(it->second.device);
    it = goes_on ? std::next(it) : busy_.erase(it);
  }
  for (const std::string& device : std::exchange(idle_, {})) Ask(device, sheaf::Ask(device, 1));
}

v1::Round SlowDevices::Finish(const std::string& round) {
  while (server_.GetRound(round).state() != v1::SUCCEEDED) Step();
  return server_.GetRound(round);
}

void SlowDevices::Step() {
  REQUIRE_FALSE(busy_.empty());
  const auto first = busy_.begin();
  server_.Advance(first->first - server_.clock().Now());
  const Work done = std::move(first->second);
  busy_.erase(first);
  v1::SyncRequest request = sheaf::Ask(done.device, 1);
  *request.add_results() = done.result;
  Ask(done.device, request);
}

void SlowDevices::Ask(const std::string& device, const v1::SyncRequest& request) {
  const v1::SyncResponse response = server_.Sync(request);
  for (const v1::ResultVerdict& verdict : response.verdicts()) {
    INFO(verdict.message());
    REQUIRE(verdict.verdict() != v1::ResultVerdict::REJECTED);
  }
  if (response.leases().empty()) {
    idle_.insert(device);
    return;
  }
  ++num_leases_;
  const v1::Lease& lease = response.leases(0);
  busy_.emplace(server_.clock().Now() + options_.median * std::exp(options_.sigma * Normal()),
                Work{.device = device, .lease = lease, .result = compute_(lease)});
}

double SlowDevices::Normal() {
  // Box and Muller.
  return std::sqrt(-2 * std::log(1 - random_.Fraction())) * std::cos(2 * std::numbers::pi * random_.Fraction());
}

}  // namespace sheaf
