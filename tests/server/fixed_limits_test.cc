// The limits without a name or a setting: what is at one passes, and what is beyond it is refused as its row says.
#include "server/core/limits/fixed_limits.h"

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <string>

#include "aggregation/round_accumulator.h"
#include "aggregation/wire/safetensors_header.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

// Stands for the verdict REJECTED, which is no error.
constexpr absl::StatusCode kRejected = absl::StatusCode::kAborted;

absl::Status CheckSpec(const v1::RoundSpec& spec) {
  CoreFederation server;
  v1::CreateRoundRequest request;
  request.set_request_id("check");
  request.set_validate_only(true);
  *request.mutable_spec() = spec;
  return server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request).status();
}

absl::Status CheckStaleness(const v1::StalenessPolicy& policy) {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(1);
  spec.mutable_aggregate()->mutable_outputs(0)->set_operator_("weighted_mean");
  spec.set_continues(server.CreateRound(spec));
  *spec.mutable_staleness() = policy;
  v1::CreateRoundRequest request;
  request.set_request_id("continue");
  *request.mutable_spec() = spec;
  return server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request).status();
}

absl::Status CheckOutput(const std::function<void(v1::OutputSpec&)>& change) {
  v1::RoundSpec spec = SumRound(1);
  change(*spec.mutable_aggregate()->mutable_outputs(0));
  return CheckSpec(spec);
}

absl::Status CheckSparseShape(std::initializer_list<int64_t> shape, v1::OutputForm form) {
  return CheckOutput([&](v1::OutputSpec& output) {
    output.set_operator_("sparse_sum");
    output.set_form(form);
    *output.mutable_dense_shape() = {shape.begin(), shape.end()};
  });
}

absl::Status HandIn(const v1::RoundSpec& spec, const v1::Contribution& contribution) {
  CoreFederation server;
  server.CreateRound(spec);
  const v1::SyncResponse leased = server.Sync(Ask("w1", 1));
  REQUIRE(leased.leases_size() == 1);
  v1::SyncRequest sync = Ask("w1", 0);
  v1::TaskResult& result = *sync.add_results();
  result.set_task(leased.leases(0).task());
  result.set_lease_token(leased.leases(0).lease_token());
  result.set_contribution(contribution.SerializeAsString());
  const v1::SyncResponse judged = server.Sync(sync);
  REQUIRE(judged.verdicts_size() == 1);
  const v1::ResultVerdict& verdict = judged.verdicts(0);
  if (verdict.verdict() == v1::ResultVerdict::ACCEPTED) return absl::OkStatus();
  CHECK(verdict.verdict() == v1::ResultVerdict::REJECTED);
  return absl::Status(kRejected, verdict.message());
}

absl::Status HandInKey(int64_t size) {
  v1::RoundSpec spec = SumRound(1);
  v1::OutputSpec& output = *spec.mutable_aggregate()->mutable_outputs(0);
  output.set_operator_("keyed_sum");
  output.set_key_type(v1::STRING_KEYS);
  output.clear_dense_shape();
  v1::Contribution contribution;
  v1::OutputValue& value = *contribution.add_outputs();
  value.set_name(output.name());
  value.mutable_keyed()->add_string_keys(std::string(static_cast<size_t>(size), 'k'));
  v1::Tensor& values = *value.mutable_keyed()->mutable_values();
  values.set_dtype(v1::FLOAT32);
  values.add_shape(1);
  values.set_data(std::string(4, '\0'));
  return HandIn(spec, contribution);
}

// States of so many clients, merged from one's.
RoundAccumulator OfClients(const v1::AggregateSpec& spec, int64_t num_clients) {
  RoundAccumulator sum = RoundAccumulator::Create(spec).value();
  RoundAccumulator power = RoundAccumulator::Create(spec).value();
  v1::Contribution one;
  v1::OutputValue& value = *one.add_outputs();
  value.set_name(spec.outputs(0).name());
  value.mutable_dense()->set_dtype(v1::FLOAT32);
  value.mutable_dense()->add_shape(4);
  value.mutable_dense()->set_data(std::string(16, '\0'));
  power.Accumulate(power.Validate(one).value());
  for (; num_clients > 0; num_clients /= 2) {
    if (num_clients % 2 == 1) sum.Merge(RoundAccumulator::Restore(spec, power.Serialize()).value());
    power.Merge(RoundAccumulator::Restore(spec, power.Serialize()).value());
  }
  return sum;
}

