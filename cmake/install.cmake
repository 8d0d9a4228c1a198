# cmake/install.cmake -- the library, its public headers, the program, and the package that find_package(seqtile) reads.
# SPDX-License-Identifier: Apache-2.0
include(CMakePackageConfigHelpers)
set(seqtile_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/seqtile)

install(TARGETS seqtile EXPORT seqtileTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET seqtile_mpi)
  install(TARGETS seqtile_mpi EXPORT seqtileTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES jit/mpi_fabric.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/seqtile/jit)
endif()
install(TARGETS seqtile_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET seqtile_bench)
  # `seqtile bench` starts it from its own folder, where it finds the script that runs PyTorch. It may not be built.
  set_target_properties(seqtile_bench PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS seqtile_bench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} OPTIONAL)
  install(CODE "if(EXISTS \"$<TARGET_FILE:seqtile_bench>\")
    file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\" TYPE PROGRAM
         FILES \"${CMAKE_SOURCE_DIR}/bench/peers/torch_peer.py\")
  endif()")
endif()

# tools/gpu_check.sh and what it runs: a machine with a GPU needs nothing but the installed package.
if(TARGET seqtile_gpu_bench)
  set_target_properties(seqtile_gpu_bench kernels_tests PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS seqtile_gpu_bench kernels_tests RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} OPTIONAL)
endif()
install(PROGRAMS tools/gpu_check.sh bench/peers/torch_gpu.py DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES examples/models/llama-3-8b.json DESTINATION ${CMAKE_INSTALL_DATADIR}/seqtile/models)

# Public headers are those of the folders' roots, and what they include. They keep their paths below include/seqtile.
set(seqtile_public_headers
  jit/artifact_store.h jit/builder.h jit/channel.h jit/compiler.h jit/counted_launch.h jit/cuda_fabric.h jit/device.h
  jit/device_profile.h jit/dtype.h jit/error.h jit/executor.h jit/fabric.h jit/gpu_facts.h jit/kernel.h jit/target.h
  jit/tensor.h jit/timeline.h jit/base/channel_block.h jit/base/timeline_block.h jit/fabric/protocol.h
  jit/ir/function.h jit/ir/ops.def jit/ir/types.h
  cache/artifact_db.h cache/check_report.h cache/tuning_store.h
  autotune/bucket.h autotune/config_space.h autotune/engine.h autotune/fields.h autotune/gpu_model.h
  autotune/graph_set.h autotune/index_check.h autotune/launch.h autotune/op_def.h autotune/overlap.h autotune/runner.h autotune/tuner.h
  kernels/activation.h kernels/attention_backward.h kernels/attention_forward.h kernels/call.h kernels/embedding.h
  kernels/layer_norm.h kernels/linear.h kernels/linear_wgrad.h kernels/op_fields.h kernels/op_tensors.h
  kernels/registry.h kernels/rms_norm.h kernels/rms_norm_backward.h kernels/rope.h kernels/row_kernel.h
  kernels/silu_and_mul.h kernels/silu_and_mul_backward.h kernels/softmax.h kernels/tensor_values.h kernels/tolerance.h
  kernels/typed_op.h kernels/workload_reader.h kernels/seqpar/alltoall_linear.h kernels/seqpar/collectives.h
  kernels/seqpar/context_attention.h kernels/seqpar/context_attention_backward.h kernels/seqpar/exchange.h
  kernels/seqpar/fused_handle.h
  kernels/seqpar/fused_linear.h kernels/seqpar/linear_alltoall.h kernels/seqpar/matmul_backward.h
  kernels/seqpar/norm_backward.h kernels/seqpar/prepare.h kernels/seqpar/row_layout.h
  models/layer_program.h models/model.h models/model_operations.h models/model_ranks.h models/rope_form.h)
foreach(header IN LISTS seqtile_public_headers)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/seqtile/${folder})
endforeach()

install(EXPORT seqtileTargets NAMESPACE seqtile:: DESTINATION ${seqtile_package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/seqtileConfig.cmake.in ${CMAKE_BINARY_DIR}/seqtileConfig.cmake
                              INSTALL_DESTINATION ${seqtile_package_dir})
# Before version 1 every minor version may change the interface.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/seqtileConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/seqtileConfig.cmake ${CMAKE_BINARY_DIR}/seqtileConfigVersion.cmake
        DESTINATION ${seqtile_package_dir})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/seqtile)
