#include "tests/fuzz/message_mutator.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"

namespace sheaf::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

ByteMutator byte_mutator = nullptr;

// A number as attackers send them: small, at an end of some type, or the old one nudged.
int64_t AwkwardInteger(int64_t old, Random& random) {
  switch (random.Below(5)) {
    case 0:
      return static_cast<int64_t>(random.Below(8)) - 2;
    case 1:
      return static_cast<int64_t>(static_cast<uint64_t>(old) + random.Below(3) - 1);
    case 2:
      return static_cast<int64_t>(uint64_t{1} << random.Below(64));
    case 3:
      return random.Chance(0.5) ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
    default:
      return static_cast<int64_t>(random.Bits());
  }
}

double AwkwardDouble(Random& random) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kValues[] = {0, -0.0, 1, -1, 0.5, 3e38, 1e-45, kInfinity, -kInfinity};
  return random.Chance(0.1) ? std::numeric_limits<double>::quiet_NaN() : kValues[random.Below(std::size(kValues))];
}

std::string AwkwardBytes(std::string old, Random& random) {
  constexpr size_t kGrowth = 64;
  if (random.Chance(0.05)) return "";
  // By whole elements: lengths that still fit their shape are rare otherwise.
  if (random.Chance(0.1)) return old + std::string(4 * (1 + random.Below(4)), '\x3f');
  if (random.Chance(0.1)) return old.substr(0, old.size() - std::min<size_t>(old.size(), 4 * (1 + random.Below(4))));
  const size_t size = old.size();
  old.resize(size + kGrowth);
  // Mostly in place.
  const size_t size_max = random.Chance(0.7) && size > 0 ? size : size + kGrowth;
  old.resize(MutateBytes(reinterpret_cast<uint8_t*>(old.data()), size, size_max));
  return old;
}

// Calls `set` with the field's new value: one function for single and repeated fields.
struct Place {
  Message& message;
  const FieldDescriptor* field;
  // -1 for a single field.
  int index = -1;

  template <typename GetOne, typename GetAt, typename SetOne, typename SetAt, typename Change>
  void Update(GetOne get_one, GetAt get_at, SetOne set_one, SetAt set_at, Change change) const {
    const Reflection& reflection = *message.GetReflection();
    if (index < 0) {
      (reflection.*set_one)(&message, field, change((reflection.*get_one)(message, field)));
    } else {
      (reflection.*set_at)(&message, field, index, change((reflection.*get_at)(message, field, index)));
    }
  }
};

void MutateScalar(const Place& place, Random& random) {
  using R = Reflection;
  const auto integer = [&](auto old) {
    return static_cast<decltype(old)>(AwkwardInteger(static_cast<int64_t>(old), random));
  };
  const auto real = [&](auto old) { return static_cast<decltype(old)>(AwkwardDouble(random)); };
  switch (place.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return place.Update(&R::GetInt32, &R::GetRepeatedInt32, &R::SetInt32, &R::SetRepeatedInt32, integer);
    case FieldDescriptor::CPPTYPE_INT64:
      return place.Update(&R::GetInt64, &R::GetRepeatedInt64, &R::SetInt64, &R::SetRepeatedInt64, integer);
    case FieldDescriptor::CPPTYPE_UINT32:
      return place.Update(&R::GetUInt32, &R::GetRepeatedUInt32, &R::SetUInt32, &R::SetRepeatedUInt32, integer);
    case FieldDescriptor::CPPTYPE_UINT64:
      return place.Update(&R::GetUInt64, &R::GetRepeatedUInt64, &R::SetUInt64, &R::SetRepeatedUInt64, integer);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return place.Update(&R::GetFloat, &R::GetRepeatedFloat, &R::SetFloat, &R::SetRepeatedFloat, real);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return place.Update(&R::GetDouble, &R::GetRepeatedDouble, &R::SetDouble, &R::SetRepeatedDouble, real);
    case FieldDescriptor::CPPTYPE_BOOL:
      return place.Update(&R::GetBool, &R::GetRepeatedBool, &R::SetBool, &R::SetRepeatedBool,
                          [](bool old) { return !old; });
    case FieldDescriptor::CPPTYPE_ENUM:
      return place.Update(&R::GetEnumValue, &R::GetRepeatedEnumValue, &R::SetEnumValue, &R::SetRepeatedEnumValue,
                          [&](int) { return static_cast<int>(random.Below(9)); });
    case FieldDescriptor::CPPTYPE_STRING:
      return place.Update(&R::GetString, &R::GetRepeatedString, &R::SetString, &R::SetRepeatedString,
                          [&](const std::string& old) {
                            std::string text = AwkwardBytes(old, random);
                            // Other bytes than UTF-8 in text do not pass the parser.
                            if (place.field->type() == FieldDescriptor::TYPE_STRING) {
                              for (char& byte : text) byte = static_cast<char>(byte & 0x7f);
                            }
                            return text;
                          });
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return;
  }
}

