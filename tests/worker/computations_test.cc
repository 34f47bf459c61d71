#include <catch2/catch.hpp>
#include <cstring>

#include "aggregation/operators.h"
#include "aggregation/round_accumulator.h"
#include "probe/computations/noop.h"
#include "probe/computations/one_hot.h"
#include "probe/computations/slow.h"
#include "worker/computation_runner.h"
#include "worker/computation_table.h"

namespace sheaf {
namespace {

// Nobody waits; it counts how long they would have.
class CountingWaiter final : public Waiter {
 public:
  void Wait(absl::Duration duration) override { waited += duration; }
  absl::Duration waited;
};

struct Fixture {
  DataSources data{{}};
  CountingWaiter waiter;
  ComputationRunner runner{
      ComputationTable{NoopComputation(), OneHotComputation(), SlowComputation()}.Make({data, waiter}),
      [](std::function<void()> work) { work(); }};
  std::shared_ptr<RunControl> control = std::make_shared<RunControl>();

  absl::StatusOr<std::string> Compute(const std::string& computation, const std::string& payload,
                                      const v1::AggregateSpec& spec, int version_min = 0) {
    auto lease = std::make_shared<v1::Lease>();
    lease->set_task("r/1");
    lease->mutable_computation()->set_name(computation);
    lease->mutable_computation()->set_version_min(version_min);
    lease->set_payload(payload);
    *lease->mutable_aggregate() = spec;
    absl::StatusOr<std::string> result = absl::InternalError("no answer");
    runner.Prepare(lease, control, [&](absl::StatusOr<std::shared_ptr<PreparedTask>> task) {
      if (!task.ok()) {
        result = task.status();
        return;
      }
      runner.Run(*task, std::make_shared<TaskInputs>(), control, [&](absl::StatusOr<RunOutcome> outcome) {
        if (outcome.ok()) {
          result = std::get<std::string>(*std::move(outcome));
        } else {
          result = outcome.status();
        }
      });
    });
    return result;
  }
};

// One output for every operator of the table, in every type it takes.
v1::AggregateSpec EveryOperator() {
  v1::AggregateSpec spec;
  for (const Operator& op : Operators()) {
    for (v1::DType dtype : {v1::FLOAT32, v1::FLOAT64, v1::INT32, v1::INT64, v1::UINT64}) {
      if (dtype != v1::FLOAT32 && dtype != v1::FLOAT64 && !op.takes_integers()) continue;
      v1::OutputSpec* output = spec.add_outputs();
      output->set_name(std::string(op.symbol) + "/" + v1::DType_Name(dtype));
      output->set_operator_(std::string(op.symbol));
      output->set_dtype(dtype);
      output->add_dense_shape(7);
      output->add_dense_shape(3);
      if (op.operand == Operand::kKeyed) output->set_key_type(v1::STRING_KEYS);
    }
  }
  return spec;
}

TEST_CASE("noop and one_hot return what every operator accepts") {
  v1::AggregateSpec spec = EveryOperator();
  absl::StatusOr<RoundAccumulator> sum = RoundAccumulator::Create(spec);
  REQUIRE(sum.ok());
  Fixture test;
  for (auto [computation, payload] : {std::pair("noop", ""), {"one_hot", "5"}, {"slow", "10ms"}, {"slow", "10ms 5"}}) {
    INFO(computation);
    absl::StatusOr<std::string> bytes = test.Compute(computation, payload, spec);
    REQUIRE(bytes.ok());
    v1::Contribution contribution;
    REQUIRE(contribution.ParseFromString(*bytes));
    absl::StatusOr<ValidContribution> valid = sum->Validate(contribution);
    INFO(valid.status().ToString());
    CHECK(valid.ok());
  }
}

// Ends as the test says.
class EndingTask final : public PreparedTask {
 public:
  explicit EndingTask(absl::StatusOr<TaskOutcome> end) : end_(std::move(end)) {}
  const InputRequest& input_request() const override { return request_; }
  absl::StatusOr<TaskOutcome> Run(const TaskInputs&, RunControl&) override { return end_; }

