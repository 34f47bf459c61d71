# Everything is a Debian 12 package; deploy/packages.txt names them.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(Protobuf REQUIRED)  # Module mode: Debian ships no CONFIG package for it.
find_package(gRPC CONFIG REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(fmt CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(PostgreSQL REQUIRED)  # Of it only libpq.
find_package(OpenSSL REQUIRED)
find_package(CURL REQUIRED)  # Debian ships no CMake package for it, and CMake knows it.
find_package(Boost REQUIRED)  # Headers only.
pkg_check_modules(libdeflate REQUIRED IMPORTED_TARGET libdeflate)  # Debian ships no CMake package for it.
find_package(CLI11 CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(tomlplusplus CONFIG REQUIRED)
find_package(yaml-cpp CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)  # Of it only the core: the text that Prometheus reads.
