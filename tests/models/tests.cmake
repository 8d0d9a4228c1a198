# tests/models/tests.cmake
# SPDX-License-Identifier: Apache-2.0
seqtile_test(models
  models/golden_models_test.cpp
  models/layer_program_test.cpp
  models/model_file_test.cpp
  models/rope_reader_test.cpp
  models/model_test.cpp
  models/model_graph_test.cpp
  models/model_ranks_test.cpp
  models/planned_model_test.cpp)
include(${CMAKE_CURRENT_LIST_DIR}/../support/fakes/emulated_device.cmake)
target_link_libraries(models_tests PRIVATE seqtile_emulated_device)