 private:
  const absl::StatusOr<TaskOutcome> end_;
  const InputRequest request_;
};

TEST_CASE("A task is let go before anybody hears of its end, so that its place can be offered in the same call") {
  Fixture test;
  for (const absl::StatusOr<TaskOutcome>& end :
       {absl::StatusOr<TaskOutcome>(v1::Contribution()), absl::StatusOr<TaskOutcome>(Declined{"not here"}),
        absl::StatusOr<TaskOutcome>(absl::InternalError("out of luck"))}) {
    auto task = std::make_shared<EndingTask>(end);
    const std::weak_ptr<EndingTask> watched = task;
    bool was_told = false;
    test.runner.Run(std::move(task), std::make_shared<TaskInputs>(), test.control, [&](absl::StatusOr<RunOutcome> run) {
      was_told = true;
      CHECK(run.status() == end.status());
      CHECK(watched.expired());
    });
    CHECK(was_told);
  }
}

TEST_CASE("The sum of one_hot contributions shows which were counted, and how often") {
  v1::AggregateSpec spec;
  for (const char* symbol : {"sum", "sparse_sum_to_dense"}) {
    v1::OutputSpec* output = spec.add_outputs();
    output->set_name(symbol);
    output->set_operator_(symbol);
    output->set_dtype(v1::INT64);
    output->add_dense_shape(2);
    output->add_dense_shape(3);
  }
  absl::StatusOr<RoundAccumulator> sum = RoundAccumulator::Create(spec);
  REQUIRE(sum.ok());
  Fixture test;
  for (const char* payload : {"1", "4", "4"}) {
    v1::Contribution contribution;
    REQUIRE(contribution.ParseFromString(*test.Compute("one_hot", payload, spec)));
    absl::StatusOr<ValidContribution> valid = sum->Validate(contribution);
    REQUIRE(valid.ok());
    sum->Accumulate(*valid);
  }
  absl::StatusOr<AggregateReport> report = sum->Report();
  REQUIRE(report.ok());
  auto values = [&](int output) {
    std::vector<int64_t> numbers(6);
    std::memcpy(numbers.data(), report->tensors.at(output).data.data(), 6 * sizeof(int64_t));
    return numbers;
  };
  CHECK(values(0) == std::vector<int64_t>{0, 1, 0, 0, 2, 0});
  CHECK(values(1) == std::vector<int64_t>{3, 1, 0, 0, 2, 0});
}

TEST_CASE("A task that makes no sense is wrong for every worker") {
  Fixture test;
  v1::AggregateSpec spec = EveryOperator();
  for (auto [computation, payload] : {std::pair("one_hot", ""),
                                      {"one_hot", "three"},
                                      {"one_hot", "-1"},
                                      {"one_hot", "21"},
                                      {"slow", "soon"},
                                      {"slow", "-1s"},
                                      {"slow", "1s seven"},
                                      {"slow", "1s 99999"}}) {
    INFO(computation << " " << payload);
    CHECK(test.Compute(computation, payload, spec).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("A computation or version that this worker lacks may be another worker's") {
  Fixture test;
  absl::Status unknown = test.Compute("dreams", "", {}).status();
  CHECK(unknown.code() == absl::StatusCode::kUnimplemented);
  CHECK_THAT(std::string(unknown.message()), Catch::Contains("dreams"));
  CHECK(test.Compute("noop", "", {}, 2).status().code() == absl::StatusCode::kUnimplemented);
}

TEST_CASE("slow takes its time, shows progress, and stops when told to") {
  Fixture test;
  CHECK(test.Compute("slow", "1.02s", EveryOperator()).ok());
  CHECK(test.waiter.waited == absl::Milliseconds(1020));
  CHECK(test.control->progress() >= 20);
  test.control->Cancel();
  CHECK(test.Compute("slow", "1h", EveryOperator()).status().code() == absl::StatusCode::kCancelled);
  CHECK(test.waiter.waited < absl::Seconds(2));
}

using Numbers = std::vector<int>;

DataSource<Numbers> NumbersSource(std::string name, int& num_loads) {
  return {.name = std::move(name),
          .example = "one.txt",
          .locations = "\"one\", which is there, or \"none\"",
          .load = [&num_loads](const std::string& location) -> absl::StatusOr<Numbers> {
            ++num_loads;
            if (location == "none") return absl::NotFoundError("there are no numbers at none");
            return Numbers{1, 2, 3};
          }};
}

absl::StatusOr<v1::Contribution> CountNumbers(const v1::Lease&, const Numbers& numbers, RunControl&) {
  v1::Contribution contribution;
  contribution.set_num_clients(static_cast<int64_t>(numbers.size()));
  return contribution;
}

TEST_CASE("A computation is offered only where its data is") {
  int num_loads = 0;
  const ComputationTable table = {ComputationOver("odd", NumbersSource("odds", num_loads), CountNumbers),
                                  ComputationOver("even", NumbersSource("evens", num_loads), CountNumbers),
                                  ComputationOver("two", NumbersSource("evens", num_loads), CountNumbers),
                                  NoopComputation(), SlowComputation()};
  DataSources data(table.data_sources());
  auto offers = [&](const std::vector<std::string>& allowed) {
    CountingWaiter waiter;
    std::vector<std::string> names;
    for (const auto& computation : table.Make({data, waiter}, allowed)) {
      names.push_back(std::string(computation->name()));
    }
    return names;
  };
  CHECK(offers({}) == std::vector<std::string>{"noop", "slow"});
  CHECK(table.MissingDataHints(data).size() == 3);
  CHECK_THAT(table.MissingDataHints(data).at(0), Catch::Contains("\"odd\"") && Catch::Contains("--data odds="));
  REQUIRE(data.Configure("evens", "one").ok());
  CHECK(offers({}) == std::vector<std::string>{"even", "two", "noop", "slow"});
  CHECK(offers({"slow"}) == std::vector<std::string>{"slow"});
  CHECK(table.MissingDataHints(data).size() == 1);
  REQUIRE(data.Configure("odds", "one").ok());
  CHECK(offers({}) == std::vector<std::string>{"odd", "even", "two", "noop", "slow"});
  CHECK(table.MissingDataHints(data).empty());
  CHECK(num_loads == 0);
}

TEST_CASE("Data that is missing or unknown is an error that says what to do") {
  int num_loads = 0;
  const DataSource<Numbers> odds = NumbersSource("odds", num_loads);
  DataSources data({odds});
  CHECK_THAT(std::string(LocalData(odds, data).Load().status().message()), Catch::Contains("--data odds=one.txt"));
  CHECK_THAT(std::string(data.Configure("moon", "one").message()), Catch::Contains("\"odds\""));
  CHECK_THAT(std::string(data.Configure("odds", "").message()), Catch::Contains("\"one\""));
  CHECK_THAT(std::string(DataSources({}).Configure("moon", "one").message()), Catch::Contains("there is none"));
}

TEST_CASE("Data is loaded when it is first needed, and once; what failed is tried again") {
  int num_loads = 0;
  const ComputationTable table = {ComputationOver("odd", NumbersSource("odds", num_loads), CountNumbers)};
  DataSources data(table.data_sources());
  CountingWaiter waiter;
  ComputationRunner runner(
      [&] {
        REQUIRE(data.Configure("odds", "none").ok());
        return table.Make({data, waiter});
      }(),
      [](std::function<void()> work) { work(); });
  auto prepare = [&] {
    auto lease = std::make_shared<v1::Lease>();
    lease->mutable_computation()->set_name("odd");
    absl::Status status = absl::InternalError("no answer");
    runner.Prepare(lease, std::make_shared<RunControl>(),
                   [&](const absl::StatusOr<std::shared_ptr<PreparedTask>>& task) { status = task.status(); });
    return status;
  };
  CHECK(absl::IsNotFound(prepare()));
  CHECK(absl::IsNotFound(prepare()));
  CHECK(num_loads == 2);
  REQUIRE(data.Configure("odds", "one").ok());
  CHECK(prepare().ok());
  CHECK(prepare().ok());
  CHECK(num_loads == 3);
}

}  // namespace
}  // namespace sheaf
