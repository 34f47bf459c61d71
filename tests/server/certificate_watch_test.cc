// What of the files of a certificate reaches gRPC: only what can work.
#include "server/net/certificate_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "base/clock.h"
#include "tests/storage/temporary_directory.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
namespace fs = std::filesystem;

void OpenSsl(const std::string& arguments) {
  REQUIRE(std::system(("/usr/bin/openssl " + arguments + " 2>/dev/null >&2").c_str()) == 0);
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Certificates that are valid for a year from now on, each signed by itself.
class Pairs {
 public:
  explicit Pairs(std::string directory) : directory_(std::move(directory)) {}

  CertificateFiles Make(const std::string& name) const {
    CertificateFiles files = {.certificate = directory_ + "/" + name + ".pem", .key = directory_ + "/" + name + ".key"};
    OpenSsl(
        fmt::format("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 -subj /CN={} "
                    "-keyout {} -out {}",
                    name, files.key, files.certificate));
    return files;
  }

 private:
  const std::string directory_;
};

void Replace(const std::string& to, const std::string& from) {
  fs::copy_file(from, to + ".new");
  fs::rename(to + ".new", to);
}

TEST_CASE("A renewed pair is served; files that cannot work are not, the pair before is, and somebody is told") {
  const TemporaryDirectory directory;
  const Pairs pairs(directory.path());
  const CertificateFiles files = pairs.Make("server");
  const CertificateFiles first = pairs.Make("first");
  const CertificateFiles second = pairs.Make("second");
  const std::string text = directory.path() + "/text";
  std::ofstream(text) << "nothing of the kind\n";
  const std::string stranger = directory.path() + "/stranger.pem";
  std::ofstream(stranger) << ReadFile(first.certificate) << ReadFile(second.certificate);
  const absl::Time now = SystemClock().Now();

  struct Fault {
    std::string name;
    std::function<void()> make;
    absl::Duration later;
    std::vector<std::string> says;
  };
  const std::vector<Fault> faults = {
      {"the key is another's", [&] { Replace(files.key, second.key); }, {}, {"is not the key of", files.key}},
      {"the certificate is another's",
       [&] { Replace(files.certificate, second.certificate); },
       {},
       {"is not the key of", files.certificate}},
      {"the certificate is empty",
       [&] { std::ofstream(files.certificate, std::ios::trunc); },
       {},
       {"BEGIN CERTIFICATE"}},
      {"the certificate is none", [&] { Replace(files.certificate, text); }, {}, {"BEGIN CERTIFICATE"}},
      {"the key is none", [&] { Replace(files.key, text); }, {}, {"no private key"}},
      {"the certificate is gone", [&] { fs::remove(files.certificate); }, {}, {"No such file"}},
      {"the key is gone", [&] { fs::remove(files.key); }, {}, {"No such file"}},
      {"others may read the key",
       [&] {
         Replace(files.certificate, second.certificate);
         Replace(files.key, second.key);
         fs::permissions(files.key, fs::perms(0644));
       },
       {},
       {"chmod 600"}},
      {"it expired long ago",
       [&] {
         Replace(files.certificate, second.certificate);
         Replace(files.key, second.key);
       },
       absl::Hours(24 * 400),
       {"expired on"}},
      {"it is not valid yet",
       [&] {
         Replace(files.certificate, second.certificate);
         Replace(files.key, second.key);
       },
       -absl::Hours(24),
       {"valid only from"}},
      {"what follows did not sign it",
       [&] {
         // A certificate that signs itself needs nobody: one that another signed does.
         const std::string signed_by_first = directory.path() + "/leaf.pem";
         OpenSsl(
             fmt::format("req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=leaf -keyout {0}.k "
                         "-out {0}.csr",
                         signed_by_first));
         OpenSsl(fmt::format("x509 -req -in {0}.csr -CA {1} -CAkey {2} -CAcreateserial -days 365 -out {0}",
                             signed_by_first, first.certificate, first.key));
         std::ofstream(signed_by_first, std::ios::app) << ReadFile(second.certificate);
         Replace(files.certificate, signed_by_first);
         Replace(files.key, signed_by_first + ".k");
       },
       {},
       {"signed it"}},
  };
  for (const Fault& fault : faults) {
    INFO(fault.name);
    Replace(files.certificate, first.certificate);
    Replace(files.key, first.key);
    ServingCertificate facts;
    const auto watch = CertificateWatch::Open(files, now, facts);
    INFO(watch.status().ToString());
    REQUIRE(watch.ok());
    CHECK(ReadFile((*watch)->served().certificate) == ReadFile(first.certificate));
    CHECK(ReadFile((*watch)->served().key) == ReadFile(first.key));
    const absl::Time end = facts.Get().expire_time;
    CHECK(end > now + absl::Hours(24 * 364));
    CHECK(end < now + absl::Hours(24 * 366));

    fault.make();
    (*watch)->Look(now + fault.later);
    // One file after the other is replaced: one look is not enough to say that it failed.
    CHECK(facts.Get().problem.empty());
    (*watch)->Look(now + fault.later + absl::Seconds(1));
    for (const std::string& word : fault.says) CHECK_THAT(facts.Get().problem, Contains(word));
    CHECK(facts.Get().expire_time == end);
    CHECK(ReadFile((*watch)->served().certificate) == ReadFile(first.certificate));
    CHECK(ReadFile((*watch)->served().key) == ReadFile(first.key));

    // Mended: what is there now is served, and all is well.
    if (!fs::exists(files.certificate)) std::ofstream(files.certificate).close();
    Replace(files.certificate, second.certificate);
    Replace(files.key, second.key);
    (*watch)->Look(now + absl::Seconds(3));
    CHECK(facts.Get().problem.empty());
    CHECK(ReadFile((*watch)->served().certificate) == ReadFile(second.certificate));
    CHECK(ReadFile((*watch)->served().key) == ReadFile(second.key));
  }
}

TEST_CASE("Authorities that cannot be read do not replace those there are") {
  const TemporaryDirectory directory;
  const Pairs pairs(directory.path());
  CertificateFiles files = pairs.Make("server");
  const std::string authority = pairs.Make("authority").certificate;
  const std::string before = ReadFile(authority);
  files.authorities = authority;
  ServingCertificate facts;
  const absl::Time now = SystemClock().Now();
  const auto watch = CertificateWatch::Open(files, now, facts);
  REQUIRE(watch.ok());
  std::ofstream(authority, std::ios::trunc) << "nothing of the kind\n";
  (*watch)->Look(now);
  (*watch)->Look(now);
  CHECK_THAT(facts.Get().problem, Contains(authority));
  CHECK(ReadFile((*watch)->served().authorities) == before);
  // The same files as before: nothing is served anew, and nobody has to look after it any more.
  std::ofstream(authority, std::ios::trunc) << before;
  (*watch)->Look(now);
  CHECK(facts.Get().problem.empty());
}

// What this process writes to stderr while this lives goes to a file.
class CapturedLog {
 public:
  explicit CapturedLog(std::string path) : path_(std::move(path)), before_(dup(STDERR_FILENO)) {
    const int file = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    REQUIRE(file >= 0);
    dup2(file, STDERR_FILENO);
    close(file);
  }
  ~CapturedLog() {
    dup2(before_, STDERR_FILENO);
    close(before_);
  }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  int NumLinesWith(const std::string& text) const {
    std::istringstream lines(ReadFile(path_));
    int num = 0;
    for (std::string line; std::getline(lines, line);) num += line.find(text) != std::string::npos ? 1 : 0;
    return num;
  }

 private:
  const std::string path_;
  const int before_;
};

TEST_CASE(
    "From two weeks before a certificate's end the log has a warning each day, and afterwards an error each day") {
  const TemporaryDirectory directory;
  const CertificateFiles files = Pairs(directory.path()).Make("server");
  ServingCertificate facts;
  const absl::Time now = SystemClock().Now();
  const auto watch = CertificateWatch::Open(files, now, facts);
  REQUIRE(watch.ok());
  const absl::Time end = facts.Get().expire_time;
  const auto look_hourly = [&](absl::Time from, absl::Time to, const std::string& text) {
    const CapturedLog log(directory.path() + "/log");
    for (absl::Time at = from; at < to; at += absl::Hours(1)) (*watch)->Look(at);
    return log.NumLinesWith(text);
  };
  CHECK(look_hourly(end - absl::Hours(24 * 16), end - absl::Hours(24 * 14), files.certificate) == 0);
  CHECK(look_hourly(end - absl::Hours(24 * 14), end - absl::Hours(24 * 10), files.certificate + " expires on ") == 4);
  CHECK(look_hourly(end, end + absl::Hours(48), files.certificate + " expired on ") == 2);
}

TEST_CASE("A server starts with files that can work, or says why they cannot") {
  const TemporaryDirectory directory;
  const Pairs pairs(directory.path());
  CertificateFiles files = pairs.Make("server");
  ServingCertificate facts;
  const absl::Time now = SystemClock().Now();
  CHECK(CertificateWatch::Open(files, now, facts).ok());
  // Clients decide about one that has expired; it can be renewed while the server runs.
  CHECK(CertificateWatch::Open(files, now + absl::Hours(24 * 400), facts).ok());
  files.key = pairs.Make("other").key;
  CHECK(absl::IsInvalidArgument(CertificateWatch::Open(files, now, facts).status()));
}

}  // namespace
}  // namespace sheaf
