# cmake/install.cmake -- the library, its public headers, the program, and what find_package and pkg-config read.
# SPDX-License-Identifier: Apache-2.0
include(CMakePackageConfigHelpers)
set(seqtile_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/seqtile)

install(TARGETS seqtile EXPORT seqtileTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET seqtile_mpi)
  install(TARGETS seqtile_mpi EXPORT seqtileTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES include/seqtile/mpi_fabric.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/seqtile)
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

install(DIRECTORY include/seqtile DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "*.def" PATTERN mpi_fabric.h EXCLUDE)

install(FILES include/seqtile.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# The paths of seqtile.pc count from its own folder, so that an installed tree may be moved.
file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/seqtile.pc.in ${CMAKE_BINARY_DIR}/seqtile.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/seqtile.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(EXPORT seqtileTargets NAMESPACE seqtile:: DESTINATION ${seqtile_package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/seqtileConfig.cmake.in ${CMAKE_BINARY_DIR}/seqtileConfig.cmake
                              INSTALL_DESTINATION ${seqtile_package_dir})
# Before version 1 every minor version may change the interface.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/seqtileConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/seqtileConfig.cmake ${CMAKE_BINARY_DIR}/seqtileConfigVersion.cmake
        DESTINATION ${seqtile_package_dir})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/seqtile)
