# tests/kernels/tests.cmake
# SPDX-License-Identifier: Apache-2.0
seqtile_test(kernels
  kernels/attention_backward_test.cpp
  kernels/attention_test.cpp
  kernels/golden_test.cpp
  kernels/gpu_code_test.cpp
  kernels/gpu_text_test.cpp
  kernels/gpu_streams_test.cpp
  kernels/gpu_test.cpp
  kernels/graph_test.cpp
  kernels/index_inputs_test.cpp
  kernels/linear_test.cpp
  kernels/linear_wgrad_test.cpp
  kernels/spill_test.cpp
  kernels/seqpar/alltoall_linear_test.cpp
  kernels/seqpar/collectives_test.cpp
  kernels/seqpar/context_attention_backward_test.cpp
  kernels/seqpar/context_attention_test.cpp
  kernels/seqpar/context_engine_test.cpp
  kernels/seqpar/exchange/flag_trace_test.cpp
  kernels/seqpar/fused_cases_test.cpp
  kernels/seqpar/fused_engine_test.cpp
  kernels/seqpar/fused_graph_test.cpp
  kernels/seqpar/fused_linear_test.cpp
  kernels/seqpar/fused_prepare_test.cpp
  kernels/seqpar/fused_ranks_test.cpp
  kernels/seqpar/fused_timeline_test.cpp
  kernels/seqpar/linear_alltoall_test.cpp
  kernels/seqpar/matmul_backward_test.cpp
  kernels/seqpar/matmul_backward_engine_test.cpp
  kernels/seqpar/norm_backward_test.cpp
  kernels/seqpar/exchange/protocol_text_test.cpp
  kernels/seqpar/exchange/rank_protocol_test.cpp
  kernels/seqpar/rank_race_test.cpp
  kernels/seqpar/exchange/row_layout_test.cpp
  kernels/seqpar/same_bits_test.cpp
  kernels/seqpar/shared_gpu_test.cpp
  kernels/rope_test.cpp
  kernels/grouped_linear_test.cpp
  kernels/simulated_faults_test.cpp
  kernels/simulated_test.cpp
  kernels/typed_op_test.cpp
  kernels/workload_test.cpp
  support/ranks/backward_run.cpp
  support/ranks/graph_rank.cpp)
# Tests of ranks that mpirun starts, if it is installed. Sanitizers do not know MPI's own memory.
if(TARGET seqtile_mpi AND MPIEXEC_EXECUTABLE AND NOT SEQTILE_SANITIZE)
  seqtile_test(mpi kernels/seqpar/mpi_test.cpp)
  target_link_libraries(mpi_tests PRIVATE seqtile_mpi MPI::MPI_CXX)
  set(run_ranks ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe)
  add_test(NAME "mpi: three ranks" COMMAND ${run_ranks} -n 3 $<TARGET_FILE:mpi_tests> [mpi])
  add_test(NAME "mpi: too many ranks" COMMAND ${run_ranks} -n 17 $<TARGET_FILE:mpi_tests> [mpi])
  add_test(NAME "mpi: two nodes" COMMAND ${run_ranks} -n 4 $<TARGET_FILE:mpi_tests> [mpi_nodes])
  add_test(NAME "mpi: a death" COMMAND ${run_ranks} -n 4 --enable-recovery $<TARGET_FILE:mpi_tests> [mpi_death])
  add_test(NAME "mpi: level of threads" COMMAND ${run_ranks} -n 2 $<TARGET_FILE:mpi_tests> [mpi_level])
  foreach(name "three ranks" "too many ranks" "two nodes" "a death" "level of threads")
    set_tests_properties("mpi: ${name}" PROPERTIES LABELS "kernels;seqpar;mpi" TIMEOUT 300)
  endforeach()
  set_tests_properties("mpi: too many ranks" PROPERTIES PASS_REGULAR_EXPRESSION "17 ranks, at most 16 make a fabric")
  set_tests_properties("mpi: a death" PROPERTIES PASS_REGULAR_EXPRESSION "knows.*knows.*knows")
endif()
include(${CMAKE_CURRENT_LIST_DIR}/../support/fakes/emulated_device.cmake)
target_link_libraries(kernels_tests PRIVATE seqtile_emulated_device)
