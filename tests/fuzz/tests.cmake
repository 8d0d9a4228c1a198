# tests/fuzz/tests.cmake -- targets of libFuzzer, where all is built for it:
#   cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER=clang++ \
#         -DSEQTILE_SANITIZE=fuzzer-no-link,address,undefined && cmake --build build/fuzz --target plan_fuzz
#   build/fuzz/bin/plan_fuzz -max_total_time=600 -dict=tests/fuzz/plan.dict corpus/
# SPDX-License-Identifier: Apache-2.0
if(NOT SEQTILE_SANITIZE MATCHES "fuzzer")
  return()
endif()

# The planner alone: nothing else has to be built for it.
set(planner_sources compat_costs compat_problem compat_reshard compat_strategies elimination graph_json graph_json_write
    layout model problem reshard_costs solver strategies_of_products strategies_of_reshapes strategies_of_rows
    strategy_list)
list(TRANSFORM planner_sources REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/autotune/plan/\\1.cpp")
add_executable(plan_fuzz fuzz/plan_fuzz.cpp support/plan_text.cpp ${planner_sources} ${CMAKE_SOURCE_DIR}/jit/error.cpp)
target_link_libraries(plan_fuzz PRIVATE seqtile_flags ZLIB::ZLIB nlohmann_json::nlohmann_json fmt::fmt-header-only)
target_link_options(plan_fuzz PRIVATE -fsanitize=fuzzer)
