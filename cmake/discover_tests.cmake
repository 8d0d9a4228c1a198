# cmake/discover_tests.cmake -- turns the test cases of a Catch2 program into ctest entries, their tags into labels.
# SPDX-License-Identifier: Apache-2.0
#
# Included by ctest (not at build time, so that a cross-built or sanitised program is only run where it can run) with
# PROGRAM, MODULE, WORKDIR, LIST_CASES and LIST_FILE set. The list is made anew when the program is newer than it.
# ctest sets no policies, so that these would be those of CMake 2.4.
cmake_policy(PUSH)
cmake_policy(VERSION 3.22)
# list_cases(variable filter): the names of the program's test cases that match the filter.
function(list_cases variable filter)
  execute_process(COMMAND ${PROGRAM} ${LIST_CASES} ${filter} WORKING_DIRECTORY ${WORKDIR}
                  OUTPUT_VARIABLE output RESULT_VARIABLE result)
  if(result LESS 0 OR NOT result MATCHES "^[0-9]+$")
    message(FATAL_ERROR "${PROGRAM} ${filter}: ${result}")
  endif()
  string(REPLACE ";" "\\;" output "${output}")
  string(REGEX REPLACE "\n+" ";" output "${output}")
  list(FILTER output EXCLUDE REGEX "^$")
  set(${variable} "${output}" PARENT_SCOPE)
endfunction()

function(write_list)
  execute_process(COMMAND ${PROGRAM} --list-tags WORKING_DIRECTORY ${WORKDIR} OUTPUT_VARIABLE tags)
  string(REGEX MATCHALL "\\[[a-z0-9_]+\\]" tags "${tags}")
  string(REGEX REPLACE "[][]" "" tags "${tags}")
  foreach(tag IN LISTS tags)
    list_cases(cases_${tag} "[${tag}]")
  endforeach()
  list_cases(cases "~[.]")  # hidden ones depend on the machine
  set(script "")
  foreach(case IN LISTS cases)
    set(labels ${MODULE})
    foreach(tag IN LISTS tags)
      if(case IN_LIST cases_${tag})
        list(APPEND labels ${tag})
      endif()
    endforeach()
    list(REMOVE_DUPLICATES labels)
    set(timeout 900)
    if("slow" IN_LIST labels)
      set(timeout 7200)
    endif()
    string(REGEX REPLACE "([][,*])" "\\\\\\1" filter "${case}")
    string(APPEND script "add_test([==[${MODULE}: ${case}]==] [==[${PROGRAM}]==] [==[${filter}]==])\n"
           "set_tests_properties([==[${MODULE}: ${case}]==] PROPERTIES WORKING_DIRECTORY [==[${WORKDIR}]==] "
           "TIMEOUT ${timeout} LABELS \"${labels}\")\n")
  endforeach()
  file(WRITE ${LIST_FILE} "${script}")
endfunction()

if(NOT EXISTS ${PROGRAM})
  add_test("${MODULE}: not built" ${PROGRAM})
  set_tests_properties("${MODULE}: not built" PROPERTIES LABELS ${MODULE})
else()
  if(${PROGRAM} IS_NEWER_THAN ${LIST_FILE})
    write_list()
  endif()
  include(${LIST_FILE})
endif()
cmake_policy(POP)
