#include "sdk/cpp/client/token_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace sheaf {
namespace {

// A path of its own; the file goes with it.
class Scratch {
 public:
  Scratch() {
    char name[] = "/tmp/sheaf-token-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    directory_ = name;
  }
  ~Scratch() { std::filesystem::remove_all(directory_); }

  std::string path() const { return directory_ + "/worker.token"; }
  // As an editor does: the file is emptied and written.
  void Write(const std::string& text) const {
    std::ofstream(path()) << text;
    REQUIRE(::chmod(path().c_str(), 0600) == 0);
  }
  // As a careful program does.
  void Replace(const std::string& text) const {
    std::ofstream(path() + ".new") << text;
    REQUIRE(::chmod((path() + ".new").c_str(), 0600) == 0);
    REQUIRE(std::rename((path() + ".new").c_str(), path().c_str()) == 0);
  }

 private:
  std::string directory_;
};

TEST_CASE("A token that was replaced in its file is shown from the next call on, before the old one is refused") {
  const Scratch scratch;
  scratch.Write("first\n");
  TokenFile token(scratch.path());
  CHECK(token.header() == "Bearer first");
  const int64_t version = token.version();
  SECTION("by renaming another file over it") { scratch.Replace("second\n"); }
  SECTION("by writing into it") { scratch.Write("second\n"); }
  CHECK(token.header() == "Bearer second");
  CHECK(token.version() == version + 1);
  CHECK(token.header() == "Bearer second");
  CHECK(token.version() == version + 1);
}

TEST_CASE("A token file that was not there at the start is read when it comes") {
  const Scratch scratch;
  TokenFile token(scratch.path());
  CHECK(token.header().empty());
  scratch.Write("first");
  CHECK(token.header() == "Bearer first");
}

TEST_CASE("While a token file is half written, unreadable or gone, the token before it is shown") {
  const Scratch scratch;
  scratch.Write("first");
  TokenFile token(scratch.path());
  SECTION("empty") { scratch.Write(""); }
  SECTION("two words") { scratch.Write("se cond"); }
  SECTION("readable by others") {
    scratch.Write("second");
    REQUIRE(::chmod(scratch.path().c_str(), 0644) == 0);
  }
  SECTION("gone") { REQUIRE(::unlink(scratch.path().c_str()) == 0); }
  CHECK(token.header() == "Bearer first");
  CHECK_FALSE(token.Refused("Bearer first"));
  scratch.Write("second");
  CHECK(token.header() == "Bearer second");
}

TEST_CASE("A refusal tells whether there is another token to show by now") {
  const Scratch scratch;
  scratch.Write("first");
  TokenFile token(scratch.path());
  CHECK_FALSE(token.Refused("Bearer first"));
  scratch.Replace("second");
  CHECK(token.Refused("Bearer first"));
  CHECK(token.header() == "Bearer second");
  CHECK_FALSE(token.Refused("Bearer second"));
}

TEST_CASE("A token file that others may read, or that the group may change, is refused; the group may read it") {
  const Scratch scratch;
  for (const mode_t mode : {0400, 0600, 0440, 0640}) {
    INFO(mode);
    scratch.Write("secret\n");
    REQUIRE(::chmod(scratch.path().c_str(), mode) == 0);
    CHECK(ReadTokenFile(scratch.path()).ok());
  }
  for (const mode_t mode : {0604, 0602, 0601, 0620, 0644, 0660, 0666}) {
    INFO(mode);
    REQUIRE(::chmod(scratch.path().c_str(), mode) == 0);
    const absl::Status refused = ReadTokenFile(scratch.path()).status();
    CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(std::string(refused.message()).find("chmod 600 " + scratch.path()) != std::string::npos);
    CHECK(std::string(refused.message()).find("secret\n") == std::string::npos);
  }
}

TEST_CASE("Without a file there is no token") {
  TokenFile token("");
  CHECK(token.header().empty());
  CHECK_FALSE(token.Refused(""));
}

}  // namespace
}  // namespace sheaf
