# Most of a cold build's time goes into the headers of the standard library, Abseil, protobuf and gRPC. Precompiled, they
# take half of it. ccache does not cope with them and makes them needless: deploy/quickstart.sh and tests/run.sh turn this
# on where there is no ccache. No header of ours is among them, and layout_headers_test compiles each of ours alone.
option(SHEAF_PCH "Precompile the headers that most files include" OFF)

set(sheaf_headers_plain
  <algorithm> <functional> <map> <memory> <optional> <span> <string> <string_view> <utility> <vector>
  <absl/container/flat_hash_map.h> <absl/status/statusor.h> <absl/time/time.h> <fmt/format.h>)
set(sheaf_headers_messages
  ${sheaf_headers_plain} <sheaf/v1/access_service.pb.h> <sheaf/v1/blob_service.pb.h> <sheaf/v1/inspection_service.pb.h>
  <sheaf/v1/round_service.pb.h> <sheaf/v1/work_service.pb.h>)
set(sheaf_headers_grpc ${sheaf_headers_messages} <grpcpp/grpcpp.h>)
set(sheaf_libraries_plain absl::flat_hash_map absl::statusor absl::time fmt::fmt)
set(sheaf_libraries_messages ${sheaf_libraries_plain} sheaf::proto)
set(sheaf_libraries_grpc ${sheaf_libraries_messages} gRPC::grpc++)

# sheaf_precompile(<target> plain|messages|grpc [SUFFIX suffix] [HEADERS more...] [LIBRARIES theirs...])
# The target uses what is precompiled of a kind; it must see the kind's libraries, and be compiled like the first
# target of its kind and suffix.
function(sheaf_precompile target kind)
  if(NOT SHEAF_PCH)
    return()
  endif()
  cmake_parse_arguments(ARG "" "SUFFIX" "HEADERS;LIBRARIES" ${ARGN})
  set(precompiled sheaf_precompiled_${kind}${ARG_SUFFIX})
  if(NOT TARGET ${precompiled})
    set(empty ${CMAKE_BINARY_DIR}/generated/${precompiled}.cc)
    file(CONFIGURE OUTPUT ${empty} CONTENT "")
    add_library(${precompiled} OBJECT ${empty})
    target_link_libraries(${precompiled} PRIVATE ${sheaf_libraries_${kind}} ${ARG_LIBRARIES})
    target_precompile_headers(${precompiled} PRIVATE ${sheaf_headers_${kind}} ${ARG_HEADERS})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${precompiled})
endfunction()
