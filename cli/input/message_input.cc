#include "cli/input/message_input.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/time/time.h"
#include "base/nearest.h"
#include "base/status_macros.h"
#include "cli/input/json_document.h"
#include "cli/input/yaml_document.h"

namespace sheaf {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using nlohmann::json;

// Of a value that is quoted in an error.
constexpr size_t kQuotedMax = 40;

std::string Quoted(const json& value) {
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > kQuotedMax) text = text.substr(0, kQuotedMax) + "...";
  return text;
}

std::string Meant(const std::string& word, const std::vector<std::string>& known) {
  const std::string nearest = Nearest(word, known);
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
}

// Protobuf's spelling of a duration: seconds, with up to nine digits.
std::string InSeconds(absl::Duration duration) {
  const bool is_negative = duration < absl::ZeroDuration();
  const int64_t nanos = absl::ToInt64Nanoseconds(absl::AbsDuration(duration) % absl::Seconds(1));
  const int64_t seconds = absl::ToInt64Seconds(absl::AbsDuration(duration));
  return fmt::format("{}{}{}s", is_negative ? "-" : "", seconds, nanos == 0 ? "" : fmt::format(".{:09}", nanos));
}

// Holds nodes to the descriptor of a message, and writes them as protobuf's parser wants them.
class Translation {
 public:
  explicit Translation(std::string_view origin) : origin_(origin) {}

  absl::StatusOr<json> Message(const Document& node, const Descriptor& type, const std::string& path) {
    if (!node.value.is_object()) return Wrong(node, path, "an object, {...}");
    json result = json::object();
    std::set<const google::protobuf::OneofDescriptor*> chosen;
    for (const auto& [name, item] : node.items) {
      const FieldDescriptor* field = Find(type, name);
      const std::string inner = path.empty() ? name : fmt::format("{}.{}", path, name);
      if (field == nullptr) {
        const std::vector<std::string> known = FieldsOf(type);
        return Error(item, inner,
                     fmt::format("there is no such field; the fields here are {}{}", fmt::join(known, ", "),
                                 Meant(name, known)));
      }
      if (item.value.is_null()) continue;
      if (const auto* oneof = field->real_containing_oneof(); oneof != nullptr && !chosen.insert(oneof).second) {
        return Error(item, inner, "only one of its kind may be given");
      }
      if (result.contains(field->json_name())) return Error(item, inner, "it is given twice");
      ASSIGN_OR_RETURN(result[field->json_name()], Field(item, *field, inner));
    }
    return result;
  }

