# What starts a real PostgreSQL, for tests and benchmarks.
include_guard(GLOBAL)
add_library(sheaf_postgres_cluster STATIC ${CMAKE_CURRENT_LIST_DIR}/postgres_cluster.cc)
target_compile_definitions(sheaf_postgres_cluster PRIVATE SHEAF_PYTHON="${SHEAF_PYTHON_INTERPRETER}"
  SHEAF_CLUSTER="${CMAKE_CURRENT_LIST_DIR}/cluster.py")
target_link_libraries(sheaf_postgres_cluster PUBLIC sheaf::base PRIVATE PostgreSQL::PostgreSQL)
target_include_directories(sheaf_postgres_cluster PUBLIC ${PROJECT_SOURCE_DIR})
