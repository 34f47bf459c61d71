# Warnings for our own code; presets add -Werror.
add_compile_options(-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wno-missing-field-initializers)
# A multiply and an add must never fuse: results are compared to the last bit.
add_compile_options(-ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options(-Wthread-safety)
else()
  # gcc 12 reports these inside the standard library's own headers at -O2.
  add_compile_options(-Wno-restrict -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-array-bounds)
endif()

# What protoc writes is not ours to tidy. clang-tidy refuses to run no check at all, so it runs one that nothing here can
# fail.
file(WRITE ${PROJECT_BINARY_DIR}/.clang-tidy "Checks: '-*,objc-super-self'\n")
