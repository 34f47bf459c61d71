// NPZ: numpy's file of named arrays, a zip archive whose members are .npy files. This writer stores them uncompressed
// with their CRC-32; `numpy.load` reads the result everywhere.
//
//   ASSIGN_OR_RETURN(std::string file, EncodeNpz({{.name = "w", .descr = "<f4", .shape = {2, 3}, .data = bytes}}));
//
// Equal arrays give equal bytes: members carry a fixed date. Formats: https://numpy.org/doc/stable/reference/generated/
// numpy.lib.format.html (version 1.0) and PKWARE's APPNOTE.TXT (version 2.0, no zip64).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sheaf {

// An array whose bytes lie elsewhere.
struct NpyArray {
  // The key in numpy's result; the member is called name + ".npy".
  std::string name;
  // numpy's name of the element type, such as "<f4" or "<i8".
  std::string descr;
  std::vector<int64_t> shape;
  // Row-major elements.
  std::string_view data;
};

// The .npy header of an array: magic, version, and the dictionary, padded to a multiple of 64 bytes.
std::string NpyHeader(const NpyArray& array);

// OUT_OF_RANGE if the archive would reach 4 GiB or 65,536 arrays, which zip cannot count without its 64-bit extension.
absl::StatusOr<std::string> EncodeNpz(const std::vector<NpyArray>& arrays);

}  // namespace sheaf
