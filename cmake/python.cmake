# Debian's own Python is preferred: it is the one whose packages deploy/packages.txt brings.
find_program(SHEAF_PYTHON_INTERPRETER python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(SHEAF_PYTHON_INTERPRETER python3)

# Whether the packages of [python] are there: a build without them is one without the Python package.
set(sheaf_python_found OFF)
if(SHEAF_PYTHON_INTERPRETER)
  execute_process(COMMAND ${SHEAF_PYTHON_INTERPRETER} -c "import google.protobuf, grpc, numpy, sys; sys.exit(sys.version_info < (3, 11))"
                  RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(NOT failed)
    set(sheaf_python_found ON)
  endif()
endif()
option(SHEAF_PYTHON "Make the Python package" ${sheaf_python_found})
