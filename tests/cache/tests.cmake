# tests/cache/tests.cmake -- tests of stores under use, damage, kills, full disks and locks.
# SPDX-License-Identifier: Apache-2.0
seqtile_test(cache
  cache/tuning_store_test.cpp
  cache/tuning_file_test.cpp
  cache/tuning_damage_test.cpp
  cache/tuning_process_test.cpp
  cache/plan_store_test.cpp
  cache/nearest_key_test.cpp
  cache/artifact_db_test.cpp
  cache/database_file_test.cpp
  cache/device_lock_test.cpp
  cache/found_files_test.cpp)