 private:
  static const FieldDescriptor* Find(const Descriptor& type, const std::string& name) {
    for (int i = 0; i < type.field_count(); ++i) {
      if (type.field(i)->json_name() == name || type.field(i)->name() == name) return type.field(i);
    }
    return nullptr;
  }
  static std::vector<std::string> FieldsOf(const Descriptor& type) {
    std::vector<std::string> names;
    for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->json_name());
    return names;
  }

  absl::StatusOr<json> Field(const Document& node, const FieldDescriptor& field, const std::string& path) {
    if (field.is_map()) {
      if (!node.value.is_object()) return Wrong(node, path, "an object, {...}");
      json result = json::object();
      for (const auto& [key, item] : node.items) {
        ASSIGN_OR_RETURN(result[key],
                         Single(item, *field.message_type()->map_value(), fmt::format("{}[\"{}\"]", path, key)));
      }
      return result;
    }
    if (!field.is_repeated()) return Single(node, field, path);
    if (!node.value.is_array()) return Wrong(node, path, "a list, [...]");
    json result = json::array();
    for (size_t i = 0; i < node.items.size(); ++i) {
      ASSIGN_OR_RETURN(json item, Single(node.items[i].value, field, fmt::format("{}[{}]", path, i)));
      result.push_back(std::move(item));
    }
    return result;
  }

  absl::StatusOr<json> Single(const Document& node, const FieldDescriptor& field, const std::string& path) {
    const json& value = node.value;
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        if (field.message_type()->full_name() == "google.protobuf.Duration") return Duration(node, path);
        if (field.message_type()->full_name() == "google.protobuf.Timestamp") {
          return value.is_string() ? absl::StatusOr<json>(value)
                                   : Wrong(node, path, "a time, \"2026-01-31T12:00:00Z\"");
        }
        return Message(node, *field.message_type(), path);
      case FieldDescriptor::CPPTYPE_ENUM:
        return Enum(node, *field.enum_type(), path);
      case FieldDescriptor::CPPTYPE_BOOL:
        if (!value.is_boolean()) return Wrong(node, path, "true or false");
        return value;
      case FieldDescriptor::CPPTYPE_STRING:
        if (field.type() == FieldDescriptor::TYPE_BYTES) return Bytes(node, path);
        if (!value.is_string()) return Wrong(node, path, "a text in quotes");
        return value;
      case FieldDescriptor::CPPTYPE_INT32:
        return Integer<int32_t>(node, path);
      case FieldDescriptor::CPPTYPE_INT64:
        return Integer<int64_t>(node, path);
      case FieldDescriptor::CPPTYPE_UINT32:
        return Integer<uint32_t>(node, path);
      case FieldDescriptor::CPPTYPE_UINT64:
        return Integer<uint64_t>(node, path);
      case FieldDescriptor::CPPTYPE_DOUBLE:
      case FieldDescriptor::CPPTYPE_FLOAT:
        // As a text protobuf takes "NaN" and the infinities, too.
        if (!value.is_number() && !value.is_string()) return Wrong(node, path, "a number");
        return value;
    }
    return value;
  }

  absl::StatusOr<json> Duration(const Document& node, const std::string& path) {
    absl::Duration duration;
    constexpr char kExpected[] = "a length of time in quotes, such as \"30s\", \"10m\" or \"1h30m\"";
    if (!node.value.is_string() || !absl::ParseDuration(node.value.get<std::string>(), &duration) ||
        absl::AbsDuration(duration) > absl::Hours(24 * 365 * 100)) {
      return Wrong(node, path, kExpected);
    }
    return InSeconds(duration);
  }

  absl::StatusOr<json> Enum(const Document& node, const google::protobuf::EnumDescriptor& type,
                            const std::string& path) {
    if (node.value.is_number_integer()) return Integer<int32_t>(node, path);
    std::vector<std::string> names;
    for (int i = 0; i < type.value_count(); ++i) {
      const std::string& name = type.value(i)->name();
      if (node.value.is_string() && node.value.get<std::string>() == name) return node.value;
      if (type.value(i)->number() != 0) names.push_back(name);
    }
    std::string word = node.value.is_string() ? node.value.get<std::string>() : "";
    std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::toupper(c); });
    return Error(node, path,
                 fmt::format("{} is none of {}{}", Quoted(node.value), fmt::join(names, ", "), Meant(word, names)));
  }

  absl::StatusOr<json> Bytes(const Document& node, const std::string& path) {
    std::string bytes;
    if (node.value.is_string()) {
      const std::string text = node.value.get<std::string>();
      if (absl::Base64Unescape(text, &bytes) || absl::WebSafeBase64Unescape(text, &bytes)) {
        return absl::Base64Escape(bytes);
      }
    }
    return Wrong(node, path, "bytes as base64 in quotes (`printf 1 | base64` gives \"MQ==\")");
  }

  template <typename T>
  absl::StatusOr<json> Integer(const Document& node, const std::string& path) {
    const json& value = node.value;
    const std::string text = value.is_string()           ? value.get<std::string>()
                             : value.is_number_integer() ? value.dump()
                                                         : "";
    T number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (!text.empty() && error == std::errc() && end == text.data() + text.size()) return json(number);
    return Wrong(
        node, path,
        fmt::format("a whole number from {} to {}", std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  }

  absl::Status Wrong(const Document& node, const std::string& path, std::string_view expected) const {
    const std::string what = node.value.is_object()  ? "an object"
                             : node.value.is_array() ? "a list"
                                                     : Quoted(node.value);
    return Error(node, path, fmt::format("{} stands where {} is expected", what, expected));
  }
  absl::Status Error(const Document& node, const std::string& path, std::string_view what) const {
    return absl::InvalidArgumentError(
        fmt::format("{}:{}: {}{}{}", origin_, node.line, path, path.empty() ? "" : ": ", what));
  }

  const std::string_view origin_;
};

absl::Status FromDocument(const Document& document, std::string_view origin, google::protobuf::Message* message) {
  ASSIGN_OR_RETURN(const json translated, Translation(origin).Message(document, *message->GetDescriptor(), ""));
  const auto status = google::protobuf::util::JsonStringToMessage(translated.dump(), message);
  if (status.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{}: {}", origin, std::string(status.message())));
}

}  // namespace

absl::Status FromJson(std::string_view text, std::string_view origin, google::protobuf::Message* message) {
  ASSIGN_OR_RETURN(const Document document, ReadJson(text, origin));
  return FromDocument(document, origin, message);
}

absl::Status FromYaml(std::string_view text, std::string_view origin, google::protobuf::Message* message) {
  ASSIGN_OR_RETURN(const Document document, ReadYaml(text, origin));
  return FromDocument(document, origin, message);
}

}  // namespace sheaf
