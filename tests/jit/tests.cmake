# tests/jit/tests.cmake -- tile IR, code generation and the CPU runtime.
# SPDX-License-Identifier: Apache-2.0
seqtile_test(jit
  support/references/compare_compiled.cpp
  support/kernels/operands.cpp
  support/kernels/op_kernels.cpp
  support/kernels/sample_kernels.cpp
  support/ptx/simulated_kernel.cpp
  support/references/interpreter_test.cpp
  jit/fabric/protocol_test.cpp
  support/protocol/protocol_explorer.cpp
  jit/base/spawn_test.cpp
  jit/base/tensor_runs_test.cpp
  jit/ir/builder_test.cpp
  jit/ir/text_test.cpp
  jit/ir/verifier_test.cpp
  jit/codegen/cpu/lowering_test.cpp
  jit/codegen/cpu/out_of_range_test.cpp
  jit/codegen/nvptx/every_op_test.cpp
  jit/codegen/nvptx/linear_layout_test.cpp
  jit/codegen/nvptx/masks_test.cpp
  jit/codegen/nvptx/ordering_test.cpp
  jit/codegen/nvptx/ptx_test.cpp
  jit/codegen/nvptx/ptxas_test.cpp
  jit/codegen/nvptx/synchronisation_test.cpp
  jit/codegen/nvptx/tma_plan_test.cpp
  jit/codegen/streams_test.cpp
  jit/sim/async_test.cpp
  jit/sim/bounds_test.cpp
  jit/sim/calls_test.cpp
  jit/sim/cluster_test.cpp
  jit/sim/execution_test.cpp
  jit/sim/failed_launch_test.cpp
  jit/sim/faults_test.cpp
  jit/sim/foreign_test.cpp
  jit/sim/forms_test.cpp
  jit/sim/hopper_test.cpp
  jit/sim/matrix_test.cpp
  jit/sim/memory_order_test.cpp
  jit/sim/parser_test.cpp
  jit/sim/scalar_test.cpp
  jit/sim/targets_test.cpp
  jit/sim/tensor_copy_test.cpp
  jit/sim/warp_memory_test.cpp
  jit/sim/wgmma_order_test.cpp
  support/ptx/hopper_attention.cpp
  support/ptx/hopper_product.cpp
  support/ptx/hopper_run.cpp
  jit/compiler_test.cpp
  jit/counted_launch_test.cpp
  jit/device_profile_test.cpp
  jit/device_test.cpp
  jit/machine_memory_test.cpp
  jit/nearest_word_test.cpp
  jit/runtime/cpu/openmp_executor_test.cpp
  jit/runtime/cuda/cuda_device_test.cpp
  jit/runtime/cuda/tensor_map_test.cpp)

# The parts that threads and ranks share are a program of their own, because the thread sanitizer checks little else
# here.
seqtile_test(threads
  jit/fabric/cuda_fabric_test.cpp
  jit/fabric/fabric_test.cpp
  jit/fabric/node_fabric_test.cpp
  jit/fabric/virtual_fabric_test.cpp
  jit/runtime/cpu/executor_test.cpp
  jit/sim/host_threads_test.cpp
  kernels/seqpar/mixed_epochs_test.cpp
  kernels/seqpar/sanitized_test.cpp)

# Kernels made below the lowering need LLVM in the test program itself; with a static LLVM that would be a second copy.
if(NOT SEQTILE_STATIC_LLVM)
  target_sources(jit_tests PRIVATE
    support/ptx/llvm_kernel.cpp
    jit/codegen/math_test.cpp
    jit/codegen/cpu/blob_test.cpp
    jit/runtime/cpu/cpu_device_test.cpp)
  include(${CMAKE_CURRENT_LIST_DIR}/../support/fakes/emulated_device.cmake)
  target_link_libraries(jit_tests PRIVATE seqtile_llvm seqtile_emulated_device)
endif()

# A fake libcuda.so.1 for the tests of the CUDA runtime.
add_library(seqtile_fake_cuda_driver MODULE support/fakes/fake_cuda_driver.cpp)
target_link_libraries(seqtile_fake_cuda_driver PRIVATE seqtile_flags)
foreach(program jit_tests threads_tests)
  add_dependencies(${program} seqtile_fake_cuda_driver)
  target_compile_definitions(${program} PRIVATE FAKE_CUDA_DRIVER="$<TARGET_FILE:seqtile_fake_cuda_driver>")
endforeach()
