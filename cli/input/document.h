// Document: a text of values, lists and objects, as JSON and YAML have them, with the line where each begins.
//
//   DocumentBuilder builder;
//   if (!builder.OpenObject(1) || !builder.Key("goal", 1) || !builder.Value(50, 1) || !builder.Close()) {
//     return absl::InvalidArgumentError(builder.error());
//   }
//   const Document document = std::move(builder).Build();
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace sheaf {

struct DocumentItem;
struct Document {
  int line = 1;
  // Of objects and lists only their kind; what they hold is in `items`.
  nlohmann::json value;
  std::vector<DocumentItem> items;
};
// An element of a list, or a member of an object by its name.
struct DocumentItem {
  std::string name;
  Document value;
};

// Takes what a parser meets, in the order of the text. False if it cannot be taken: `error` says why.
class DocumentBuilder {
 public:
  static constexpr size_t kDepthMax = 64;

  bool Value(nlohmann::json value, int line);
  bool OpenObject(int line) { return Open(nlohmann::json::object(), line); }
  bool OpenList(int line) { return Open(nlohmann::json::array(), line); }
  // The name of the member that comes next; its line is the member's.
  bool Key(const std::string& name, int line);
  bool Close();
  // For what the parser itself finds wrong.
  bool Fail(int line, const std::string& what);

  // The kind of what is open; null if nothing is.
  const nlohmann::json& open_kind() const;
  // "LINE: what is wrong"; empty if nothing is.
  const std::string& error() const { return error_; }
  Document Build() && { return std::move(root_); }

 private:
  bool Open(nlohmann::json value, int line);
  Document& Place(nlohmann::json value, int line);

  Document root_;
  std::vector<Document*> open_;
  std::string key_;
  int key_line_ = 1;
  std::string error_;
};

}  // namespace sheaf