absl::Status HandInClients(int64_t num_clients) {
  const v1::RoundSpec spec = SumRound(1);
  return HandIn(spec, OfClients(spec.aggregate(), num_clients).PartialAggregate());
}

absl::Status CheckNames(int64_t size) {
  const std::string name(static_cast<size_t>(size), 'n');
  absl::Status status;
  const auto also = [&status](const absl::Status& other) {
    // All refuse, or none does.
    CHECK((status.ok() || status.code() == other.code()));
    status = other;
  };
  v1::RoundSpec spec = SumRound(1);
  spec.set_population(name);
  also(CheckSpec(spec));
  spec = SumRound(1);
  spec.set_job(name);
  also(CheckSpec(spec));
  spec = SumRound(1);
  spec.mutable_computation()->set_name(name);
  also(CheckSpec(spec));
  CoreFederation server;
  also(server.Call<v1::SyncResponse>("WorkService/Sync", Ask(name, 1)).status());
  v1::CreateTokenRequest token;
  token.set_request_id("t");
  token.set_name(name);
  token.add_roles(v1::OPERATOR);
  also(server.Call<v1::CreateTokenResponse>("AccessService/CreateToken", token).status());
  return status;
}

absl::Status CheckIds(int64_t size) {
  const std::string id(static_cast<size_t>(size), 'i');
  CoreFederation server;
  v1::SyncRequest sync = Ask("w1", 1);
  sync.set_poll_id(id);
  const absl::Status polled = server.Call<v1::SyncResponse>("WorkService/Sync", sync).status();
  v1::CreateRoundRequest create;
  create.set_request_id(id);
  *create.mutable_spec() = SumRound(1);
  absl::Status created = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", create).status();
  CHECK(polled.code() == created.code());
  return created;
}

absl::Status CheckDurations(int64_t seconds) {
  v1::RoundSpec deadline = SumRound(1);
  deadline.mutable_deadline()->set_seconds(seconds);
  v1::RoundSpec attempt = SumRound(1);
  attempt.mutable_attempt_deadline()->set_seconds(seconds);
  v1::RoundSpec lease = SumRound(1);
  lease.mutable_lease_duration()->set_seconds(seconds);
  CHECK(CheckSpec(attempt).code() == CheckSpec(deadline).code());
  CHECK(CheckSpec(lease).code() == CheckSpec(deadline).code());
  return CheckSpec(deadline);
}

absl::Status MakeToken(const std::function<void(v1::CreateTokenRequest&)>& change) {
  CoreFederation server;
  v1::CreateTokenRequest first;
  first.set_request_id("first");
  first.set_name("admin");
  first.add_roles(v1::OPERATOR);
  REQUIRE(server.Call<v1::CreateTokenResponse>("AccessService/CreateToken", first).ok());
  v1::CreateTokenRequest token;
  token.set_request_id("second");
  token.set_name("edge");
  token.add_roles(v1::WORKER);
  change(token);
  return server.Call<v1::CreateTokenResponse>("AccessService/CreateToken", token).status();
}

absl::Status CheckTensorRank(int64_t rank) {
  std::string shape;
  for (int64_t d = 0; d < rank; ++d) shape += d == 0 ? "1" : ",1";
  const std::string header = R"({"t":{"dtype":"F32","shape":[)" + shape + R"(],"data_offsets":[0,4]}})";
  const auto file_bytes = static_cast<int64_t>(SafetensorsHeader::kPrefixBytes + header.size() + 4);
  return SafetensorsHeader::Parse(header, file_bytes, {}).status();
}

