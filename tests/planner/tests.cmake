# tests/planner/tests.cmake
# SPDX-License-Identifier: Apache-2.0
# Layouts, graphs and plans need neither LLVM nor a kernel.
seqtile_test(plan
  autotune/json_text_test.cpp
  planner/calibrated_test.cpp
  planner/calibration_test.cpp
  planner/changed_texts_test.cpp
  planner/compat_test.cpp
  planner/gradient_traffic_test.cpp
  planner/graph_json_test.cpp
  planner/ilp_test.cpp
  planner/link_fit_test.cpp
  planner/operator_rules_test.cpp
  planner/plan_costs_test.cpp
  planner/prices_test.cpp
  planner/reshard_paths_test.cpp
  planner/restriction_test.cpp
  planner/rules_test.cpp
  planner/shape_check_test.cpp
  planner/shared_parameters_test.cpp
  planner/solver_test.cpp
  planner/stored_plan_test.cpp
  planner/strategies_test.cpp
  support/references/ilp.cpp
  support/references/plan_text.cpp)
target_link_libraries(plan_tests PRIVATE ZLIB::ZLIB)
# The tests use namespace planner. Its Graph clashes with the Graph of the precompiled headers.
set_target_properties(plan_tests PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
target_compile_definitions(plan_tests PRIVATE SEQTILE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
