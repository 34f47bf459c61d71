#include "cli/input/document.h"

#include <fmt/format.h>

namespace sheaf {

using nlohmann::json;

bool DocumentBuilder::Value(json value, int line) {
  Place(std::move(value), line);
  return true;
}

bool DocumentBuilder::Open(json value, int line) {
  if (open_.size() == kDepthMax) return Fail(line, fmt::format("this nests deeper than {}", kDepthMax));
  // Stays where it is: its parent gets no further item before it is closed.
  open_.push_back(&Place(std::move(value), line));
  return true;
}

bool DocumentBuilder::Key(const std::string& name, int line) {
  for (const DocumentItem& known : open_.back()->items) {
    if (known.name != name) continue;
    return Fail(line, fmt::format("\"{}\" is given twice, first in line {}", name, known.value.line));
  }
  key_ = name;
  key_line_ = line;
  return true;
}

bool DocumentBuilder::Close() {
  open_.pop_back();
  return true;
}

bool DocumentBuilder::Fail(int line, const std::string& what) {
  error_ = fmt::format("{}: {}", line, what);
  return false;
}

const json& DocumentBuilder::open_kind() const {
  static const json kNothing;
  return open_.empty() ? kNothing : open_.back()->value;
}

Document& DocumentBuilder::Place(json value, int line) {
  if (open_.empty()) {
    root_ = {.line = line, .value = std::move(value), .items = {}};
    return root_;
  }
  Document& parent = *open_.back();
  const bool is_member = parent.value.is_object();
  parent.items.push_back({.name = is_member ? key_ : "",
                          .value = {.line = is_member ? key_line_ : line, .value = std::move(value), .items = {}}});
  return parent.items.back().value;
}

}  // namespace sheaf
