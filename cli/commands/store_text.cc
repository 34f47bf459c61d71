#include "cli/commands/store_text.h"

#include "cli/terminal/errors.h"

namespace sheaf {

void DeclareStore(Arguments& arguments, std::string* directory) {
  arguments.Positional("DIRECTORY", "the store: the --data-dir of its server", directory);
}

absl::StatusOr<TemporaryDirectory> ScratchFor(const Host& host) {
  return TemporaryDirectory::Create(host.environment("TMPDIR").value_or("/tmp"), "sheaf-store-");
}

absl::Status WithStoreHint(absl::Status status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return status;
    case absl::StatusCode::kNotFound:
      return WithHint(std::move(status), "name the directory that 'sheafd --data-dir' names");
    case absl::StatusCode::kPermissionDenied:
      return WithHint(std::move(status), "run it as the user that sheafd runs as");
    case absl::StatusCode::kDataLoss:
      return WithHint(std::move(status), "'sheaf store restore' makes a store out of a backup");
    default:
      return WithHint(std::move(status), "'sheaf store inspect DIRECTORY' shows the store");
  }
}

google::protobuf::Value JsonText(std::string text) {
  google::protobuf::Value value;
  value.set_string_value(std::move(text));
  return value;
}

google::protobuf::Value JsonNumber(int64_t number) {
  google::protobuf::Value value;
  value.set_number_value(static_cast<double>(number));
  return value;
}

google::protobuf::Value JsonTexts(const std::vector<std::string>& texts) {
  google::protobuf::Value value;
  value.mutable_list_value();
  for (const std::string& text : texts) *value.mutable_list_value()->add_values() = JsonText(text);
  return value;
}

google::protobuf::Struct ToJson(const BackupSummary& summary) {
  google::protobuf::Struct json;
  auto& fields = *json.mutable_fields();
  fields["time"] = JsonText(summary.time);
  fields["files"] = JsonNumber(summary.num_files);
  fields["bytes"] = JsonNumber(summary.num_bytes);
  fields["schemaVersion"] = JsonNumber(summary.schema_version);
  return json;
}

}  // namespace sheaf
