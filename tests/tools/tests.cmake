# tests/tools/tests.cmake -- the command line, the layering and the headers; Python's standard library only.
# SPDX-License-Identifier: Apache-2.0
seqtile_test(tools tools/errors_test.cpp tools/request_plan_test.cpp tools/trace_test.cpp)
target_link_libraries(tools_tests PRIVATE seqtile_trace ZLIB::ZLIB)

# seqtile_script_test(name labels script arguments...)
function(seqtile_script_test name labels)
  add_test(NAME "tools: ${name}" COMMAND Python3::Interpreter ${ARGN})
  # The script tests take longest, so they start first.
  set_tests_properties("tools: ${name}" PROPERTIES LABELS "tools;${labels}" TIMEOUT 900 COST 100)
endfunction()

seqtile_script_test("layers: no include goes up" "fast" ${CMAKE_SOURCE_DIR}/tests/layers_test.py ${CMAKE_SOURCE_DIR})
seqtile_script_test("statics: none has a destructor" "fast" ${CMAKE_SOURCE_DIR}/tests/statics_test.py ${CMAKE_NM}
                    ${CMAKE_BINARY_DIR})
seqtile_script_test("headers: every one compiles alone" "slow" ${CMAKE_SOURCE_DIR}/tests/headers_test.py
                    ${CMAKE_SOURCE_DIR} ${CMAKE_CXX_COMPILER} ${LLVM_INCLUDE_DIR})
seqtile_script_test("cli: json, exit codes and bad input" "fast" ${CMAKE_SOURCE_DIR}/tests/tools/cli_test.py
                    $<TARGET_FILE:seqtile_cli> $<TARGET_FILE:seqtile_fake_cuda_driver>)
seqtile_script_test("usable: commands agree about records that are wrong" "fast"
                    ${CMAKE_SOURCE_DIR}/tests/tools/usable_test.py $<TARGET_FILE:seqtile_cli>)
if(TARGET seqtile_mpi AND MPIEXEC_EXECUTABLE AND NOT SEQTILE_SANITIZE)
  seqtile_script_test("mpi: the program on ranks of mpirun" "fast;mpi" ${CMAKE_SOURCE_DIR}/tests/tools/mpi_test.py
                      $<TARGET_FILE:seqtile_cli> ${MPIEXEC_EXECUTABLE})
endif()
seqtile_script_test("plan: models, forms of a plan, bad input" "fast" ${CMAKE_SOURCE_DIR}/tests/tools/plan_test.py
                    ${CMAKE_SOURCE_DIR} $<TARGET_FILE:seqtile_cli>)
seqtile_script_test("export_graph: a model of PyTorch, where there is one" "fast"
                    ${CMAKE_SOURCE_DIR}/tests/tools/export_graph_test.py ${CMAKE_SOURCE_DIR} $<TARGET_FILE:seqtile_cli>)
seqtile_script_test("field models: exported and planned in their full sizes, where their packages are" "slow"
                    ${CMAKE_SOURCE_DIR}/tests/tools/field_models_test.py ${CMAKE_SOURCE_DIR} $<TARGET_FILE:seqtile_cli>)
set_tests_properties("tools: field models: exported and planned in their full sizes, where their packages are" PROPERTIES
                     SKIP_RETURN_CODE 77)
seqtile_script_test("gpu_check: sections, exit codes, no GPU" "fast" ${CMAKE_SOURCE_DIR}/tests/tools/gpu_check_test.py
                    ${CMAKE_SOURCE_DIR})
