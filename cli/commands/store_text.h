// What the commands that look after a store share.
#pragma once

#include <google/protobuf/struct.pb.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/arguments.h"
#include "cli/host.h"
#include "cli/processes/temporary_directory.h"
#include "storage/directory/backup.h"

namespace sheaf {

// Declares DIRECTORY, the store.
void DeclareStore(Arguments& arguments, std::string* directory);

// Where the copy of a database goes that a command looks at: in $TMPDIR, else /tmp.
absl::StatusOr<TemporaryDirectory> ScratchFor(const Host& host);

// Errors of a store have no server to hint at.
absl::Status WithStoreHint(absl::Status status);

// For JSON of what no message of the API describes.
google::protobuf::Value JsonText(std::string text);
google::protobuf::Value JsonNumber(int64_t number);
google::protobuf::Value JsonTexts(const std::vector<std::string>& texts);
google::protobuf::Struct ToJson(const BackupSummary& summary);

}  // namespace sheaf
