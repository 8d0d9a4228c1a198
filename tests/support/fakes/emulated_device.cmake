# tests/support/fakes/emulated_device.cmake -- the library seqtile_emulated_device: runs AArch64 kernels on any machine.
# SPDX-License-Identifier: Apache-2.0
include_guard()
find_program(SEQTILE_QEMU_AARCH64 qemu-aarch64)
find_program(SEQTILE_AARCH64_CC aarch64-linux-gnu-gcc)
mark_as_advanced(SEQTILE_QEMU_AARCH64 SEQTILE_AARCH64_CC)

add_library(seqtile_emulated_device OBJECT ${CMAKE_CURRENT_LIST_DIR}/emulated_device.cpp)
target_link_libraries(seqtile_emulated_device PRIVATE seqtile_flags seqtile_fmt)
if(SEQTILE_QEMU_AARCH64 AND SEQTILE_AARCH64_CC AND NOT SEQTILE_STATIC_LLVM)
  set(runner ${CMAKE_BINARY_DIR}/bin/blob_runner_aarch64)
  add_custom_command(OUTPUT ${runner} DEPENDS ${CMAKE_CURRENT_LIST_DIR}/blob_runner.c
    COMMAND ${SEQTILE_AARCH64_CC} -std=c11 -O1 -Wall -Wextra -static ${CMAKE_CURRENT_LIST_DIR}/blob_runner.c -o ${runner})
  add_custom_target(seqtile_blob_runner DEPENDS ${runner})
  add_dependencies(seqtile_emulated_device seqtile_blob_runner)
  target_compile_definitions(seqtile_emulated_device PRIVATE
    SEQTILE_QEMU_AARCH64="${SEQTILE_QEMU_AARCH64}" SEQTILE_BLOB_RUNNER="${runner}")
endif()
