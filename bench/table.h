// Table: figures as Markdown.
#pragma once

#include <string>
#include <vector>

namespace sheaf::bench {

class Table {
 public:
  struct Row {
    std::string what;
    std::string figure;
    std::string ratio;
    std::string target;
  };
  void Add(Row row) { rows_.push_back(std::move(row)); }
  bool is_empty() const { return rows_.empty(); }
  std::string Markdown() const;

 private:
  std::vector<Row> rows_;
};

}  // namespace sheaf::bench
