// Likeness: whether two messages say the same, where names that one side chose (ids, tokens) may be others, and what
// nobody promises (times of day, sentences for people, versions) may differ. The table is in likeness.cc.
//
//   Likeness likeness(contract_of_0_1);
//   for (const std::string& difference : likeness.Compare(recorded, actual)) FAIL_CHECK(difference);
//   likeness.Translate(next_request);      // What was called r-old in the transcript is called r-new here.
//
// What it sees in a pair of answers it remembers: a name stands for the same thing from then on, and two things never
// get one name. Not thread-safe.
#pragma once

#include <google/protobuf/message.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace sheaf::golden {

class Likeness {
 public:
  // `contract` is the listing of the version that was recorded: a field that it does not know is one that was added,
  // and may be set.
  explicit Likeness(std::set<std::string> contract) : contract_(std::move(contract)) {}

  // The ways in which `actual` differs from `recorded`, a sentence each, beginning with the field.
  std::vector<std::string> Compare(const google::protobuf::Message& recorded, const google::protobuf::Message& actual);
  // Puts the names of the one side in the place of those of the transcript.
  void Translate(google::protobuf::Message& message) const;
  std::string Translate(const std::string& text) const;

 private:
  struct Comparison;
  void CompareMessages(const google::protobuf::Message& recorded, const google::protobuf::Message& actual,
                       const std::string& path, std::vector<std::string>& differences);
  void CompareField(const google::protobuf::Message& recorded, const google::protobuf::Message& actual,
                    const google::protobuf::FieldDescriptor& field, const std::string& path,
                    std::vector<std::string>& differences);
  // One value; `index` is -1 for a field that is not repeated.
  void CompareValue(const google::protobuf::Message& recorded, const google::protobuf::Message& actual,
                    const google::protobuf::FieldDescriptor& field, int index, const std::string& path,
                    std::vector<std::string>& differences);
  void CompareName(const std::string& recorded, const std::string& actual, const std::string& path,
                   std::vector<std::string>& differences);
  bool IsKnown(const google::protobuf::FieldDescriptor& field) const;

  const std::set<std::string> contract_;
  // Of the transcript, and what it is called here; and back.
  std::map<std::string, std::string> names_;
  std::map<std::string, std::string> back_;
  // Cursors and etags: their texts mean something only to who made them.
  std::map<std::string, std::string> cursors_;
};

}  // namespace sheaf::golden
