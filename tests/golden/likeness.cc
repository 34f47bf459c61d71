#include "tests/golden/likeness.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/duration.pb.h>
#include <google/protobuf/timestamp.pb.h>

#include <algorithm>
#include <cstdlib>

namespace sheaf::golden {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

enum class Rule {
  // The same value.
  kSame,
  // A name: the same thing has the same name each time.
  kName,
  // A name that is good only for the next call.
  kCursor,
  // Set where the other is set; what it is, nobody promises.
  kSetAlike,
  // Nothing is promised.
  kFree,
  // A duration that depends on when the call came: two seconds more or less.
  kAbout,
  // Everything the recorded one has, and perhaps more.
  kAtLeast,
};

// By full name. Everything else is the same, value by value.
const std::map<std::string, Rule>& Rules() {
  static const std::map<std::string, Rule> rules = {
      // Names that the server makes.
      {"sheaf.v1.Round.id", Rule::kName},
      {"sheaf.v1.Lease.lease_token", Rule::kName},
      {"sheaf.v1.StartUploadResponse.upload_id", Rule::kName},
      {"sheaf.v1.Token.id", Rule::kName},
      {"sheaf.v1.CreateTokenResponse.secret", Rule::kName},
      // Names that a worker makes.
      {"sheaf.v1.SyncRequest.poll_id", Rule::kName},
      {"sheaf.v1.StartUploadRequest.request_id", Rule::kName},
      {"sheaf.v1.Round.etag", Rule::kCursor},
      {"sheaf.v1.ListRoundsResponse.next_page_token", Rule::kCursor},
      {"sheaf.v1.ListTasksResponse.next_page_token", Rule::kCursor},
      {"sheaf.v1.ListWorkersResponse.next_page_token", Rule::kCursor},
      {"sheaf.v1.ListTokensResponse.next_page_token", Rule::kCursor},
      {"sheaf.v1.SelectRowsResponse.next_cursor", Rule::kCursor},
      // Sentences for people.
      {"sheaf.v1.Round.error", Rule::kSetAlike},
      {"sheaf.v1.Task.last_error", Rule::kSetAlike},
      {"sheaf.v1.Attempt.error", Rule::kSetAlike},
      {"sheaf.v1.ResultVerdict.message", Rule::kSetAlike},
      {"sheaf.v1.TaskResult.Failure.message", Rule::kSetAlike},
      {"sheaf.v1.TaskResult.Release.reason", Rule::kSetAlike},
      {"sheaf.v1.ExplainRoundResponse.summary", Rule::kSetAlike},
      {"sheaf.v1.ExplainRoundResponse.reasons", Rule::kFree},
      {"sheaf.v1.ExplainRoundResponse.hints", Rule::kFree},
      // Of this build and this machine.
      {"sheaf.v1.SyncRequest.software_version", Rule::kSetAlike},
      {"sheaf.v1.SyncResponse.server_version", Rule::kSetAlike},
      {"sheaf.v1.SyncResponse.protocol_version_max", Rule::kSetAlike},
      {"sheaf.v1.Worker.software_version", Rule::kSetAlike},
      {"sheaf.v1.GetServerInfoResponse.version", Rule::kSetAlike},
      {"sheaf.v1.GetServerInfoResponse.protocol_version_max", Rule::kSetAlike},
      {"sheaf.v1.GetServerInfoResponse.store", Rule::kFree},
      {"sheaf.v1.GetServerInfoResponse.schema_version", Rule::kFree},
      {"sheaf.v1.GetServerInfoResponse.data_directory", Rule::kFree},
      {"sheaf.v1.GetServerInfoResponse.operators", Rule::kAtLeast},
      {"sheaf.v1.GetServerInfoResponse.limits", Rule::kAtLeast},
      // Since 0.2.
      {"sheaf.v1.GetServerInfoResponse.caller", Rule::kFree},
      {"sheaf.v1.ReadBlobRequest.takes_patches", Rule::kFree},
      {"sheaf.v1.StartUploadResponse.takes_patches", Rule::kFree},
      // The protocol that a worker asks for: its highest.
      {"sheaf.v1.SyncRequest.protocol_version", Rule::kSetAlike},
      // What depends on the moment.
      {"sheaf.v1.Lease.remaining", Rule::kAbout},
      {"sheaf.v1.LeaseUpdate.remaining", Rule::kAbout},
      {"sheaf.v1.SyncRequest.wait", Rule::kAbout},
      {"sheaf.v1.SyncResponse.next_min", Rule::kFree},
      {"sheaf.v1.SyncResponse.next_max", Rule::kFree},
      {"sheaf.v1.HeldLease.progress", Rule::kFree},
      {"sheaf.v1.TaskResult.timings", Rule::kFree},
      {"sheaf.v1.Attempt.timings", Rule::kFree},
      {"sheaf.v1.Round.phases", Rule::kFree},
      // Since 0.2.
      {"sheaf.v1.Round.critical_path", Rule::kFree},
      {"sheaf.v1.Attempt.intervals", Rule::kFree},
      {"sheaf.v1.SyncResponse.grant_time", Rule::kFree},
      {"sheaf.v1.DescribeQueueResponse.oldest_age", Rule::kFree},
      {"sheaf.v1.DescribeQueueResponse.leases_per_second", Rule::kFree},
      {"sheaf.v1.DescribeQueueResponse.completions_per_second", Rule::kFree},
      // How the fold came about.
      {"sheaf.v1.Aggregate.folds", Rule::kFree},
  };
  return rules;
}

Rule RuleOf(const FieldDescriptor& field) {
  const auto found = Rules().find(field.full_name());
  if (found != Rules().end()) return found->second;
  // A time of day.
  if (field.message_type() != nullptr && field.message_type()->full_name() == "google.protobuf.Timestamp") {
    return Rule::kSetAlike;
  }
  return Rule::kSame;
}

// Shorter texts stand in others by chance.
constexpr size_t kNameBytesMin = 6;

std::string TextOf(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  std::string scratch;
  if (index < 0) return reflection.GetStringReference(message, &field, &scratch);
  return reflection.GetRepeatedStringReference(message, &field, index, &scratch);
}

const Message& MessageOf(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  return index < 0 ? reflection.GetMessage(message, &field) : reflection.GetRepeatedMessage(message, &field, index);
}

// A value that is neither a text nor a message.
std::string PlainOf(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const bool one = index < 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return std::to_string(one ? reflection.GetInt32(message, &field)
                                : reflection.GetRepeatedInt32(message, &field, index));
    case FieldDescriptor::CPPTYPE_INT64:
      return std::to_string(one ? reflection.GetInt64(message, &field)
                                : reflection.GetRepeatedInt64(message, &field, index));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return fmt::format(
          "{}", one ? reflection.GetDouble(message, &field) : reflection.GetRepeatedDouble(message, &field, index));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return fmt::format(
          "{}", one ? reflection.GetFloat(message, &field) : reflection.GetRepeatedFloat(message, &field, index));
    case FieldDescriptor::CPPTYPE_BOOL:
      return (one ? reflection.GetBool(message, &field) : reflection.GetRepeatedBool(message, &field, index)) ? "true"
                                                                                                              : "false";
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int number =
          one ? reflection.GetEnumValue(message, &field) : reflection.GetRepeatedEnumValue(message, &field, index);
      const auto* value = field.enum_type()->FindValueByNumber(number);
      return value == nullptr ? std::to_string(number) : value->name();
    }
    default:
      // A type that no message of ours has: never equal, so that somebody looks here.
      return fmt::format("a value of {} at {}", field.type_name(), static_cast<const void*>(&message));
  }
}

