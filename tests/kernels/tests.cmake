# tests/kernels/tests.cmake
# SPDX-License-Identifier: Apache-2.0
seqtile_test(kernels
  kernels/attention_backward_test.cpp kernels/attention_test.cpp kernels/golden_test.cpp kernels/gpu_code_test.cpp kernels/gpu_text_test.cpp
  kernels/gpu_test.cpp kernels/graph_test.cpp
  kernels/linear_test.cpp kernels/linear_wgrad_test.cpp kernels/model_test.cpp kernels/model_ranks_test.cpp kernels/spill_test.cpp
  kernels/seqpar/collectives_test.cpp kernels/seqpar/fused_cases_test.cpp kernels/seqpar/fused_engine_test.cpp
  kernels/seqpar/fused_graph_test.cpp kernels/seqpar/fused_linear_test.cpp kernels/seqpar/fused_prepare_test.cpp
  kernels/seqpar/fused_ranks_test.cpp kernels/seqpar/fused_timeline_test.cpp support/rank_run.cpp support/ranks.cpp
  kernels/row_kernels_test.cpp kernels/simulated_faults_test.cpp kernels/simulated_test.cpp kernels/workload_test.cpp
  support/golden.cpp support/guarded_call.cpp support/interpreter.cpp support/interpreter_values.cpp
  support/kernel_cases.cpp support/kernel_runner.cpp support/text_faults.cpp)
include(${CMAKE_CURRENT_LIST_DIR}/../support/emulated_device.cmake)
target_link_libraries(kernels_tests PRIVATE seqtile_emulated_device)
