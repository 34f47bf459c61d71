# sheaf_embed_files(<folder> <table>)
# Makes "<folder>.cc", relative to the source tree and below the build tree's generated/, hold the files of <folder>, each
# as it is and compressed: `std::span<const EmbeddedFile> <table>()` of namespace sheaf, in the order of their names. Sets
# <table>_SOURCE to its path.
function(sheaf_embed_files folder table)
  file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${folder})
  set(archive ${CMAKE_BINARY_DIR}/generated/${path}.gz)
  cmake_path(GET archive PARENT_PATH archive_folder)
  file(MAKE_DIRECTORY ${archive_folder})
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*)
  set(arrays "")
  set(rows "")
  set(number 0)
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME)
    file(SHA256 ${file} digest)
    string(SUBSTRING ${digest} 0 32 digest)
    file(READ ${file} plain HEX)
    file(ARCHIVE_CREATE OUTPUT ${archive} PATHS ${file} FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9)
    file(READ ${archive} gzip HEX)
    # Behind the magic number, method and flags stands the time of compression: the same files make the same binary.
    string(SUBSTRING "${gzip}" 0 8 head)
    string(SUBSTRING "${gzip}" 16 -1 tail)
    set(gzip "${head}00000000${tail}")
    foreach(form plain gzip)
      string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${${form}}")
      string(APPEND arrays "// ${name}\nconstexpr char k${form}${number}[] = {${bytes}};\n")
    endforeach()
    string(APPEND rows "    {\"${name}\", \"${digest}\", {kplain${number}, sizeof kplain${number}}, {kgzip${number}, sizeof kgzip${number}}},\n")
    math(EXPR number "${number} + 1")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  set(source ${CMAKE_BINARY_DIR}/generated/${path}.cc)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT "// Generated from ${path}.
#include \"server/web/embedded_file.h\"

namespace sheaf {
namespace {

${arrays}
constexpr EmbeddedFile kFiles[] = {
${rows}};

}  // namespace

std::span<const EmbeddedFile> ${table}() { return kFiles; }

}  // namespace sheaf
")
  # Two tables have the same names in them.
  set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set(${table}_SOURCE ${source} PARENT_SCOPE)
endfunction()