// By what the row is about: what comes of so many.
const std::map<std::string, std::function<absl::Status(int64_t)>>& Trials() {
  static const std::map<std::string, std::function<absl::Status(int64_t)>> kTrials = {
      {"Elements of a dense output, or of the value at one coordinate or key",
       [](int64_t most) {
         const absl::Status row = CheckOutput([&](v1::OutputSpec& output) {
           output.set_operator_("slices_sum");
           output.add_dense_shape(most);
         });
         absl::Status dense = CheckOutput([&](v1::OutputSpec& output) { output.set_dense_shape(0, most); });
         CHECK(row.code() == dense.code());
         return dense;
       }},
      {"Elements of a sparse output that is released dense",
       [](int64_t most) { return CheckSparseShape({most}, v1::DENSE); }},
      {"Coordinates that the indices of a sparse output can address",
       [](int64_t most) {
         return most > 0 ? CheckSparseShape({most}, v1::SPARSE) : CheckSparseShape({int64_t{1} << 62, 2}, v1::SPARSE);
       }},
      {"Dimensions of an output",
       [](int64_t most) {
         return CheckOutput([&](v1::OutputSpec& output) {
           while (output.dense_shape_size() < most) output.add_dense_shape(1);
         });
       }},
      {"Characters of an output's name",
       [](int64_t most) {
         return CheckOutput(
             [&](v1::OutputSpec& output) { output.set_name(std::string(static_cast<size_t>(most), 'n')); });
       }},
      {"Bytes of a string key", HandInKey},
      {"Clients that one partial aggregate combines", HandInClients},
      {"Characters of the name of a population, job, computation, worker or token", CheckNames},
      {"Characters of a `request_id` or `poll_id`", CheckIds},
      {"Seconds of `deadline`, `attempt_deadline` and `lease_duration`", CheckDurations},
      {"Value of `over_selection`",
       [](int64_t most) {
         v1::RoundSpec spec = SumRound(0);
         spec.set_goal(1);
         spec.set_over_selection(static_cast<double>(most));
         spec.mutable_open_slots();
         return CheckSpec(spec);
       }},
      {"Value of `straggler.factor` and `straggler.deadline_factor`",
       [](int64_t most) {
         v1::RoundSpec spec = SumRound(1);
         spec.mutable_straggler()->set_factor(static_cast<double>(most));
         spec.mutable_straggler()->set_deadline_factor(static_cast<double>(most));
         return CheckSpec(spec);
       }},
      {"Value of `staleness.max`",
       [](int64_t most) {
         v1::StalenessPolicy policy;
         policy.set_max(static_cast<int32_t>(most));
         return CheckStaleness(policy);
       }},
      {"Value of `staleness.exponent`",
       [](int64_t most) {
         v1::StalenessPolicy policy;
         policy.set_function(v1::POLYNOMIAL);
         policy.set_exponent(static_cast<double>(most));
         return CheckStaleness(policy);
       }},
      {"Value of `priority`",
       [](int64_t most) {
         v1::RoundSpec spec = SumRound(1);
         spec.set_priority(static_cast<int32_t>(most));
         return CheckSpec(spec);
       }},
      {"Populations of a token that is bound to some",
       [](int64_t most) {
         return MakeToken([&](v1::CreateTokenRequest& token) {
           for (int64_t i = 0; i < most; ++i) token.add_populations("p" + std::to_string(i));
         });
       }},
      {"Characters of the certificate's name that a token stands for",
       [](int64_t most) {
         return MakeToken([&](v1::CreateTokenRequest& token) {
           token.set_certificate(std::string(static_cast<size_t>(most), 'c'));
         });
       }},
      {"Dimensions of a tensor in a safetensors file", CheckTensorRank},
  };
  return kTrials;
}

TEST_CASE("What is at a fixed limit passes, and what is beyond it is refused as its row says") {
  CHECK(FixedLimits().size() == Trials().size());
  for (const FixedLimit& limit : FixedLimits()) {
    const std::string what(limit.what);
    INFO(what);
    REQUIRE(Trials().contains(what));
    const auto& trial = Trials().at(what);
    const absl::Status at = trial(static_cast<int64_t>(limit.most));
    INFO(at.ToString());
    CHECK(at.ok());
    const absl::Status beyond = trial(static_cast<int64_t>(limit.most + 1));
    INFO(beyond.ToString());
    CHECK((beyond.code() == kRejected ? "REJECTED" : absl::StatusCodeToString(beyond.code())) == limit.answer);
  }
}

}  // namespace
}  // namespace sheaf
