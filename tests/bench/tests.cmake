# tests/bench/tests.cmake
# SPDX-License-Identifier: Apache-2.0
seqtile_test(bench
  ${CMAKE_SOURCE_DIR}/bench/environment.cpp
  ${CMAKE_SOURCE_DIR}/bench/peers/blas.cpp
  ${CMAKE_SOURCE_DIR}/bench/peers/onednn_absent.cpp
  ${CMAKE_SOURCE_DIR}/bench/peers/torch.cpp
  bench/child_test.cpp
  bench/environment_test.cpp
  bench/harness_test.cpp
  bench/report_test.cpp
  bench/probe_test.cpp)
target_link_libraries(bench_tests PRIVATE seqtile_bench_core)
add_test(NAME "bench: names, json, exit codes" COMMAND Python3::Interpreter
         ${CMAKE_SOURCE_DIR}/tests/bench/program_test.py $<TARGET_FILE:seqtile_bench>)
set_tests_properties("bench: names, json, exit codes" PROPERTIES LABELS "bench" TIMEOUT 300)
