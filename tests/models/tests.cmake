# tests/models/tests.cmake
# SPDX-License-Identifier: Apache-2.0
seqtile_test(models
  models/golden_models_test.cpp models/layer_program_test.cpp models/model_test.cpp models/model_graph_test.cpp
  models/model_ranks_test.cpp models/planned_model_test.cpp
  support/kernel_cases.cpp support/kernel_runner.cpp support/kernel_table.cpp support/ranks.cpp)
