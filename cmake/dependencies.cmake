# cmake/dependencies.cmake -- the packages the library is built from.
# SPDX-License-Identifier: Apache-2.0
if(SEQTILE_STATIC_LLVM)
  # Only archives are found below, so that a dist build cannot depend on a package's shared library by accident.
  set(seqtile_library_suffixes ${CMAKE_FIND_LIBRARY_SUFFIXES})
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
endif()
find_package(Threads REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
# Headers alone make every file that formats a text twice as slow to compile, and Debian has no archive of fmt.
if(fmt_VERSION VERSION_LESS 10)
  add_library(seqtile_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt.cpp)
  target_include_directories(seqtile_fmt SYSTEM PUBLIC $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>)
elseif(SEQTILE_STATIC_LLVM)
  add_library(seqtile_fmt ALIAS fmt::fmt-header-only)
else()
  add_library(seqtile_fmt ALIAS fmt::fmt)
endif()
find_package(PkgConfig REQUIRED)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)

# libcsv brings neither a CMake package nor a file for pkg-config.
find_path(CSV_INCLUDE_DIR csv.h REQUIRED)
find_library(CSV_LIBRARY csv REQUIRED)
add_library(seqtile_csv INTERFACE)
target_include_directories(seqtile_csv SYSTEM INTERFACE ${CSV_INCLUDE_DIR})
target_link_libraries(seqtile_csv INTERFACE ${CSV_LIBRARY})

# LLVM's CMake package names optional tools that the development packages do not bring, so only llvm-config is asked.
find_program(LLVM_CONFIG NAMES llvm-config-19 REQUIRED)
function(seqtile_llvm_config variable)
  execute_process(COMMAND ${LLVM_CONFIG} ${ARGN} OUTPUT_VARIABLE output OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(output)
  set(${variable} ${output} PARENT_SCOPE)
endfunction()

seqtile_llvm_config(LLVM_INCLUDE_DIR --includedir)
seqtile_llvm_config(LLVM_LIBRARY_DIR --libdir)
add_library(seqtile_llvm INTERFACE)
target_include_directories(seqtile_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIR})
target_compile_definitions(seqtile_llvm INTERFACE __STDC_CONSTANT_MACROS __STDC_FORMAT_MACROS __STDC_LIMIT_MACROS)
if(SEQTILE_STATIC_LLVM)
  seqtile_llvm_config(llvm_libraries --link-static --libs passes object mc x86 nvptx)
  find_library(ZSTD_ARCHIVE zstd REQUIRED)
  find_library(Z_ARCHIVE z REQUIRED)
  target_link_directories(seqtile_llvm INTERFACE ${LLVM_LIBRARY_DIR})
  target_link_libraries(seqtile_llvm INTERFACE ${llvm_libraries} ${ZSTD_ARCHIVE} ${Z_ARCHIVE})
else()
  # The distribution's library has every target: AArch64 code is made with it, and tested under qemu.
  target_link_libraries(seqtile_llvm INTERFACE ${LLVM_LIBRARY_DIR}/libLLVM-19.so)
endif()

set(SEQTILE_LIBRARIES seqtile_llvm SQLite::SQLite3 PkgConfig::SODIUM Threads::Threads ${CMAKE_DL_LIBS} m)
if(SEQTILE_STATIC_LLVM)
  set(CMAKE_FIND_LIBRARY_SUFFIXES ${seqtile_library_suffixes})
endif()