bool IsSet(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  return field.is_repeated() ? reflection.FieldSize(message, &field) > 0 : reflection.HasField(message, &field);
}

// The entries of a map, by key.
std::map<std::string, std::string> EntriesOf(const Message& message, const FieldDescriptor& field) {
  std::map<std::string, std::string> entries;
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    const auto& value = *entry.GetDescriptor()->map_value();
    const bool is_text = value.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    entries[TextOf(entry, *entry.GetDescriptor()->map_key(), -1)] =
        is_text ? TextOf(entry, value, -1) : PlainOf(entry, value, -1);
  }
  return entries;
}

double SecondsOf(const Message& message) {
  const auto& duration = static_cast<const google::protobuf::Duration&>(message);
  return static_cast<double>(duration.seconds()) + duration.nanos() * 1e-9;
}

}  // namespace

bool Likeness::IsKnown(const FieldDescriptor& field) const {
  const std::string beginning = fmt::format("{} = {} ", field.full_name(), field.number());
  const auto found = contract_.lower_bound(beginning);
  return found != contract_.end() && found->starts_with(beginning);
}

std::vector<std::string> Likeness::Compare(const Message& recorded, const Message& actual) {
  std::vector<std::string> differences;
  CompareMessages(recorded, actual, "", differences);
  return differences;
}

void Likeness::CompareMessages(const Message& recorded, const Message& actual, const std::string& path,
                               std::vector<std::string>& differences) {
  const auto& type = *recorded.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const std::string name = path.empty() ? type.field(i)->name() : path + "." + type.field(i)->name();
    CompareField(recorded, actual, *type.field(i), name, differences);
  }
}

