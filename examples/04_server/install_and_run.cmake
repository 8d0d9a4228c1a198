# examples/04_server/install_and_run.cmake -- the test of the installed package: install, build this example, run it.
# SPDX-License-Identifier: Apache-2.0
#
# cmake -DBUILD=<seqtile's build folder> -DSOURCE=<this folder> -DWORK=<scratch folder> -DGENERATOR=... -DCOMPILER=...
#       -DC_COMPILER=... -DC_SOURCE=<main.c of the C interface> -P install_and_run.cmake
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
function(run)
  execute_process(COMMAND ${ARGV} WORKING_DIRECTORY ${WORK} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G ${GENERATOR} -DCMAKE_BUILD_TYPE=Release
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_PREFIX_PATH=${WORK}/prefix)
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/server ${WORK}/tuning.db ${WORK}/artifacts.db)
run(${WORK}/prefix/bin/seqtile devices)

# The C interface by pkg-config, where there is one.
find_program(PKG_CONFIG pkg-config)
if(PKG_CONFIG)
  file(GLOB_RECURSE description ${WORK}/prefix/*/seqtile.pc)
  get_filename_component(folder ${description} DIRECTORY)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${folder} ${PKG_CONFIG} --cflags --libs seqtile
                  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags)
  file(GLOB_RECURSE library ${WORK}/prefix/*/libseqtile.so)
  get_filename_component(folder ${library} DIRECTORY)
  run(${C_COMPILER} -std=c11 -Wall -Wextra -Wpedantic -Werror ${C_SOURCE} -o ${WORK}/c_interface ${flags} -lm)
  run(${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${folder} SEQTILE_CACHE_DIR=${WORK}/cache ${WORK}/c_interface)
endif()
