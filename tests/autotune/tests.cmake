# tests/autotune/tests.cmake -- buckets, spaces, tuner and workers; the engine.
# SPDX-License-Identifier: Apache-2.0
# A program of its own: it interposes malloc and pthread_mutex_lock. Sanitizers do too, so they leave that file out.
set(engine_tests
  autotune/index_check_test.cpp autotune/overlap_test.cpp autotune/engine_exit_test.cpp
  autotune/engine_cpu_test.cpp autotune/engine_fused_test.cpp autotune/engine_gpu_test.cpp autotune/engine_launch_test.cpp autotune/engine_policy_test.cpp
  autotune/engine_stores_test.cpp autotune/usable_test.cpp
  autotune/engine_threads_test.cpp autotune/engine_tune_test.cpp support/fake_device.cpp support/fake_op.cpp)
if(NOT SEQTILE_SANITIZE)
  list(APPEND engine_tests autotune/engine_hot_path_test.cpp)
endif()
seqtile_test(engine ${engine_tests})
add_dependencies(engine_tests seqtile_cli)  # the worker of its tunings
add_executable(exit_helper support/exit_helper.cpp)
target_link_libraries(exit_helper PRIVATE seqtile seqtile_flags)
target_compile_definitions(engine_tests PRIVATE SEQTILE_EXIT_HELPER="$<TARGET_FILE:exit_helper>")
add_dependencies(engine_tests exit_helper)

# The tuner's worker in these tests, and a tuning process that can be killed.
add_executable(tuning_helper support/tuning_helper.cpp support/toy_ops.cpp)
target_link_libraries(tuning_helper PRIVATE seqtile seqtile_flags)
seqtile_test(autotune
  autotune/bucket_test.cpp autotune/command_line_test.cpp autotune/config_space_test.cpp autotune/fields_test.cpp autotune/gpu_model_test.cpp
  autotune/gpu_measure_test.cpp autotune/graph_set_test.cpp autotune/key_difference_test.cpp autotune/modelling_test.cpp
  autotune/rank_finals_test.cpp autotune/rank_race_test.cpp autotune/session_test.cpp
  autotune/stats_test.cpp autotune/strategy_test.cpp autotune/tune_test.cpp autotune/worker_test.cpp support/toy_ops.cpp)
target_compile_definitions(autotune_tests PRIVATE SEQTILE_TUNING_HELPER="$<TARGET_FILE:tuning_helper>")
add_dependencies(autotune_tests tuning_helper)

# Nothing of LLVM, no kernel: layouts, graphs and plans.
seqtile_test(plan
  autotune/json_text_test.cpp
  autotune/plan/calibrated_test.cpp autotune/plan/calibration_test.cpp autotune/plan/changed_texts_test.cpp
  autotune/plan/compat_test.cpp autotune/plan/gradient_traffic_test.cpp autotune/plan/graph_json_test.cpp
  autotune/plan/ilp_test.cpp autotune/plan/link_fit_test.cpp autotune/plan/operator_rules_test.cpp autotune/plan/plan_costs_test.cpp autotune/plan/prices_test.cpp
  autotune/plan/reshard_paths_test.cpp autotune/plan/restriction_test.cpp autotune/plan/rules_test.cpp
  autotune/plan/shape_check_test.cpp autotune/plan/shared_parameters_test.cpp autotune/plan/solver_test.cpp
  autotune/plan/stored_plan_test.cpp autotune/plan/strategies_test.cpp support/ilp.cpp support/plan_text.cpp)
target_link_libraries(plan_tests PRIVATE ZLIB::ZLIB)
# They use the namespace plan, whose Graph is not that of the headers that the others read first.
set_target_properties(plan_tests PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
target_compile_definitions(plan_tests PRIVATE SEQTILE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
