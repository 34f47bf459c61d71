// What is stored says all that the API says, reads what 0.1 wrote, and says so when it cannot be read.
#include <fmt/format.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/message_differencer.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "server/stored/attempt.pb.h"
#include "server/stored/attempt_timings.h"
#include "server/stored/round.pb.h"
#include "server/stored/round_progress.h"
#include "server/stored/round_release.h"
#include "server/stored/round_spec.h"
#include "server/stored/worker.pb.h"
#include "server/stored/worker_description.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Catch::Contains;
using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::util::MessageDifferencer;

// Gives every field a value of its own, lists and maps two; of a oneof the last field stays.
class Filler {
 public:
  void Fill(Message& message) {
    const Descriptor& type = *message.GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      Set(message, field);
      if (field.is_repeated()) Set(message, field);
    }
  }

 private:
  void Set(Message& message, const FieldDescriptor& field) {
    const Reflection& reflection = *message.GetReflection();
    const bool adds = field.is_repeated();
    const int number = ++number_;
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(adds ? *reflection.AddMessage(&message, &field) : *reflection.MutableMessage(&message, &field));
      case FieldDescriptor::CPPTYPE_STRING:
        return adds ? reflection.AddString(&message, &field, std::to_string(number))
                    : reflection.SetString(&message, &field, std::to_string(number));
      case FieldDescriptor::CPPTYPE_INT64:
        return adds ? reflection.AddInt64(&message, &field, number) : reflection.SetInt64(&message, &field, number);
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection.SetInt32(&message, &field, number);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return reflection.SetDouble(&message, &field, number + 0.5);
      case FieldDescriptor::CPPTYPE_BOOL:
        return reflection.SetBool(&message, &field, true);
      case FieldDescriptor::CPPTYPE_ENUM:
        return reflection.SetEnumValue(&message, &field, 1 + number % (field.enum_type()->value_count() - 1));
      default:
        FAIL("the filler cannot fill " << field.full_name());
    }
  }

  int number_ = 0;
};

template <typename M>
M Filled() {
  M message;
  Filler().Fill(message);
  return message;
}

std::string Difference(const Message& one, const Message& other) {
  MessageDifferencer differencer;
  std::string report;
  differencer.ReportDifferencesToString(&report);
  differencer.Compare(one, other);
  return report;
}

TEST_CASE("A spec that was stored is the spec that was asked for, but for the listed tasks, which have rows") {
  v1::RoundSpec spec = Filled<v1::RoundSpec>();
  REQUIRE(spec.has_open_slots());
  CHECK(Difference(spec, DecodeSpec({.spec = EncodeSpec(spec)}).value()).empty());
  Filler().Fill(*spec.mutable_listed());
  const v1::RoundSpec read = DecodeSpec({.spec = EncodeSpec(spec)}).value();
  REQUIRE(read.has_listed());
  CHECK(read.listed().tasks().empty());
  spec.mutable_listed()->clear_tasks();
  CHECK(Difference(spec, read).empty());
  CHECK(Difference(v1::RoundSpec(), DecodeSpec({}).value()).empty());
}

// To the nanosecond.
std::vector<Interval> SomePath() {
  return {{.phase = "compute",
           .begin = absl::ZeroDuration(),
           .end = absl::Hours(8000) + absl::Nanoseconds(7),
           .task_index = 3,
           .attempt = 2,
           .worker = "edge-7"},
          {.phase = "seal", .begin = absl::Hours(8000) + absl::Nanoseconds(7), .end = absl::Hours(8001)}};
}

// Before the lease, and with a gap.
std::vector<Interval> SomeIntervals() {
  return {{.phase = "wait", .begin = -absl::Seconds(3), .end = absl::ZeroDuration()},
          {.phase = "compute", .begin = absl::Nanoseconds(7), .end = absl::Hours(8000)}};
}

TEST_CASE("What a round released is read as it was stored") {
  const RoundRelease release{.aggregate = Filled<v1::Aggregate>(),
                             .phases = Filled<v1::RoundPhases>(),
                             .metrics = {{"loss", 0.5}, {"examples", 7}},
                             .critical_path = SomePath()};
  const RoundRelease read = DecodeRelease({.aggregate = EncodeRelease(release)}).value();
  CHECK(Difference(release.aggregate, read.aggregate).empty());
  CHECK(Difference(release.phases, read.phases).empty());
  CHECK(read.metrics == release.metrics);
  CHECK(read.critical_path == release.critical_path);
}

