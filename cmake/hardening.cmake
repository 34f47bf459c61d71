# What stands between a memory error and whoever would use it; tests/layout/hardening_test.py looks for it in the
# binaries. Position-independent executables are the compiler's default on Debian.
add_compile_options(-fstack-protector-strong -fstack-clash-protection)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  add_compile_options(-fcf-protection)
endif()
# Needs an optimising build, and hides overruns from the sanitizers.
if(NOT SHEAF_SANITIZE AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()
add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)
