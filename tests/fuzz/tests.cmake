# tests/fuzz/tests.cmake -- targets of libFuzzer, where all is built for it:
#   cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER=clang++ \
#         -DSEQTILE_SANITIZE=fuzzer-no-link,address,undefined && cmake --build build/fuzz --target plan_fuzz
#   build/fuzz/bin/plan_fuzz -max_total_time=600 -dict=tests/fuzz/plan.dict corpus/
# SPDX-License-Identifier: Apache-2.0
if(NOT SEQTILE_SANITIZE MATCHES "fuzzer")
  return()
endif()

# Only the planner and its dependencies are built.
file(GLOB planner_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/planner/*/*.cpp)
foreach(needed autotune/fields.cpp cache/database/text.cpp jit/base/hash.cpp jit/base/dtype.cpp jit/base/error.cpp
                jit/base/assert.cpp)
  list(APPEND planner_sources ${CMAKE_SOURCE_DIR}/${needed})
endforeach()
add_executable(plan_fuzz fuzz/plan_fuzz.cpp support/references/plan_text.cpp ${planner_sources})
target_link_libraries(plan_fuzz PRIVATE seqtile_flags PkgConfig::SODIUM ZLIB::ZLIB nlohmann_json::nlohmann_json seqtile_fmt)
target_link_options(plan_fuzz PRIVATE -fsanitize=fuzzer)