TEST_CASE("A round's progress is read as it was stored") {
  const RoundProgress progress{.bytes_down = int64_t{6} << 40, .metrics = {{"loss", 0.1}, {"", -1e300}}};
  const RoundProgress read = DecodeProgress({.progress = EncodeProgress(progress)}).value();
  CHECK(read.bytes_down == progress.bytes_down);
  CHECK(read.metrics == progress.metrics);
  // Of a round that nobody has contributed to yet.
  CHECK(DecodeProgress({})->metrics.empty());
}

TEST_CASE("An attempt's timings are read as they were stored, and what its worker left out stays out") {
  AttemptTimings timings{.durations = Filled<v1::AttemptTimings>(), .intervals = SomeIntervals()};
  // What its worker says of its own clock is placed on the server's.
  timings.durations.clear_intervals();
  timings.durations.clear_handed_in();
  timings.durations.clear_grant_time();
  const auto read = [&] {
    return DecodeTimings(TaskId{RoundId("r-1"), 3}, {.timings = EncodeTimings(timings)}).value();
  };
  CHECK(Difference(timings.durations, read().durations).empty());
  CHECK(read().intervals == timings.intervals);
  timings.durations.clear_prepare();
  timings.durations.mutable_upload()->Clear();
  timings.intervals.clear();
  CHECK(Difference(timings.durations, read().durations).empty());
  CHECK(read().intervals.empty());
}

TEST_CASE("A worker's description is read as it was stored") {
  const auto request = Filled<v1::SyncRequest>();
  v1::Worker expected;
  expected.set_software_version(request.software_version());
  expected.set_protocol_version(request.protocol_version());
  *expected.mutable_computations() = request.computations();
  *expected.mutable_labels() = request.labels();
  CHECK(Difference(expected, DecodeDescription({.description = EncodeDescription(request)}).value()).empty());
}

TEST_CASE("Stored bytes that cannot be read are an error that names the record") {
  const std::string damaged = "\xff\xff";
  const RoundRecord round{.id = RoundId("r-7k2m9q4x"), .spec = damaged, .progress = damaged, .aggregate = damaged};
  const AttemptRecord attempt{.number = 2, .timings = damaged};
  const WorkerRecord worker{.name = WorkerName("w1"), .population = "phones", .description = damaged};
  for (const auto& [status, name] : {
           std::pair(DecodeSpec(round).status(), "the spec of round r-7k2m9q4x"),
           std::pair(DecodeProgress(round).status(), "the progress of round r-7k2m9q4x"),
           std::pair(DecodeRelease(round).status(), "what round r-7k2m9q4x released"),
           std::pair(DecodeTimings({RoundId("r-1"), 3}, attempt).status(), "the timings of attempt 2 at task r-1/3"),
           std::pair(DecodeDescription(worker).status(), "the description of worker w1 of population 'phones'"),
       }) {
    CHECK(status.code() == absl::StatusCode::kDataLoss);
    CHECK_THAT(std::string(status.message()), Contains(name) && Contains("restore the store from a backup"));
  }
}

TEST_CASE("Whoever asks for a round whose record cannot be read is told so, and others are served") {
  CoreFederation server;
  const std::string whole = server.CreateRound(SumRound(2));
  REQUIRE(server.store().BeginBatch().ok());
  REQUIRE(
      server.store()
          .CreateRound(
              {.round = {.id = RoundId("r-damaged"), .population = "default", .request_id = "its own", .spec = "\xff"},
               .tasks = std::vector<TaskStore::NewTask>(1)})
          .ok());
  REQUIRE(server.store().CommitBatch().ok());
  v1::GetRoundRequest get;
  get.set_round("r-damaged");
  for (const absl::Status& status :
       {server.Call<v1::GetRoundResponse>("RoundService/GetRound", get).status(),
        server.Call<v1::ListRoundsResponse>("RoundService/ListRounds", v1::ListRoundsRequest()).status()}) {
    CHECK(status.code() == absl::StatusCode::kDataLoss);
    CHECK_THAT(std::string(status.message()), Contains("the spec of round r-damaged cannot be read"));
  }
  CHECK(server.GetRound(whole).id() == whole);
  CHECK(server.Sync(Ask("w", 1)).leases_size() == 1);
}

