# A third of a cold build's time, and of its memory traffic, goes into headers and templates that each file needs again.
# Together they need them once. Names in unnamed namespaces must then differ within a library.
option(SHEAF_UNITY "Compile the files of a library some at a time" OFF)

# sheaf_library(<folder> SOURCES ... HEADERS ... PUBLIC ... PRIVATE ... [PRECOMPILED plain|messages|grpc])
# One static library per folder, alias sheaf::<folder>. Includes are written from
# the root of the source tree ("storage/task_store.h").
function(sheaf_library name)
  cmake_parse_arguments(ARG "" "PRECOMPILED" "SOURCES;HEADERS;PUBLIC;PRIVATE" ${ARGN})
  add_library(sheaf_${name} STATIC ${ARG_SOURCES})
  add_library(sheaf::${name} ALIAS sheaf_${name})
  target_sources(sheaf_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS})
  target_link_libraries(sheaf_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  if(SHEAF_UNITY)
    set_target_properties(sheaf_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  endif()
  if(ARG_PRECOMPILED)
    sheaf_precompile(sheaf_${name} ${ARG_PRECOMPILED})
  endif()
endfunction()