void Likeness::CompareField(const Message& recorded, const Message& actual, const FieldDescriptor& field,
                            const std::string& path, std::vector<std::string>& differences) {
  const Rule rule = RuleOf(field);
  if (rule == Rule::kFree) return;
  const bool was_set = IsSet(recorded, field);
  const bool is_set = IsSet(actual, field);
  // Fields are only added.
  if (!was_set && is_set && field.file()->package() == "sheaf.v1" && !IsKnown(field)) return;
  if (was_set != is_set) {
    // A number that is 0 is not set.
    differences.push_back(fmt::format("{}: was {}set and is {}set", path, was_set ? "" : "not ", is_set ? "" : "not "));
    return;
  }
  if (!was_set) return;
  if (field.is_map()) {
    const auto before = EntriesOf(recorded, field);
    const auto now = EntriesOf(actual, field);
    if (rule == Rule::kAtLeast) {
      for (const auto& [key, value] : before) {
        if (!now.contains(key)) differences.push_back(fmt::format("{}: {} is missing", path, key));
      }
    } else if (before != now) {
      differences.push_back(fmt::format("{}: has other entries", path));
    }
    return;
  }
  if (!field.is_repeated()) return CompareValue(recorded, actual, field, -1, path, differences);
  const int before = recorded.GetReflection()->FieldSize(recorded, &field);
  const int now = actual.GetReflection()->FieldSize(actual, &field);
  if (rule == Rule::kAtLeast) {
    std::set<std::string> there;
    for (int i = 0; i < now; ++i) there.insert(TextOf(actual, field, i));
    for (int i = 0; i < before; ++i) {
      const std::string text = TextOf(recorded, field, i);
      if (!there.contains(text)) differences.push_back(fmt::format("{}: {} is missing", path, text));
    }
    return;
  }
  if (before != now) {
    differences.push_back(fmt::format("{}: were {} and are {}", path, before, now));
    return;
  }
  for (int i = 0; i < before; ++i) {
    CompareValue(recorded, actual, field, i, fmt::format("{}[{}]", path, i), differences);
  }
}

void Likeness::CompareValue(const Message& recorded, const Message& actual, const FieldDescriptor& field, int index,
                            const std::string& path, std::vector<std::string>& differences) {
  const Rule rule = RuleOf(field);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    const Message& before = MessageOf(recorded, field, index);
    const Message& now = MessageOf(actual, field, index);
    if (rule == Rule::kSetAlike) return;
    if (rule == Rule::kAbout) {
      if (std::abs(SecondsOf(before) - SecondsOf(now)) > 2) {
        differences.push_back(fmt::format("{}: was {} s and is {} s", path, SecondsOf(before), SecondsOf(now)));
      }
      return;
    }
    return CompareMessages(before, now, path, differences);
  }
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_STRING) {
    const std::string before = PlainOf(recorded, field, index);
    const std::string now = PlainOf(actual, field, index);
    if (rule == Rule::kSame && before != now) {
      differences.push_back(fmt::format("{}: was {} and is {}", path, before, now));
    }
    return;
  }
  const std::string before = TextOf(recorded, field, index);
  const std::string now = TextOf(actual, field, index);
  if (rule == Rule::kSetAlike) return;
  if (rule == Rule::kName) return CompareName(before, now, path, differences);
  if (rule == Rule::kCursor) {
    cursors_[before] = now;
    return;
  }
  const bool is_bytes = field.type() == FieldDescriptor::TYPE_BYTES;
  if ((is_bytes ? before : Translate(before)) == now) return;
  differences.push_back(is_bytes ? fmt::format("{}: {} bytes were others", path, before.size())
                                 : fmt::format("{}: was \"{}\" and is \"{}\"", path, before, now));
}

void Likeness::CompareName(const std::string& recorded, const std::string& actual, const std::string& path,
                           std::vector<std::string>& differences) {
  const auto known = names_.emplace(recorded, actual).first;
  const auto back = back_.emplace(actual, recorded).first;
  if (known->second != actual) {
    differences.push_back(
        fmt::format("{}: {} is called {} here, and {} before", path, recorded, actual, known->second));
  } else if (back->second != recorded) {
    differences.push_back(fmt::format("{}: {} and {} are both called {} here", path, recorded, back->second, actual));
  }
}

std::string Likeness::Translate(const std::string& text) const {
  if (const auto exact = names_.find(text); exact != names_.end()) return exact->second;
  std::string result = text;
  for (const auto& [before, now] : names_) {
    if (before.size() < kNameBytesMin || before == now) continue;
    for (size_t at = result.find(before); at != std::string::npos; at = result.find(before, at + now.size())) {
      result.replace(at, before.size(), now);
    }
  }
  return result;
}

void Likeness::Translate(Message& message) const {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->is_map()) continue;
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        Translate(field->is_repeated() ? *reflection.MutableRepeatedMessage(&message, field, i)
                                       : *reflection.MutableMessage(&message, field));
      } else if (field->type() == FieldDescriptor::TYPE_STRING) {
        const std::string before = TextOf(message, *field, field->is_repeated() ? i : -1);
        const bool is_cursor = field->name() == "page_token" || field->name() == "cursor" || field->name() == "etag";
        const auto cursor = cursors_.find(before);
        const std::string now = is_cursor && cursor != cursors_.end() ? cursor->second : Translate(before);
        if (field->is_repeated()) {
          reflection.SetRepeatedString(&message, field, i, now);
        } else {
          reflection.SetString(&message, field, now);
        }
      }
    }
  }
}

}  // namespace sheaf::golden
