#include "workloads/reco/program.h"

#include <bit>
#include <utility>

#include "aggregation/wire/safetensors_patch.h"
#include "base/checksum.h"
#include "base/status_macros.h"
#include "proto/time.h"
#include "sdk/cpp/program/released_rows.h"
#include "workloads/brute_force.h"
#include "workloads/client_sampling.h"
#include "workloads/client_selector.h"

namespace sheaf {
namespace {

static_assert(std::endian::native == std::endian::little);

std::string_view AsBytes(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace

RecoProgram::RecoProgram(const RecoDataset& dataset, RecoProgramOptions options)
    : dataset_(dataset),
      options_(std::move(options)),
      training_clients_(dataset.TrainingClients()),
      model_(RecoModel::Initial(dataset.num_items(), options_.client.dimensions, options_.seed)),
      optimizer_(
          *ServerOptimizer::Create("FedAdagrad", {.learning_rate = options_.learning_rate, .tau = options_.tau})) {
  options_.client.num_items = dataset.num_items();
}

std::vector<int> RecoProgram::SampleClients(int number) const {
  SeededRandom random = RoundRandom(options_.seed, number, RoundStream::kClients);
  return sheaf::SampleClients(training_clients_, options_.clients_per_round, random);
}

absl::StatusOr<v1::RoundSpec> RecoProgram::Plan(int number) {
  v1::RoundSpec spec;
  spec.set_population(options_.population);
  spec.set_job(options_.job);
  RecoConfig config = options_.client;
  config.seed = RoundRandom(options_.seed, number, RoundStream::kTraining).Bits();
  spec.mutable_computation()->set_name(kRecoComputation);
  spec.mutable_computation()->set_version_min(kRecoComputationVersion);
  spec.mutable_computation()->set_config(config.Serialize());
  v1::OutputSpec& rows = *spec.mutable_aggregate()->add_outputs();
  rows.set_name(kRecoRowsOutput);
  rows.set_operator_("slices_sum");
  rows.set_dtype(v1::FLOAT32);
  rows.add_dense_shape(model_.num_items);
  rows.add_dense_shape(model_.width);
  for (int client : SampleClients(number)) {
    spec.mutable_listed()->add_tasks()->set_data_selector(ClientSelector(client));
  }
  if (options_.round_deadline > absl::ZeroDuration()) {
    *spec.mutable_deadline() = ToProto(options_.round_deadline);
  }
  return spec;
}

absl::StatusOr<std::string> RecoProgram::Broadcast(int) {
  const std::vector<TensorView> tensors = {{.name = kRecoItemsTensor,
                                            .dtype = v1::FLOAT32,
                                            .shape = {model_.num_items, model_.width},
                                            .data = AsBytes(model_.weights)}};
  return EncodeSafetensors(tensors, {{"computation", kRecoComputation}});
}

absl::StatusOr<std::optional<std::string>> RecoProgram::Patch(int, const std::string& base) {
  const std::vector<float> rows = model_.Gather(moved_rows_);
  const TensorChange change = {.tensor = kRecoItemsTensor,
                               .rows = moved_rows_,
                               .dtype = v1::FLOAT32,
                               .shape = {static_cast<int64_t>(moved_rows_.size()), model_.width},
                               .data = AsBytes(rows)};
  return EncodeSafetensorsPatch(base, {&change, 1});
}

absl::Status RecoProgram::Apply(int, const SafetensorsView& aggregate, const v1::Round&) {
  ASSIGN_OR_RETURN(ReleasedRows rows,
                   ReadReleasedRows(aggregate, kRecoRowsOutput, {.num_rows = model_.num_items, .width = model_.width}));
  // Clients send gradients; the model goes the other way.
  for (float& value : rows.values) value = -value;
  moved_rows_ = std::move(rows.indices);
  return optimizer_.MoveRows(kRecoItemsTensor, moved_rows_, rows.values, model_.width, model_.weights);
}

absl::StatusOr<std::map<std::string, double>> RecoProgram::Evaluate(int) {
  return std::map<std::string, double>{{kRecoRecallMetric, RecoRecallAt20(model_, dataset_, options_.client)}};
}

absl::StatusOr<Verification> RecoProgram::Verify(int, const RoundPlan& plan, const SafetensorsView& aggregate) {
  ASSIGN_OR_RETURN(const RecoConfig config, RecoConfig::Parse(plan.spec.computation().config()));
  std::vector<v1::Contribution> contributions;
  for (const v1::TaskSpec& task : plan.spec.listed().tasks()) {
    ASSIGN_OR_RETURN(const int client, dataset_.ParseSelector(task.data_selector()));
    const RecoDraw draw = DrawReco(dataset_.items(client), client, config);
    contributions.push_back(BuildRecoContribution(ComputeReco(draw, config, model_.Gather(draw.rows)), config));
  }
  return VerifyByBruteForce(plan.spec.aggregate(), contributions, aggregate);
}

std::string RecoProgram::ModelDigest() const { return Sha256Hex(AsBytes(model_.weights)); }

}  // namespace sheaf
