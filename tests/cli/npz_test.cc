#include "cli/npz.h"

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "base/checksum.h"
#include "cli/processes/temporary_directory.h"

namespace sheaf {
namespace {

uint32_t U16(const std::string& bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]) | static_cast<uint32_t>(static_cast<uint8_t>(bytes[at + 1])) << 8;
}

uint32_t U32(const std::string& bytes, size_t at) { return U16(bytes, at) | U16(bytes, at + 2) << 16; }

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

TEST_CASE("An .npy header names type and shape, and ends on a multiple of 64 bytes") {
  const std::string header = NpyHeader({.name = "w", .descr = "<f4", .shape = {2, 3}, .data = ""});
  CHECK(header.substr(0, 8) == std::string("\x93NUMPY\x01\x00", 8));
  CHECK(header.size() % 64 == 0);
  CHECK(U16(header, 8) == header.size() - 10);
  CHECK(header.substr(10, 60) == "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } ");
  CHECK(header.back() == '\n');
}

TEST_CASE("A vector's shape is a tuple of one, a scalar's the empty tuple") {
  CHECK(NpyHeader({.name = "b", .descr = "<i8", .shape = {5}, .data = ""}).find("'shape': (5,), }") !=
        std::string::npos);
  CHECK(NpyHeader({.name = "s", .descr = "<i8", .shape = {}, .data = ""}).find("'shape': (), }") != std::string::npos);
}

TEST_CASE("An .npz file is a stored zip whose sizes, offsets and checksums hold, to the byte") {
  const std::string data = BytesOf<float>({1, 2, 3, 4, 5, 6});
  const NpyArray array{.name = "w", .descr = "<f4", .shape = {2, 3}, .data = data};
  const auto npz = EncodeNpz({array});
  REQUIRE(npz.ok());
  const std::string member = NpyHeader(array) + data;
  // Local header, name, member.
  CHECK(npz->substr(0, 4) == "PK\x03\x04");
  CHECK(U16(*npz, 8) == 0);
  CHECK(U32(*npz, 14) == Crc32(member));
  CHECK(U32(*npz, 18) == member.size());
  CHECK(U32(*npz, 22) == member.size());
  CHECK(npz->substr(30, 5) == "w.npy");
  CHECK(npz->substr(35, member.size()) == member);
  // Central directory.
  const size_t directory = 35 + member.size();
  CHECK(npz->substr(directory, 4) == "PK\x01\x02");
  CHECK(U32(*npz, directory + 16) == Crc32(member));
  CHECK(U32(*npz, directory + 42) == 0);
  CHECK(npz->substr(directory + 46, 5) == "w.npy");
  // End record.
  const size_t end = directory + 51;
  CHECK(npz->substr(end, 4) == "PK\x05\x06");
  CHECK(U16(*npz, end + 10) == 1);
  CHECK(U32(*npz, end + 12) == 51);
  CHECK(U32(*npz, end + 16) == directory);
  CHECK(npz->size() == end + 22);
}

TEST_CASE("Equal arrays give equal bytes") {
  const std::string data = BytesOf<int64_t>({1, 2});
  const std::vector<NpyArray> arrays = {{.name = "a", .descr = "<i8", .shape = {2}, .data = data},
                                        {.name = "b/c", .descr = "<i8", .shape = {1, 2}, .data = data}};
  CHECK(*EncodeNpz(arrays) == *EncodeNpz(arrays));
}

TEST_CASE("numpy reads every type and shape we write") {
  // Debian's own Python is the one that has Debian's numpy.
  if (std::system("/usr/bin/python3 -c 'import numpy' 2>/dev/null") != 0) {
    WARN("skipped: there is no numpy here");
    return;
  }
  auto directory = TemporaryDirectory::Create("/tmp", "sheaf-npz-");
  REQUIRE(directory.ok());
  const std::string f4 = BytesOf<float>({1.5F, -2, 3, 4, 5, 6}), f8 = BytesOf<double>({0.1}),
                    i4 = BytesOf<int32_t>({-7}), i8 = BytesOf<int64_t>({1, int64_t{1} << 62}),
                    u8 = BytesOf<uint64_t>({~uint64_t{0}});
  const auto npz = EncodeNpz({{.name = "w.values", .descr = "<f4", .shape = {2, 3}, .data = f4},
                              {.name = "scalar", .descr = "<f8", .shape = {}, .data = f8},
                              {.name = "layer/bias", .descr = "<i4", .shape = {1}, .data = i4},
                              {.name = "w.indices", .descr = "<i8", .shape = {2, 1}, .data = i8},
                              {.name = "count", .descr = "<u8", .shape = {1}, .data = u8},
                              {.name = "t.keys", .descr = "|u1", .shape = {2}, .data = "ab"},
                              {.name = "empty", .descr = "<f4", .shape = {0, 500}, .data = ""}});
  REQUIRE(npz.ok());
  const std::string path = directory->path() + "/w.npz";
  std::ofstream(path, std::ios::binary) << *npz;
  const std::string script = R"(
import numpy, sys, zipfile
assert zipfile.ZipFile(sys.argv[1]).testzip() is None
f = numpy.load(sys.argv[1])
assert f.files == ['w.values', 'scalar', 'layer/bias', 'w.indices', 'count', 't.keys', 'empty'], f.files
assert f['w.values'].dtype == '<f4' and f['w.values'].tolist() == [[1.5, -2, 3], [4, 5, 6]]
assert f['scalar'].shape == () and float(f['scalar']) == 0.1
assert f['layer/bias'].tolist() == [-7]
assert f['w.indices'].tolist() == [[1], [2**62]]
assert f['count'].tolist() == [2**64 - 1]
assert f['t.keys'].tobytes() == b'ab'
assert f['empty'].shape == (0, 500)
)";
  std::ofstream(directory->path() + "/check.py") << script;
  CHECK(std::system(("/usr/bin/python3 " + directory->path() + "/check.py " + path).c_str()) == 0);
}

}  // namespace
}  // namespace sheaf
