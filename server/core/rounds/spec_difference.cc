#include "server/core/rounds/spec_difference.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace sheaf {
namespace {

// Their defaults are the server's limits, or follow from one.
const std::set<std::string_view>& FieldsOfLimits() {
  static const std::set<std::string_view> fields = {"deadline",         "attempt_deadline", "lease_duration",
                                                    "failed_max",       "lost_max",         "contribution_bytes_max",
                                                    "announce_deadline"};
  return fields;
}

// Enough to see what it is; a config may have kilobytes.
constexpr size_t kDifferenceBytesMax = 200;

bool IsSet(const google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  return field.is_repeated() ? reflection.FieldSize(message, &field) > 0 : reflection.HasField(message, &field);
}

// Has `differencer` leave out the fields of which the request says nothing, and whose default may have been another.
void LeaveOutDefaults(const google::protobuf::Message& stored, const google::protobuf::Message& asked,
                      google::protobuf::util::MessageDifferencer& differencer) {
  const google::protobuf::Descriptor& type = *asked.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *type.field(i);
    if (IsSet(asked, field)) continue;
    if (FieldsOfLimits().contains(field.name()) || !IsSet(stored, field)) differencer.IgnoreField(&field);
  }
}

}  // namespace

std::string SpecDifference(const v1::RoundSpec& stored, const v1::RoundSpec& asked, const v1::RoundSpec& prepared) {
  google::protobuf::util::MessageDifferencer differencer;
  LeaveOutDefaults(stored, asked, differencer);
  LeaveOutDefaults(stored.retry(), asked.retry(), differencer);
  std::string report;
  differencer.ReportDifferencesToString(&report);
  if (differencer.Compare(stored, prepared)) return "";
  // Lines such as "modified: goal: 2 -> 3", and "ignored: deadline".
  std::string first = "spec";
  for (std::string_view rest = report; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.starts_with("ignored: ")) continue;
    first = line.substr(std::min(line.size(), line.find(": ") + 2));
    break;
  }
  return CutUtf8(first, kDifferenceBytesMax);
}

}  // namespace sheaf
