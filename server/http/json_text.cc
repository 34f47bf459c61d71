#include "server/http/json_text.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/type_resolver.h>
#include <google/protobuf/util/type_resolver_util.h>

#include <memory>
#include <vector>

#include "base/utf8.h"

namespace sheaf {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::util::TypeResolver;

// Far deeper than any message of ours, and as deep as protobuf's own readers go.
constexpr size_t kDepthMax = 100;
constexpr char kTypes[] = "type.googleapis.com";

TypeResolver& Resolver() {
  static const std::unique_ptr<TypeResolver> kResolver(google::protobuf::util::NewTypeResolverForDescriptorPool(
      kTypes, google::protobuf::DescriptorPool::generated_pool()));
  return *kResolver;
}

std::string UrlOf(const Descriptor& type) { return fmt::format("{}/{}", kTypes, type.full_name()); }

}  // namespace

std::string JsonString(std::string_view text) {
  std::string json = "\"";
  for (const char c : CutUtf8(text, text.size())) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (c == '\n') {
      json += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == '<' || c == '>' || c == '&' || c == 0x7f) {
      fmt::format_to(std::back_inserter(json), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      json += c;
    }
  }
  json += '"';
  return json;
}

absl::Status CheckJson(std::string_view text, const Limits& limits) {
  int64_t parts = 0;
  // Of the objects and lists that are open: whether it is a list.
  std::vector<bool> open;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '{' || c == '[') {
      parts += c == '{' ? 1 : 0;
      open.push_back(c == '[');
      if (open.size() > kDepthMax) return absl::InvalidArgumentError("the request is JSON of more than 100 levels");
    } else if ((c == '}' || c == ']') && !open.empty()) {
      open.pop_back();
    } else if (c == '"' || c == '\'') {
      parts += !open.empty() && open.back() ? 1 : 0;
      for (++i; i < text.size() && text[i] != c; ++i) i += text[i] == '\\' ? 1 : 0;
    }
    if (parts > limits.request_parts_max) {
      return absl::ResourceExhaustedError(
          limits.Sentence(&Limits::request_parts_max, "the request has more parts than"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> JsonToBytes(const Descriptor& type, std::string_view text) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  std::string bytes;
  // No text is a message without fields, as no bytes are.
  if (text.empty()) return bytes;
  const auto status =
      google::protobuf::util::JsonToBinaryString(&Resolver(), UrlOf(type), {text.data(), text.size()}, &bytes, options);
  if (status.ok()) return bytes;
  const std::string why(status.message().data(), status.message().size());
  return absl::InvalidArgumentError(
      fmt::format("the request is no {} in JSON: {}", type.full_name(), CutUtf8(why, 512)));
}

absl::StatusOr<std::string> BytesToJson(const Descriptor& type, const std::string& bytes) {
  std::string json;
  const auto status = google::protobuf::util::BinaryToJsonString(&Resolver(), UrlOf(type), bytes, &json);
  if (status.ok()) return json;
  return absl::InternalError(fmt::format("the answer has no JSON: {}", status.ToString()));
}

}  // namespace sheaf
