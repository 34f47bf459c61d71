// What becomes of deletions that a backup held up.
#include "storage/files/holding_files.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/storage/temporary_directory.h"

namespace sheaf {
namespace {

namespace fs = std::filesystem;

// A directory with files that are deleted while somebody holds it.
class Held {
 public:
  Held() {
    REQUIRE(gate_.ok());
    REQUIRE(hold_.ok());
  }
  FileSystem& files() { return files_; }
  std::string PathOf(const std::string& name) const { return directory_.path() + "/files/" + name; }
  void Write(const std::string& name) { std::ofstream(PathOf(name)) << "content of " << name; }
  // No call deletes a directory as if it were a file.
  void MakeUndeletable(const std::string& name) { fs::create_directory(PathOf(name)); }
  void Release() { hold_->reset(); }
  // As they are on the disk.
  std::ptrdiff_t num_left() const {
    return std::distance(fs::directory_iterator(directory_.path() + "/files"), fs::directory_iterator());
  }
  // As everybody sees them.
  std::vector<std::string> List() { return *files_.List(directory_.path() + "/files"); }

 private:
  const TemporaryDirectory directory_;
  const bool has_files_ = fs::create_directory(directory_.path() + "/files");
  const absl::StatusOr<std::unique_ptr<HoldGate>> gate_ = HoldGate::Open(directory_.path());
  absl::StatusOr<std::unique_ptr<StoreHold>> hold_ = StoreHold::Take(directory_.path());
  HoldingFiles files_{std::make_unique<PosixFileSystem>(), **gate_};
};

TEST_CASE("What a backup held up is deleted a few files at a time") {
  Held held;
  for (int i = 0; i < 40; ++i) {
    held.Write(std::to_string(i));
    REQUIRE(held.files().Unlink(held.PathOf(std::to_string(i))).ok());
  }
  REQUIRE(held.files().DeleteHeld().ok());
  CHECK(held.num_left() == 40);
  CHECK(held.List().empty());
  held.Release();
  for (const int left : {24, 8, 0, 0}) {
    REQUIRE(held.files().DeleteHeld().ok());
    CHECK(held.num_left() == left);
    CHECK(held.List().empty());
  }
}

TEST_CASE("A file that cannot be deleted after a backup keeps no other, stays hidden, and is tried once") {
  Held held;
  held.MakeUndeletable("a");
  held.Write("b");
  for (const char* name : {"a", "b"}) REQUIRE(held.files().Unlink(held.PathOf(name)).ok());
  held.Release();
  CHECK(held.files().DeleteHeld().ok());
  CHECK(held.num_left() == 1);
  CHECK_FALSE(fs::exists(held.PathOf("b")));
  CHECK(held.List().empty());
  // What it is now would go.
  fs::remove(held.PathOf("a"));
  held.Write("a");
  CHECK(held.files().DeleteHeld().ok());
  CHECK(held.num_left() == 1);
  CHECK(absl::IsNotFound(held.files().GetStat(held.PathOf("a")).status()));
}

TEST_CASE("A deleted file stays hidden until it is gone, also from whoever makes its name anew") {
  Held held;
  held.MakeUndeletable("a");
  REQUIRE(held.files().Unlink(held.PathOf("a")).ok());
  const auto is_hidden = [&] {
    return held.List().empty() && absl::IsNotFound(held.files().GetStat(held.PathOf("a")).status()) &&
           absl::IsNotFound(held.files().Map(held.PathOf("a")).status()) &&
           absl::IsNotFound(held.files().Open(held.PathOf("a"), FileSystem::kRead).status());
  };
  CHECK(is_hidden());
  CHECK_FALSE(held.files().Open(held.PathOf("a"), FileSystem::kCreate).ok());
  CHECK(is_hidden());

  fs::remove(held.PathOf("a"));
  held.Write("a");
  REQUIRE(held.files().Open(held.PathOf("a"), FileSystem::kCreate).ok());
  CHECK(held.files().GetStat(held.PathOf("a"))->size_bytes == 0);
  // It is another one: what is still to be deleted is not it.
  held.Release();
  CHECK(held.files().DeleteHeld().ok());
  CHECK(held.List() == std::vector<std::string>{"a"});
}

TEST_CASE("A deleted file gives its name to a link, and gets no other name itself") {
  Held held;
  for (const char* name : {"a", "b"}) held.Write(name);
  REQUIRE(held.files().Unlink(held.PathOf("a")).ok());
  CHECK(absl::IsNotFound(held.files().Link(held.PathOf("a"), held.PathOf("c"))));
  REQUIRE(held.files().Link(held.PathOf("b"), held.PathOf("a")).ok());
  CHECK(held.List() == std::vector<std::string>{"a", "b"});
  CHECK((*held.files().Map(held.PathOf("a")))->size_bytes() == 12);
  held.Release();
  CHECK(held.files().DeleteHeld().ok());
  CHECK(held.List() == std::vector<std::string>{"a", "b"});
  // Each name is deleted for itself.
  REQUIRE(held.files().Unlink(held.PathOf("b")).ok());
  CHECK((*held.files().Map(held.PathOf("a")))->size_bytes() == 12);
}

}  // namespace
}  // namespace sheaf
