# An operator written outside this tree is held to the laws: installs the package into an empty folder, configures and
# builds tests/out_of_tree against nothing but that, and runs its test, in which a broken operator must be caught.
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "exited with ${result}: ${ARGV}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix --component sdk)
# A copy elsewhere: nothing is found by a path relative to this tree.
file(COPY ${PROJECT}/ DESTINATION ${WORK}/project)
run(${CMAKE_COMMAND} -G Ninja -S ${WORK}/project -B ${WORK}/build -D CMAKE_PREFIX_PATH=${WORK}/prefix
    -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -D CMAKE_CXX_FLAGS=-O1)
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${CMAKE_CTEST_COMMAND} --test-dir ${WORK}/build --output-on-failure --verbose)
# The guide shows what it prints.
execute_process(COMMAND ${WORK}/build/mean_of_squares_test OUTPUT_VARIABLE output)
file(READ ${PROJECT}/../../docs/guides/write-an-operator.md guide)
string(FIND "${guide}" "${output}" position)
if(position EQUAL -1)
  message(FATAL_ERROR "docs/guides/write-an-operator.md does not show what the test prints:\n${output}")
endif()