void AddElement(Message& message, const FieldDescriptor* field) {
  const Reflection& reflection = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.AddInt32(&message, field, 0);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.AddInt64(&message, field, 1);
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.AddString(&message, field, "");
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      Message* added = reflection.AddMessage(&message, field);
      // A copy of the one before.
      const int size = reflection.FieldSize(message, field);
      if (size > 1) added->CopyFrom(reflection.GetRepeatedMessage(message, field, size - 2));
      return;
    }
    default:
      return;  // Our messages repeat nothing else.
  }
}

void MutateRepeated(Message& message, const FieldDescriptor* field, Random& random) {
  const Reflection& reflection = *message.GetReflection();
  const int size = reflection.FieldSize(message, field);
  const uint64_t choice = random.Below(size == 0 ? 1 : 8);
  if (choice == 0) return AddElement(message, field);
  if (choice == 1) return reflection.RemoveLast(&message, field);
  const int index = static_cast<int>(random.Below(static_cast<uint64_t>(size)));
  if (choice == 2) return reflection.SwapElements(&message, field, index, size - 1);
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    if (!field->is_map()) MutateMessage(*reflection.MutableRepeatedMessage(&message, field, index), random);
    return;
  }
  MutateScalar({message, field, index}, random);
}

}  // namespace

void SetByteMutator(ByteMutator mutator) { byte_mutator = mutator; }

size_t MutateBytes(uint8_t* data, size_t size, size_t size_max) {
  SHEAF_CHECK(byte_mutator != nullptr, "SetByteMutator comes first");
  return byte_mutator(data, size, size_max);
}

void MutateMessage(Message& message, Random& random) {
  const Reflection& reflection = *message.GetReflection();
  // Mostly a field that is there; sometimes any.
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  if (fields.empty() || random.Chance(0.1)) {
    fields.clear();
    for (int i = 0; i < message.GetDescriptor()->field_count(); ++i)
      fields.push_back(message.GetDescriptor()->field(i));
  }
  if (fields.empty()) return;
  const FieldDescriptor* field = fields[random.Below(fields.size())];
  if (field->is_repeated()) {
    MutateRepeated(message, field, random);
  } else if (random.Chance(0.03)) {
    reflection.ClearField(&message, field);
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    MutateMessage(*reflection.MutableMessage(&message, field), random);
  } else {
    MutateScalar({message, field}, random);
  }
}

size_t MutateSerialised(const Message& empty, size_t prefix, uint8_t* data, size_t size, size_t size_max,
                        unsigned seed) {
  SeededRandom random(seed);
  const std::unique_ptr<Message> message(empty.New());
  const bool parses = size > prefix && message->ParseFromArray(data + prefix, static_cast<int>(size - prefix));
  if (!parses || random.Chance(0.05)) return MutateBytes(data, size, size_max);
  if (prefix > 0 && random.Chance(0.05)) {
    data[random.Below(prefix)] = static_cast<uint8_t>(random.Below(256));
    return size;
  }
  for (uint64_t changes = 1 + random.Below(3); changes > 0; --changes) MutateMessage(*message, random);
  const std::string bytes = message->SerializeAsString();
  if (prefix + bytes.size() > size_max) return MutateBytes(data, size, size_max);
  std::memcpy(data + prefix, bytes.data(), bytes.size());
  return prefix + bytes.size();
}

}  // namespace sheaf::fuzz
