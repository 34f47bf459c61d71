#include "cli/input/message_input.h"

#include <catch2/catch.hpp>

#include "sheaf/v1/round.pb.h"

namespace sheaf {
namespace {

std::string ErrorOf(const std::string& json) {
  v1::RoundSpec spec;
  const absl::Status status = FromJson(json, "spec.json", &spec);
  CHECK(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

v1::RoundSpec Parsed(const std::string& json) {
  v1::RoundSpec spec;
  const absl::Status status = FromJson(json, "spec.json", &spec);
  INFO(status.ToString());
  CHECK(status.ok());
  return spec;
}

TEST_CASE("Durations in a spec are written as people write them") {
  CHECK(Parsed(R"({"deadline": "600s"})").deadline().seconds() == 600);
  CHECK(Parsed(R"({"deadline": "10m"})").deadline().seconds() == 600);
  CHECK(Parsed(R"({"lease_duration": "1h30m"})").lease_duration().seconds() == 5400);
  CHECK(Parsed(R"({"leaseDuration": "1.5s"})").lease_duration().nanos() == 500'000'000);
  CHECK(Parsed(R"({"leaseDuration": "250ms"})").lease_duration().nanos() == 250'000'000);
}

TEST_CASE("A whole spec comes through") {
  const v1::RoundSpec spec = Parsed(R"({
    "job": "tags\u00e9", "computation": {"name": "tags", "versionMin": 2, "config": "MQ=="},
    "aggregate": {"outputs": [{"name": "w", "operator": "sum", "dtype": "FLOAT32", "denseShape": [4, "5"]}]},
    "listed": {"tasks": [{"payload": "_-8=", "requirements": {"zone": "eu"}}, {}]},
    "overSelection": 1.5, "minClients": "7", "durability": "EPHEMERAL", "goal": null})");
  CHECK(spec.job() == "tags\xc3\xa9");
  CHECK(spec.computation().config() == "1");
  CHECK(spec.aggregate().outputs(0).dense_shape(1) == 5);
  CHECK(spec.listed().tasks(0).payload() == "\xff\xef");
  CHECK(spec.listed().tasks(0).requirements().at("zone") == "eu");
  CHECK(spec.listed().tasks_size() == 2);
  CHECK(spec.over_selection() == 1.5);
  CHECK(spec.min_clients() == 7);
  CHECK(spec.durability() == v1::EPHEMERAL);
}

TEST_CASE("What is wrong in a spec is named by line and field, with what is expected there") {
  CHECK(ErrorOf("{\n\"computation\": {\n  \"name\": \"tags\",\n  \"verison\": 1}}") ==
        "spec.json:4: computation.verison: there is no such field; the fields here are name, versionMin, config");
  CHECK(
      ErrorOf("{\"deadline\":\n600}")
          .starts_with("spec.json:1: deadline: 600 stands where a length of time in quotes, such as \"30s\", \"10m\""));
  CHECK(ErrorOf("{\"deadline\": \"10 minutes\"}").starts_with("spec.json:1: deadline: \"10 minutes\" stands where"));
  CHECK(ErrorOf("{\n\n\"aggregate\": {\"outputs\": [{},\n{\"dtype\": \"float3\"}]}}")
            .starts_with("spec.json:4: aggregate.outputs[1].dtype: \"float3\" is none of "));
  CHECK(ErrorOf("{\n\n\"aggregate\": {\"outputs\": [{},\n{\"dtype\": \"float32\"}]}}")
            .ends_with("did you mean FLOAT32?"));
  CHECK(ErrorOf(R"({"aggregate": {"outputs": {}}})") ==
        "spec.json:1: aggregate.outputs: an object stands where a list, [...] is expected");
  CHECK(ErrorOf(R"({"listed": {"tasks": [{"payload": "1"}]}})")
            .find("listed.tasks[0].payload: \"1\" stands where bytes") != std::string::npos);
  CHECK(ErrorOf(R"({"goal": 1.5})").find("goal: 1.5 stands where a whole number from -2147483648 to") !=
        std::string::npos);
  CHECK(ErrorOf(R"({"goal": 3000000000})").find("goal: 3000000000 stands where") != std::string::npos);
  CHECK(ErrorOf(R"({"job": 7})") == "spec.json:1: job: 7 stands where a text in quotes is expected");
  CHECK(ErrorOf(R"({"listed": {}, "openSlots": {}})").find("openSlots: only one of its kind") != std::string::npos);
  CHECK(ErrorOf("{\"goal\": 1,\n\"goal\": 2}") == "spec.json:2: \"goal\" is given twice, first in line 1");
  CHECK(ErrorOf(R"({"listed": {"tasks": [{"requirements": {"zone": 7}}]}})")
            .find("listed.tasks[0].requirements[\"zone\"]: 7 stands where a text") != std::string::npos);
  CHECK(ErrorOf("[]") == "spec.json:1: a list stands where an object, {...} is expected");
}

TEST_CASE("What is not JSON is named by its line") {
  CHECK(ErrorOf("").starts_with("spec.json:1: this is not JSON"));
  CHECK(ErrorOf("{\n\"goal\": 1,\n}").starts_with("spec.json:3: this is not JSON: "));
  CHECK(ErrorOf("{\"goal\": 1} x").starts_with("spec.json:1: this is not JSON"));
  CHECK(ErrorOf("{\"job\": \"\xff\"}").starts_with("spec.json:1: this is not JSON"));
  CHECK(ErrorOf(std::string(1'000'000, '[')) == "spec.json:1: this nests deeper than 64");
  for (const char* text : {"{", "{\"goal\": 1.5}", "[]"}) CHECK(ErrorOf(text).find("proto") == std::string::npos);
}

std::string YamlErrorOf(const std::string& yaml) {
  v1::RoundSpec spec;
  const absl::Status status = FromYaml(yaml, "spec.yaml", &spec);
  CHECK(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

TEST_CASE("A spec as YAML is the same as one as JSON") {
  v1::RoundSpec spec;
  CHECK(FromYaml(R"(
# What a comment says does not matter.
job: "tags\u00e9"
computation: {name: tags, versionMin: 2, config: MQ==}
aggregate:
  outputs:
    - name: w
      operator: sum
      dtype: FLOAT32
      denseShape: [4, 0x5]
listed:
  tasks:
    - payload: _-8=
      requirements: {zone: "1"}
    - {}
deadline: 1h30m
overSelection: 1.5
minClients: "7"
goal: ~
)",
                 "spec.yaml", &spec)
            .ToString() == "OK");
  const v1::RoundSpec same = Parsed(R"({
    "job": "tags\u00e9", "computation": {"name": "tags", "versionMin": 2, "config": "MQ=="},
    "aggregate": {"outputs": [{"name": "w", "operator": "sum", "dtype": "FLOAT32", "denseShape": [4, 5]}]},
    "listed": {"tasks": [{"payload": "_-8=", "requirements": {"zone": "1"}}, {}]},
    "deadline": "1h30m", "overSelection": 1.5, "minClients": 7})");
  CHECK(spec.SerializeAsString() == same.SerializeAsString());
}

TEST_CASE("What is wrong in YAML is named by line and field") {
  CHECK(YamlErrorOf("computation:\n  name: tags\n  verison: 1\n") ==
        "spec.yaml:3: computation.verison: there is no such field; the fields here are name, versionMin, config");
  CHECK(YamlErrorOf("goal: 1\ngoal: 2\n") == "spec.yaml:2: \"goal\" is given twice, first in line 1");
  CHECK(YamlErrorOf("job: 1.10\n") == "spec.yaml:1: job: 1.1 stands where a text in quotes is expected");
  CHECK(YamlErrorOf("goal: five\n").starts_with("spec.yaml:1: goal: \"five\" stands where a whole number"));
  CHECK(YamlErrorOf("overSelection: .inf\n") != "");
  CHECK(YamlErrorOf("- 1\n") == "spec.yaml:1: a list stands where an object, {...} is expected");
  CHECK(YamlErrorOf("") == "spec.yaml:1: null stands where an object, {...} is expected");
  CHECK(YamlErrorOf("goal: 1\n---\ngoal: 2\n") == "spec.yaml:2: one document is expected, and another begins here");
  CHECK(YamlErrorOf("job: &a x\nlisted: {tasks: [*a]}\n") ==
        "spec.yaml:2: an alias (*) is not taken: write the value again");
  CHECK(YamlErrorOf("job: !!binary x\n") == "spec.yaml:1: a tag is not taken: tag:yaml.org,2002:binary");
  CHECK(YamlErrorOf("{[1]: 2}\n") == "spec.yaml:1: a name must be a text");
}

TEST_CASE("What is not YAML is named by its line") {
  CHECK(YamlErrorOf("goal: 1\n  job: 2\n").starts_with("spec.yaml:2: this is not YAML: "));
  CHECK(YamlErrorOf("goal: [1\n").find(": this is not YAML: ") != std::string::npos);
  CHECK(YamlErrorOf("job: \xff\n") == "spec.yaml:1: this is not YAML: it is not UTF-8");
  CHECK(YamlErrorOf(std::string(1'000'000, '[')).starts_with("spec.yaml:1: "));
  std::string nested;
  for (int i = 0; i < 1000; ++i) nested += "{a: ";
  nested += "1" + std::string(1000, '}');
  CHECK(YamlErrorOf(nested) == "spec.yaml:1: this nests deeper than 64");
}

}  // namespace
}  // namespace sheaf
