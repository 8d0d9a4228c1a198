# tests/kernels/tests.cmake
# SPDX-License-Identifier: Apache-2.0
seqtile_test(kernels
  kernels/attention_backward_test.cpp kernels/attention_test.cpp kernels/golden_test.cpp kernels/gpu_code_test.cpp kernels/gpu_text_test.cpp
  kernels/gpu_test.cpp kernels/graph_test.cpp
  kernels/linear_test.cpp kernels/linear_wgrad_test.cpp kernels/model_test.cpp kernels/model_ranks_test.cpp kernels/spill_test.cpp
  kernels/seqpar/alltoall_linear_test.cpp kernels/seqpar/collectives_test.cpp kernels/seqpar/context_attention_test.cpp
  kernels/seqpar/context_engine_test.cpp kernels/seqpar/fused_cases_test.cpp kernels/seqpar/fused_engine_test.cpp
  kernels/seqpar/fused_graph_test.cpp kernels/seqpar/fused_linear_test.cpp kernels/seqpar/fused_prepare_test.cpp
  kernels/seqpar/fused_ranks_test.cpp kernels/seqpar/fused_timeline_test.cpp kernels/seqpar/matmul_backward_test.cpp
  kernels/seqpar/matmul_backward_engine_test.cpp kernels/seqpar/row_layout_test.cpp support/rank_run.cpp
  support/ranks.cpp
  kernels/row_kernels_test.cpp kernels/simulated_faults_test.cpp kernels/simulated_test.cpp kernels/workload_test.cpp
  support/golden.cpp support/guarded_call.cpp support/interpreter.cpp support/interpreter_values.cpp
  support/kernel_cases.cpp support/kernel_runner.cpp support/text_faults.cpp)
# Ranks that mpirun starts, where it is there. Sanitizers know nothing of MPI's own memory.
if(TARGET seqtile_mpi AND MPIEXEC_EXECUTABLE AND NOT SEQTILE_SANITIZE)
  seqtile_test(mpi kernels/seqpar/mpi_test.cpp)
  target_link_libraries(mpi_tests PRIVATE seqtile_mpi)
  set(run_ranks ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe)
  add_test(NAME "mpi: three ranks" COMMAND ${run_ranks} -n 3 $<TARGET_FILE:mpi_tests> [mpi])
  add_test(NAME "mpi: too many ranks" COMMAND ${run_ranks} -n 17 $<TARGET_FILE:mpi_tests> [mpi])
  set_tests_properties("mpi: three ranks" "mpi: too many ranks" PROPERTIES LABELS "kernels;seqpar;mpi" TIMEOUT 300)
  set_tests_properties("mpi: too many ranks" PROPERTIES PASS_REGULAR_EXPRESSION "17 ranks, at most 16 make a fabric")
endif()
include(${CMAKE_CURRENT_LIST_DIR}/../support/emulated_device.cmake)
target_link_libraries(kernels_tests PRIVATE seqtile_emulated_device)
