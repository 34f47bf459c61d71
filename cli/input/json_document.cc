#include "cli/input/json_document.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace sheaf {
namespace {

using nlohmann::json;

// Hands characters to the parser and counts the lines it has taken.
class LineCountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  LineCountingIterator(const char* at, int* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  LineCountingIterator& operator++() {
    if (*at_++ == '\n') ++*line_;
    return *this;
  }
  LineCountingIterator operator++(int) {
    LineCountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const LineCountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const LineCountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  int* line_;
};

// The parser takes one character beyond a number, so a number's line is its member's.
class JsonEvents final : public nlohmann::json_sax<json> {
 public:
  JsonEvents(const int& line, DocumentBuilder& builder) : line_(line), builder_(builder) {}

  bool null() override { return builder_.Value(nullptr, line_); }
  bool boolean(bool value) override { return builder_.Value(value, line_); }
  bool number_integer(number_integer_t value) override { return builder_.Value(value, line_); }
  bool number_unsigned(number_unsigned_t value) override { return builder_.Value(value, line_); }
  bool number_float(number_float_t value, const string_t&) override { return builder_.Value(value, line_); }
  bool string(string_t& value) override { return builder_.Value(std::move(value), line_); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return builder_.OpenObject(line_); }
  bool start_array(size_t) override { return builder_.OpenList(line_); }
  bool end_object() override { return builder_.Close(); }
  bool end_array() override { return builder_.Close(); }
  bool key(string_t& name) override { return builder_.Key(name, line_); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    const std::string_view text = error.what();
    const size_t reason = text.find(" - ");
    return builder_.Fail(line_,
                         fmt::format("this is not JSON: {}", reason == text.npos ? text : text.substr(reason + 3)));
  }

 private:
  const int& line_;
  DocumentBuilder& builder_;
};

}  // namespace

absl::StatusOr<Document> ReadJson(std::string_view text, std::string_view origin) {
  int line = 1;
  DocumentBuilder builder;
  JsonEvents events(line, builder);
  const bool is_json = json::sax_parse(LineCountingIterator(text.data(), &line),
                                       LineCountingIterator(text.data() + text.size(), &line), &events);
  if (!is_json) return absl::InvalidArgumentError(fmt::format("{}:{}", origin, builder.error()));
  return std::move(builder).Build();
}

}  // namespace sheaf
