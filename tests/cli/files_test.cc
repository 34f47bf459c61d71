#include "cli/files.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "cli/processes/temporary_directory.h"

namespace sheaf {
namespace {

TEST_CASE("A file that is there is only replaced when that was asked for") {
  auto directory = TemporaryDirectory::Create("/tmp", "sheaf-files-");
  REQUIRE(directory.ok());
  const std::string path = directory->path() + "/w.npz";
  CHECK(WriteFile(path, "one", Overwrite::kNo).ok());
  const absl::Status refused = WriteFile(path, "two", Overwrite::kNo);
  CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(*ReadFile(path) == "one");
  CHECK(WriteFile(path, "two", Overwrite::kYes).ok());
  CHECK(*ReadFile(path) == "two");
  // Nothing half-written stays behind.
  CHECK(std::distance(std::filesystem::directory_iterator(directory->path()), {}) == 1);
}

TEST_CASE("A file that is not there, or a directory, is named") {
  CHECK(ReadFile("/tmp/sheaf-no-such-file").status().code() == absl::StatusCode::kNotFound);
  CHECK(ReadFile("/tmp").status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(WriteFile("/tmp/sheaf-no-such-directory/x", "", Overwrite::kNo).code() == absl::StatusCode::kNotFound);
}

TEST_CASE("A temporary directory is gone with its owner, unless it is kept") {
  std::string gone, kept;
  {
    auto first = TemporaryDirectory::Create("/tmp", "sheaf-files-");
    auto second = TemporaryDirectory::Create("/tmp", "sheaf-files-");
    REQUIRE((first.ok() && second.ok()));
    CHECK(WriteFile(first->path() + "/x", "x", Overwrite::kNo).ok());
    gone = first->path();
    kept = second->path();
    second->Keep();
  }
  CHECK_FALSE(FileExists(gone));
  CHECK(FileExists(kept));
  std::filesystem::remove_all(kept);
}

}  // namespace
}  // namespace sheaf