TEST_CASE("A stored value that this version does not know is named") {
  stored::v1::RoundSpec spec;
  spec.mutable_aggregate()->add_outputs()->set_dtype(static_cast<stored::v1::DType>(99));
  const absl::Status status = DecodeSpec({.id = RoundId("r-1"), .spec = spec.SerializeAsString()}).status();
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK_THAT(std::string(status.message()), Contains("the spec of round r-1 cannot be read: it has dtype 99"));
}

// --- 0.1 stored messages of the API -----------------------------------------------------------------------------

const std::vector<const FileDescriptor*>& StoredFiles() {
  static const std::vector<const FileDescriptor*> files = {stored::v1::RoundSpec::descriptor()->file(),
                                                           stored::v1::AttemptTimings::descriptor()->file(),
                                                           stored::v1::WorkerDescription::descriptor()->file()};
  return files;
}

// The message of 0.1 that stood where this one does now.
std::string NameIn01(std::string name) {
  for (const auto& [now, before] : std::map<std::string, std::string>{{"sheaf.stored.v1.", "sheaf.v1."},
                                                                      {".RoundProgress", ".Round"},
                                                                      {".RoundRelease", ".Round"},
                                                                      {".WorkerDescription", ".Worker"}}) {
    if (const size_t at = name.find(now); at != std::string::npos) name.replace(at, now.size(), before);
  }
  return name;
}

// "sheaf.v1.RoundSpec.goal" -> "7 int32"; "sheaf.v1.DType FLOAT32" -> "1".
std::map<std::string, std::string> ContractOf01() {
  std::ifstream file(SHEAF_SOURCE "/tests/golden/v1/contract.txt");
  std::map<std::string, std::string> contract;
  for (std::string line; std::getline(file, line);) {
    const size_t equals = line.find(" = ");
    if (equals != std::string::npos) contract[line.substr(0, equals)] = line.substr(equals + 3);
  }
  return contract;
}

std::string TypeOf(const FieldDescriptor& field) {
  std::string type = field.type_name();
  if (field.message_type() != nullptr) type = NameIn01(field.message_type()->full_name());
  if (field.enum_type() != nullptr) type = NameIn01(field.enum_type()->full_name());
  const auto* oneof = field.real_containing_oneof();
  return fmt::format("{} {}{}{}", field.number(), field.is_repeated() ? "repeated " : "", type,
                     oneof == nullptr ? "" : " of " + oneof->name());
}

void CheckReads01(const Descriptor& type, const std::map<std::string, std::string>& contract) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    INFO(field.full_name());
    const auto before = contract.find(NameIn01(field.full_name()));
    if (before != contract.end()) {
      CHECK(TypeOf(field) == before->second);
      continue;
    }
    // A field that 0.1 did not have has a number that 0.1 did not use.
    const std::string prefix = NameIn01(type.full_name()) + ".";
    for (auto it = contract.lower_bound(prefix); it != contract.end() && it->first.starts_with(prefix); ++it) {
      CHECK(it->second.substr(0, it->second.find(' ')) != std::to_string(field.number()));
    }
  }
  for (int i = 0; i < type.nested_type_count(); ++i) CheckReads01(*type.nested_type(i), contract);
}

TEST_CASE("Stored messages have the fields of those of the API that 0.1 stored, under their numbers") {
  const std::map<std::string, std::string> contract = ContractOf01();
  REQUIRE(contract.at("sheaf.v1.RoundSpec.goal") == "7 int32");
  for (const FileDescriptor* file : StoredFiles()) {
    for (int i = 0; i < file->message_type_count(); ++i) CheckReads01(*file->message_type(i), contract);
  }
}

TEST_CASE("Stored enums have the values of the API's, which are cast to and from them") {
  for (const FileDescriptor* file : StoredFiles()) {
    for (int i = 0; i < file->enum_type_count(); ++i) {
      const EnumDescriptor& stored = *file->enum_type(i);
      const EnumDescriptor* shown =
          google::protobuf::DescriptorPool::generated_pool()->FindEnumTypeByName("sheaf.v1." + stored.name());
      REQUIRE(shown != nullptr);
      REQUIRE(shown->value_count() == stored.value_count());
      for (int k = 0; k < stored.value_count(); ++k) {
        CHECK(shown->value(k)->name() == stored.value(k)->name());
        CHECK(shown->value(k)->number() == stored.value(k)->number());
      }
    }
  }
}

}  // namespace
}  // namespace sheaf
