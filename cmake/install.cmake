# What others link: `cmake --install build/release --component sdk`, then find_package(Sheaf) and
#
#   Sheaf::client        calls to a server
#   Sheaf::program       the loop of a program
#   Sheaf::computation   what a worker computes, without the worker
#   Sheaf::worker        a worker, but for what it can run
#   Sheaf::aggregation   sums, without a server
#   Sheaf::conformance   the laws of operators, for those of one's own
#
# The others are what these need. Headers keep the paths they have in this tree, below include/sheaf:
# #include "aggregation/round_accumulator.h". The binaries are the default component.
include(CMakePackageConfigHelpers)

set(sheaf_include ${CMAKE_INSTALL_INCLUDEDIR}/sheaf)
set(sheaf_package ${CMAKE_INSTALL_LIBDIR}/cmake/Sheaf)
target_compile_features(sheaf_base PUBLIC cxx_std_20)
foreach(name base proto tls settings wire aggregation conformance client program computation worker)
  set_target_properties(sheaf_${name} PROPERTIES EXPORT_NAME ${name})
  set(headers FILE_SET HEADERS DESTINATION ${sheaf_include} COMPONENT sdk EXCLUDE_FROM_ALL)
  install(TARGETS sheaf_${name} EXPORT SheafTargets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT sdk EXCLUDE_FROM_ALL
          ${headers}
          INCLUDES DESTINATION ${sheaf_include})
endforeach()
install(DIRECTORY ${CMAKE_BINARY_DIR}/proto/sheaf DESTINATION ${sheaf_include} COMPONENT sdk EXCLUDE_FROM_ALL
        FILES_MATCHING PATTERN "*.pb.h" PATTERN "*.grpc.pb.h" EXCLUDE)
install(FILES ${CMAKE_BINARY_DIR}/generated/base/version.h DESTINATION ${sheaf_include}/base
        COMPONENT sdk EXCLUDE_FROM_ALL)

install(EXPORT SheafTargets NAMESPACE Sheaf:: DESTINATION ${sheaf_package} COMPONENT sdk EXCLUDE_FROM_ALL)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/SheafConfig.cmake.in ${CMAKE_BINARY_DIR}/SheafConfig.cmake
                              INSTALL_DESTINATION ${sheaf_package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/SheafConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/SheafConfig.cmake ${CMAKE_BINARY_DIR}/SheafConfigVersion.cmake
        DESTINATION ${sheaf_package} COMPONENT sdk EXCLUDE_FROM_ALL)
