// FieldList: the "Name:  value" block at the top of a description.
//
//   FieldList fields;
//   fields.Add("State", StateCell(round.state()));
//   fields.AddIf("Error", round.error());
//   out << fields.Render(session.table_style());
#pragma once

#include <string>

#include "cli/terminal/table.h"

namespace sheaf {

class FieldList {
 public:
  void Add(const std::string& name, Cell value) { table_.AddRow({name + ":", std::move(value)}); }
  // Left out when empty.
  void AddIf(const std::string& name, Cell value) {
    if (!value.text.empty()) Add(name, std::move(value));
  }
  // Names have no header line.
  std::string Render(TableStyle style) const {
    style.headers = false;
    return table_.Render(style);
  }

 private:
  Table table_{{{"NAME"}, {"VALUE"}}};
};

}  // namespace sheaf
