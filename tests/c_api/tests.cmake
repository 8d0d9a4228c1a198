# tests/c_api/tests.cmake -- the C interface: from C++, from a plain C compiler, and its symbols.
# SPDX-License-Identifier: Apache-2.0
seqtile_test(c_api c_api/c_api_test.cpp c_api/c_api_ranks_test.cpp)

add_executable(c_api_layout c_api/layout.c)
target_link_libraries(c_api_layout PRIVATE seqtile seqtile_flags)
target_compile_options(c_api_layout PRIVATE -Wpedantic -Wconversion)
add_test(NAME "c_api: a C compiler sees the layouts that the library has" COMMAND c_api_layout)
set_tests_properties("c_api: a C compiler sees the layouts that the library has" PROPERTIES
                     LABELS "c_api;fast" TIMEOUT 300)
add_test(NAME "c_api: the symbols are those of the header" COMMAND Python3::Interpreter
         ${CMAKE_CURRENT_SOURCE_DIR}/c_api/symbols_test.py ${CMAKE_SOURCE_DIR} ${CMAKE_NM} $<TARGET_FILE:seqtile>)
set_tests_properties("c_api: the symbols are those of the header" PROPERTIES LABELS "c_api;fast" TIMEOUT 300)
if(NOT SEQTILE_SANITIZE)  # the sanitizer would have to be in Python
  add_test(NAME "c_api: PyTorch calls by tvm-ffi, where the package is" COMMAND Python3::Interpreter
           ${CMAKE_CURRENT_SOURCE_DIR}/c_api/tvm_ffi_test.py ${CMAKE_SOURCE_DIR} $<TARGET_LINKER_FILE:seqtile>)
  set_tests_properties("c_api: PyTorch calls by tvm-ffi, where the package is" PROPERTIES
                       LABELS "c_api;fast" TIMEOUT 1800 SKIP_RETURN_CODE 77)
endif()
