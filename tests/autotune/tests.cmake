# tests/autotune/tests.cmake -- buckets, spaces, tuner and workers; the engine.
# SPDX-License-Identifier: Apache-2.0
# engine_tests is a program of its own, because it interposes malloc and pthread_mutex_lock. Sanitizers interpose them
# too, so that sanitized builds leave that file out.
set(engine_tests
  autotune/engine/index_check_test.cpp
  autotune/engine/overlap_test.cpp
  autotune/engine/engine_exit_test.cpp
  autotune/engine/engine_cpu_test.cpp
  autotune/engine/engine_fused_test.cpp
  autotune/engine/engine_gpu_test.cpp
  autotune/engine/engine_launch_test.cpp
  autotune/engine/engine_policy_test.cpp
  autotune/engine/engine_stores_test.cpp
  autotune/engine/usable_test.cpp
  autotune/engine/engine_threads_test.cpp
  autotune/engine/engine_tune_test.cpp
  support/fakes/fake_device.cpp
  support/fakes/fake_op.cpp)
if(NOT SEQTILE_SANITIZE)
  list(APPEND engine_tests autotune/engine/engine_hot_path_test.cpp)
endif()
seqtile_test(engine ${engine_tests})
# The helper is a process that exits inside calls, and the worker of these tests' tunings.
add_executable(exit_helper support/fakes/exit_helper.cpp)
target_link_libraries(exit_helper PRIVATE seqtile seqtile_flags)
target_compile_definitions(engine_tests PRIVATE SEQTILE_EXIT_HELPER="$<TARGET_FILE:exit_helper>")
add_dependencies(engine_tests exit_helper)

# The helper is the tuner's worker in these tests, and a tuning process that a test can kill.
add_executable(tuning_helper support/fakes/tuning_helper.cpp support/fakes/toy_ops.cpp)
target_link_libraries(tuning_helper PRIVATE seqtile seqtile_flags)
seqtile_test(autotune
  autotune/bucket_test.cpp
  autotune/call/call_values_test.cpp
  autotune/command_line_test.cpp
  autotune/config_space_test.cpp
  autotune/fields_test.cpp
  autotune/gpu_model_test.cpp
  autotune/gpu_measure_test.cpp
  autotune/engine/graph_set_test.cpp
  autotune/key_difference_test.cpp
  autotune/modelling_test.cpp
  autotune/rank_finals_test.cpp
  autotune/rank_race_test.cpp
  autotune/refusals_test.cpp
  autotune/session_test.cpp
  autotune/stats_test.cpp
  autotune/strategy_test.cpp
  autotune/tune_test.cpp
  autotune/worker_test.cpp
  support/fakes/toy_ops.cpp)
target_compile_definitions(autotune_tests PRIVATE SEQTILE_TUNING_HELPER="$<TARGET_FILE:tuning_helper>")
add_dependencies(autotune_tests tuning_helper)
