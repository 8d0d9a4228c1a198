# tests/python/tests.cmake -- the Python package, where PyTorch and tvm-ffi are.
# SPDX-License-Identifier: Apache-2.0
if(NOT SEQTILE_SANITIZE)  # the sanitizer would have to be in Python
  add_test(NAME "python: the package, from NumPy and PyTorch" COMMAND Python3::Interpreter
           ${CMAKE_CURRENT_SOURCE_DIR}/python/package_test.py ${CMAKE_SOURCE_DIR} $<TARGET_FILE:seqtile>)
  set_tests_properties("python: the package, from NumPy and PyTorch" PROPERTIES
                       LABELS "python;fast" TIMEOUT 1800 SKIP_RETURN_CODE 77)
endif()
