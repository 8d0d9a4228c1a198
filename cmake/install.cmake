# cmake/install.cmake -- the library, its public headers, the program, and the package that find_package(seqtile) reads.
# SPDX-License-Identifier: Apache-2.0
include(CMakePackageConfigHelpers)
set(seqtile_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/seqtile)

install(TARGETS seqtile EXPORT seqtileTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET seqtile_mpi)
  install(TARGETS seqtile_mpi EXPORT seqtileTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES jit/fabric/transport/mpi_fabric.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/seqtile/jit)
endif()
install(TARGETS seqtile_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# Completion and pages for man, which the program writes from the tables of its --help.
if(NOT CMAKE_CROSSCOMPILING)
  set(seqtile_help_dir ${CMAKE_BINARY_DIR}/help)
  add_custom_command(
    OUTPUT ${seqtile_help_dir}/man/seqtile.1 ${seqtile_help_dir}/seqtile ${seqtile_help_dir}/_seqtile
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${seqtile_help_dir}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${seqtile_help_dir}/man
    COMMAND seqtile_cli man -o ${seqtile_help_dir}/man
    COMMAND seqtile_cli completion bash > ${seqtile_help_dir}/seqtile
    COMMAND seqtile_cli completion zsh > ${seqtile_help_dir}/_seqtile
    DEPENDS seqtile_cli VERBATIM)
  add_custom_target(seqtile_help ALL DEPENDS ${seqtile_help_dir}/man/seqtile.1)
  install(DIRECTORY ${seqtile_help_dir}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${seqtile_help_dir}/seqtile DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${seqtile_help_dir}/_seqtile DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endif()
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
  jit/codegen/options.h jit/device/artifact_store.h jit/ir/builder.h jit/fabric/core/channel.h jit/compiler.h jit/sim/device/counted_launch.h jit/fabric/transport/cuda_fabric.h jit/device/device.h
  jit/device/device_profile.h jit/base/dtype.h jit/base/error.h jit/device/executor.h jit/fabric/core/fabric.h jit/device/gpu_facts.h jit/device/kernel.h jit/device/target.h
  jit/device/tensor.h jit/timeline/timeline.h jit/abi/channel_block.h jit/abi/timeline_block.h jit/fabric/core/protocol.h
  jit/ir/function.h jit/ir/ops.def jit/ir/types.h
  cache/artifact_db.h cache/check_report.h cache/tuning_store.h
  autotune/bucket.h autotune/config_space.h autotune/engine.h autotune/fields.h autotune/gpu_model.h
  autotune/engine/graph_set.h autotune/engine/index_check.h autotune/engine/launch.h autotune/op_def.h autotune/engine/overlap.h autotune/runner.h autotune/tuner.h
  kernels/act/activation.h kernels/attention/attention_backward.h kernels/attention/attention_forward.h kernels/op/call.h kernels/rows/embedding.h
  kernels/norm/layer_norm.h kernels/linear/grouped_linear.h kernels/linear/linear.h kernels/linear/linear_wgrad.h kernels/op/op_fields.h kernels/op/op_tensors.h
  kernels/registry.h kernels/norm/rms_norm.h kernels/norm/rms_norm_backward.h kernels/rows/rope.h kernels/op/row_kernel.h
  kernels/act/act_and_mul.h kernels/act/act_and_mul_backward.h kernels/rows/softmax.h kernels/op/tensor_values.h kernels/op/tolerance.h
  kernels/op/op_config.h kernels/op/tile_kernel.h kernels/op/typed_op.h kernels/op/workload_reader.h
  kernels/seqpar/operations/alltoall_linear.h kernels/seqpar/operations/collectives.h
  kernels/seqpar/operations/context_attention.h kernels/seqpar/operations/context_attention_backward.h kernels/seqpar/exchange/heads.h kernels/seqpar/exchange/rank_tensors.h kernels/seqpar/exchange/ranks.h
  kernels/seqpar/fused_handle.h
  kernels/seqpar/operations/fused_linear.h kernels/seqpar/operations/linear_alltoall.h kernels/seqpar/operations/matmul_backward.h
  kernels/seqpar/operations/norm_backward.h kernels/seqpar/prepare.h kernels/seqpar/exchange/row_layout.h
  models/layers/layer_program.h models/file/model.h models/layers/model_operations.h models/layers/model_ranks.h models/file/rope_form.h)
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
