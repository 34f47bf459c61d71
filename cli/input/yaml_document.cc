#include "cli/input/yaml_document.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "base/utf8.h"

namespace sheaf {
namespace {

using nlohmann::json;

// As yaml-cpp tells them: of a scalar without quotes, and of one with.
constexpr char kPlainTag[] = "?";
constexpr char kQuotedTag[] = "!";

template <typename T>
std::optional<T> Whole(std::string_view text, int base = 10) {
  T number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<double> Float(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  // from_chars takes "inf" and "nan", which are texts.
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || !std::isfinite(number)) {
    return std::nullopt;
  }
  return number;
}

// YAML 1.2.2, 10.3.2 "Tag Resolution" of the core schema, without .inf and .nan, which JSON does not have either.
json Resolve(const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  std::string_view number = text;
  if (number.starts_with("0x")) {
    if (const auto whole = Whole<uint64_t>(number.substr(2), 16)) return *whole;
  } else if (number.starts_with("0o")) {
    if (const auto whole = Whole<uint64_t>(number.substr(2), 8)) return *whole;
  }
  if (number.size() > 1 && number[0] == '+' && number[1] != '-') number.remove_prefix(1);
  if (const auto whole = Whole<int64_t>(number)) return *whole;
  if (const auto whole = Whole<uint64_t>(number)) return *whole;
  if (const auto real = Float(number)) return *real;
  return text;
}

struct Refused {};

// What yaml-cpp meets becomes what the builder takes. It cannot be told to stop but by an exception.
class YamlEvents final : public YAML::EventHandler {
 public:
  explicit YamlEvents(DocumentBuilder& builder) : builder_(builder) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (has_begun_) Take(builder_.Fail(LineOf(mark), "one document is expected, and another begins here"));
    has_begun_ = true;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { Scalar(mark, nullptr, ""); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Take(builder_.Fail(LineOf(mark), "an alias (*) is not taken: write the value again"));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& value) override {
    if (tag != kQuotedTag) CheckTag(mark, tag);
    Scalar(mark, tag == kQuotedTag ? json(value) : Resolve(value), value);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    CheckTag(mark, tag);
    CheckMember(mark);
    Take(builder_.OpenList(LineOf(mark)));
    is_key_next_.push_back(false);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, YAML::EmitterStyle::value) override {
    CheckTag(mark, tag);
    CheckMember(mark);
    Take(builder_.OpenObject(LineOf(mark)));
    is_key_next_.push_back(true);
  }
  void OnMapEnd() override { Close(); }

 private:
  static int LineOf(const YAML::Mark& mark) { return mark.line + 1; }
  static void Take(bool is_taken) {
    if (!is_taken) throw Refused();
  }
  bool IsInObject() const { return builder_.open_kind().is_object(); }

  void CheckTag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == kPlainTag) return;
    Take(builder_.Fail(LineOf(mark), fmt::format("a tag is not taken: {}", tag)));
  }
  void CheckMember(const YAML::Mark& mark) {
    if (IsInObject() && is_key_next_.back()) Take(builder_.Fail(LineOf(mark), "a name must be a text"));
    if (IsInObject()) is_key_next_.back() = true;
  }
  void Scalar(const YAML::Mark& mark, json value, const std::string& text) {
    if (IsInObject() && is_key_next_.back()) {
      Take(builder_.Key(text, LineOf(mark)));
      is_key_next_.back() = false;
      return;
    }
    CheckMember(mark);
    Take(builder_.Value(std::move(value), LineOf(mark)));
  }
  void Close() {
    is_key_next_.pop_back();
    Take(builder_.Close());
  }

  DocumentBuilder& builder_;
  bool has_begun_ = false;
  // Of each that is open: whether the next scalar is the name of a member.
  std::vector<bool> is_key_next_;
};

}  // namespace

absl::StatusOr<Document> ReadYaml(std::string_view text, std::string_view origin) {
  if (!IsUtf8(text)) return absl::InvalidArgumentError(fmt::format("{}:1: this is not YAML: it is not UTF-8", origin));
  DocumentBuilder builder;
  YamlEvents events(builder);
  std::istringstream in{std::string(text)};
  try {
    YAML::Parser parser(in);
    parser.HandleNextDocument(events);
    parser.HandleNextDocument(events);
  } catch (const Refused&) {
    return absl::InvalidArgumentError(fmt::format("{}:{}", origin, builder.error()));
  } catch (const YAML::ParserException& error) {
    return absl::InvalidArgumentError(
        fmt::format("{}:{}: this is not YAML: {}", origin, error.mark.line + 1, error.msg));
  }
  return std::move(builder).Build();
}

}  // namespace sheaf
