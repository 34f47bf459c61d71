# What others write: installs the package into an empty folder, and configures and builds tests/out_of_tree against
# nothing but that. Its operator is held to the laws, and a broken one must be caught; its worker and its program must
# get the right aggregate from a real server.
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
run(${PYTHON} -B ${CMAKE_CURRENT_LIST_DIR}/station_test.py ${BUILD}/bin/sheafd ${WORK}/build
    ${WORK}/project/stations.txt ${PROJECT}/../../docs/guides/write-a-program.md)
